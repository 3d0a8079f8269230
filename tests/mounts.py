"""File systems of a test's own, mounted by root."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager

import pytest


def mounted(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode != 0:
        reason = f"mount: {done.stderr.decode().strip()}"
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def mount(target, *arguments):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    target.mkdir(exist_ok=True)
    mounted(*arguments, target)
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
