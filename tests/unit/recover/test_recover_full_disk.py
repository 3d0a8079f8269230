"""Opening a killed store on a full disk: an error or a store, never the death of the process.

On tmpfs even the reading of a hole through a mapping asks for a block. Only root can mount: then
and only then these run.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqstore
from crash.checks import output_of
from support import oracle_store
from support.damaged_store import flip, killed, make, records
from support.mounts import disk, fill_up

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
    with disk(target, kind, 48):
        root = target / "store"
        subprocess.run(["cp", "-a", "--sparse=always", source, root], check=True)
        fill_up(target)
        yield root


def opened(root: Path) -> str:
    return output_of(OPEN, root)


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_our_killed_store(tmp_path, kind):
    source = killed(make(tmp_path / "made"))
    count = len(records(source))
    with full(tmp_path / "full", source, kind) as root:
        assert opened(root).startswith("opened")  # queues and index may wait for space
        (root.parent / "rest").unlink()
        assert opened(root) == f"opened {count}\n"


QUEUES = 3
COUNT = 3000
GO_ON = """
    import sys, time, rmqstore
    from pathlib import Path
    root = Path(sys.argv[1])
    with rmqstore.open(root, "r+") as store:
        assert store.stats()["dispatch_behind_bytes"] > 0
        for n in range(3):
            try:
                store.put("orders", b"refused", queue_id=n)
                raise SystemExit("a put was taken")
            except rmqstore.PutError as error:
                assert error.status == rmqstore.PutStatus.DISK_FULL, error
        (root / "consumequeue" / "rest").unlink()
        until = time.monotonic() + 60
        while store.stats()["dispatch_behind_bytes"] and time.monotonic() < until:
            time.sleep(0.01)
        places = [store.put("orders", b"next", queue_id=n).queue_offset for n in range(3)]
        print("opened", places)
"""


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("lost", ["all", "tail"])
def test_no_space_for_queues(tmp_path, kind, lost):
    """The store opens, dispatch waits, and goes on by itself: nothing is missing, nothing twice."""
    root = tmp_path / "store"
    config = rmqstore.StoreConfig.small(
        mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=8000
    )
    with rmqstore.open(root, "a", config=config) as store:
        for n in range(COUNT):
            store.put("orders", b"%d" % n, queue_id=n % QUEUES)
    killed(root)
    mount = root / "consumequeue"
    aside = tmp_path / "aside"
    mount.rename(aside)
    mount.mkdir()
    with disk(mount, kind, 1):
        if lost == "tail":
            shutil.copytree(aside, mount, dirs_exist_ok=True)
            for queue_id in range(QUEUES):
                files = sorted((mount / "orders" / str(queue_id)).iterdir())
                for file in files[1:]:
                    file.unlink()
        fill_up(mount)
        assert output_of(GO_ON, root) == f"opened {[COUNT // QUEUES] * QUEUES}\n"
        for mode in ("r", "r+"):
            with rmqstore.open(root, mode) as store:
                for queue_id in range(QUEUES):
                    expected = [b"%d" % n for n in range(queue_id, COUNT, QUEUES)]
                    assert [m.body for m in store["orders"][queue_id]] == [*expected, b"next"]
