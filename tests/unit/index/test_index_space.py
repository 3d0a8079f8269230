"""S13: the index directory is a file system of its own, and full."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import rmqstore
from crash.checks import output_of
from support.damaged_store import killed
from support.mounts import disk, fill_up

PATIENCE = 60
COUNT = 300
OPEN = """
    import sys, time, rmqstore
    from pathlib import Path
    root, config = Path(sys.argv[1]), None
    if sys.argv[2] == "config":
        config = rmqstore.StoreConfig.small(max_hash_slot_num=400_000, max_index_num=200)
    with rmqstore.open(root, "r+", config=config) as store:
        assert store.stats()["dispatch_behind_bytes"] > 0
        for n in range(3):
            try:
                store.put("orders", b"refused", queue_id=n)
                raise SystemExit("a put was taken")
            except rmqstore.PutError as error:
                assert error.status == rmqstore.PutStatus.DISK_FULL, error
        assert [m.body for m in store.query("orders", "k7")] == [b"7"]
        (root / "index" / "rest").unlink()
        until = time.monotonic() + 60
        while store.stats()["dispatch_behind_bytes"] and time.monotonic() < until:
            time.sleep(0.01)
        places = [store.put("orders", b"next", queue_id=n).queue_offset for n in range(3)]
        print("opened", places)
"""


def sparse(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", "--sparse=always", f"{source}/.", target], check=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize(
    ("lost", "given"),
    [
        ("holes", "config"),
        ("holes", "told"),
        ("slots", "config"),
        ("short", "config"),
        ("long", "told"),
        ("all", "config"),
    ],
)
def test_no_space_to_mend_it(tmp_path, kind, lost, given):
    """The store opens, dispatch waits, and the files are mended when there is space."""
    root = tmp_path / "store"
    config = rmqstore.StoreConfig.small(max_hash_slot_num=400_000, max_index_num=200)
    with rmqstore.open(root, "a", config=config) as store:
        for n in range(COUNT):
            store.put("orders", b"%d" % n, queue_id=n % 3, keys=f"k{n}", uniq_key=False)
    killed(root)
    index = root / "index"
    files = sorted(index.iterdir())
    assert len(files) == 2
    if lost == "slots":
        for path in files:
            with path.open("r+b") as file:
                file.seek(40)
                file.write(bytes(1_600_000))
    elif lost == "short":
        with files[0].open("r+b") as file:
            file.truncate(800_000)
    elif lost == "long":
        with files[1].open("ab") as file:
            file.write(b"x")
    elif lost == "all":
        for path in files:
            path.unlink()
    aside = tmp_path / "aside"
    shutil.move(index, aside)
    with disk(index, kind, 12):
        sparse(aside, index)
        if lost != "all":
            assert files[0].stat().st_blocks * 512 < files[0].stat().st_size
        fill_up(index)
        assert output_of(OPEN, root, given) == f"opened {[COUNT // 3] * 3}\n"
        for mode in ("r", "r+"):
            with rmqstore.open(root, mode, config=config if given == "config" else None) as store:
                for n in range(3):
                    expected = [b"%d" % i for i in range(n, COUNT, 3)]
                    assert [m.body for m in store["orders"][n]] == [*expected, b"next"]
                for n in range(COUNT):
                    assert [m.body for m in store.query("orders", f"k{n}", index_only=True)] == [
                        b"%d" % n
                    ]


def test_a_page_of_which_one_block_is_left(tmp_path):
    """Where blocks are smaller than pages, a page is written only if it has all of its blocks."""
    config = rmqstore.StoreConfig.small(max_hash_slot_num=500, max_index_num=8000)
    for kibibytes in range(64, 80, 2):
        root = tmp_path / str(kibibytes)
        index = root / "index"
        index.mkdir(parents=True)
        with disk(index, "ext4", 1):
            rest = fill_up(index)
            os.truncate(rest, rest.stat().st_size - (kibibytes << 10))
            acknowledged = 0
            with rmqstore.open(root, "a", config=config) as store:
                with pytest.raises(rmqstore.PutError) as raised:  # noqa: PT012 - one of many
                    until = time.monotonic() + PATIENCE
                    while time.monotonic() < until:
                        store.put("orders", b"", queue_id=0, keys="k", uniq_key=False)
                        acknowledged += 1
                        if acknowledged > 8000:
                            time.sleep(0.001)  # dispatch has yet to meet the full disk
                assert raised.value.status == rmqstore.PutStatus.DISK_FULL, raised.value
                rest.unlink()
                until = time.monotonic() + PATIENCE
                while store.stats()["dispatch_behind_bytes"] and time.monotonic() < until:
                    time.sleep(0.01)
                assert len(store["orders"][0]) == acknowledged
                assert len(store.query("orders", "k")) == acknowledged
