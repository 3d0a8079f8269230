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


@contextmanager
def disk(target, kind, mebibytes):
    """A file system of that size: tmpfs, or ext4 in an image beside ``target``."""
    if kind == "tmpfs":
        arguments = ["-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs"]
    else:
        image = target.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image], check=True
        )
        arguments = ["-o", "loop", str(image)]
    with mount(target, *arguments):
        yield target


def fill_up(directory):
    """Take every free block of a file system; the file that does."""
    path = directory / "rest"
    with path.open("wb", buffering=0) as file:
        size = 1 << 20
        while size >= 512:
            try:
                file.write(b"\xff" * size)
            except OSError:
                size //= 2
    return path
