"""A slice of each campaign: of ``CORE`` in ``make test``, of the others in ``make test-all``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from crash.checks import environment
from faults.framework import load_campaigns

CAMPAIGNS = load_campaigns()
PATIENCE = 240  # seconds
CORE = {"kill", "lost", "machine", "power", "syncs"}

PARAMETERS = [
    pytest.param(
        name,
        column,
        marks=[
            pytest.mark.crash,
            *([pytest.mark.needs_debug_build] if campaign.needs_faults else []),
            *([pytest.mark.interop] if column == "theirs" else []),
            *([] if name in CORE and column == "ours" else [pytest.mark.long]),
        ],
    )
    for name, campaign in CAMPAIGNS.items()
    for column in (["ours", "theirs"] if campaign.theirs else ["ours"])
]


# In a program of its own: a test process has threads and opened stores before.
@pytest.mark.parametrize(("name", "column"), PARAMETERS)
def test_slice(tmp_path, name, column):
    command = [sys.executable, "-m", "faults", "--slice", "--only", name, "--column", column]
    command += ["--seed", os.environ.get("RMQSTORE_FAULTS_SEED", ""), "--scratch", str(tmp_path)]
    with subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        text=True,
    ) as child:
        try:
            said, _ = child.communicate(timeout=PATIENCE)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    row = next((line for line in said.splitlines() if line.startswith(f"{name} ")), "")
    assert child.returncode == 0, said
    if "not run: " in row:
        pytest.skip(row)
