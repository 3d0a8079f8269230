"""Programs of ``interop/`` in other languages: made in ``build/clients``, and their output."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "clients"

TIMEOUT = 300  # seconds for all scenarios of a program

Said = list[dict[str, Any]]


def run(*command: str, env: dict[str, str] | None = None) -> Said:
    """Run a program that prints JSON lines."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def kinds(said: Said, kind: str) -> Said:
    """Return the lines of a kind."""
    return [each for each in said if each["kind"] == kind]


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Let one process make things in ``build/clients`` at a time."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
