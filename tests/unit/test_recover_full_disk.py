"""Opening a killed store on a full disk: an error or a store, never the death of the process.

On tmpfs even the reading of a hole through a mapping asks for a block. Only root can mount: then
and only then these run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

import oracle_store
from crash.checks import environment
from damaged import flip, killed, make, records

PATIENCE = 60
OPEN = """
    import sys, rmqstore
    try:
        with rmqstore.open(sys.argv[1], "r+") as store:
            print("opened", sum(len(queue) for queue in store["Topic1"].values()))
    except (rmqstore.StoreError, OSError) as error:
        print("error", type(error).__name__, error)
"""


@contextmanager
def full(target: Path, source: Path, kind: str):
    """A copy of a store, sparse, on a file system without a free block."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    target.mkdir()
    if kind == "tmpfs":
        arguments = ["-t", "tmpfs", "-o", "size=48m", "tmpfs"]
    else:
        image = target.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        arguments = ["-o", "loop", str(image)]
    done = subprocess.run(["mount", *arguments, target], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mount: {done.stderr.decode().strip()}")
    try:
        root = target / "store"
        subprocess.run(["cp", "-a", "--sparse=always", source, root], check=True)
        with (target / "rest").open("wb") as file:
            size = 1 << 20
            while size >= 512:
                try:
                    os.write(file.fileno(), b"\xff" * size)
                except OSError:
                    size //= 2
        yield root
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)


def opened(root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OPEN), str(root)],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    assert done.returncode != -signal.SIGBUS, done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_log_is_not_in_the_way(said: str) -> None:
    """Queues and index may find no space; what the log holds is all there, and needs none."""
    assert said.startswith("opened") or (
        said.startswith("error OSError") and "commitlog" not in said
    ), said


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("damage", ["none", "tail"])
def test_a_killed_brokers_store(broker_copy, tmp_path, kind, damage):
    """Holes behind its fillers, a next file that is nothing but a hole, and no free block."""
    source = killed(broker_copy("broker-killed", tmp_path).root)
    if damage == "tail":
        record = list(oracle_store.walk_log(source / "commitlog"))[-1]
        flip(source, record.physical_offset + 95, 1 << 20)
    shutil.rmtree(source / "index")
    with full(tmp_path / "full", source, kind) as root:
        before = {path.name: path.stat().st_size for path in (root / "commitlog").iterdir()}
        said = opened(root)
        assert said.split()[0] in ("opened", "error")
        if said.startswith("error"):
            assert "No space" in said
        (root.parent / "rest").unlink()
        assert opened(root).startswith("opened")
        for name, size in before.items():
            assert (root / "commitlog" / name).stat().st_size == size


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_our_killed_store(tmp_path, kind):
    source = killed(make(tmp_path / "made"))
    count = len(records(source))
    with full(tmp_path / "full", source, kind) as root:
        assert_log_is_not_in_the_way(opened(root))
        (root.parent / "rest").unlink()
        assert opened(root) == f"opened {count}\n"
