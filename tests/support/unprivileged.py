"""Running Python without privileges, also where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

# What the command line adds to a permission denied.
REMEDY = "; run as the owner, or change the mode (chmod)"


def run_unprivileged(*args: object, input: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments; a root gives its privileges up before."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if os.environ.get("CI"):
                pytest.fail("setpriv is missing, of util-linux")
            pytest.skip("root has no setpriv to give its privileges up")
        prefix = [setpriv, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    done = subprocess.run(
        [*prefix, sys.executable, *map(str, args)],
        input=input if input is not None else b"",
        capture_output=True,
        check=False,
        timeout=60,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
