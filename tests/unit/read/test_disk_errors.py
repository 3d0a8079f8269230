"""A disk that answers EIO where a mapped file is read: an error that says where, and no death.

Once on a file system that answers so, where one can be mounted; and everywhere with pages of the
mapping replaced by some that no file has, for which the kernel raises SIGBUS just the same.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from crash.checks import SHORT, environment
from support.bad_disk import bad_disk
from support.bad_disk_reader import body_of

FILE_SIZE = 1 << 20
COUNT = 3000
PAGE = 4096
NEAR = 256 << 10  # what the kernel may ask for in one piece
PATIENCE = 120
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=100,
    max_index_num=1500,
)
KINDS = ["commitlog", "consumequeue", "index"]
EACH = ["get", "at", "item", "query", "locate_many"]
WHOLE = ["batches", "stream", "messages", "iteration", "query_many"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store, and where its records are: offset and size of each."""
    root = tmp_path_factory.mktemp("disk") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        bodies = [body_of(number) for number in range(COUNT)]
        keys = [f"k{number}" for number in range(COUNT)]
        store.put_many("T", bodies, queue_id=0, keys=keys)
    with rmqstore.open(root) as store:
        units = store["T"][0].units()
    return root, units["physical_offset"].tolist(), units["size"].tolist()


def bad_range(root: Path, kind: str) -> tuple[str, int, int]:
    """A file of that kind, neither the first nor the last, and pages of it."""
    if kind == "commitlog":
        return f"commitlog/{FILE_SIZE:020d}", 100 * PAGE, 110 * PAGE
    if kind == "consumequeue":
        return f"consumequeue/T/0/{20_000:020d}", 2 * PAGE, 3 * PAGE
    return f"index/{sorted((root / 'index').iterdir())[1].name}", 2 * PAGE, 4 * PAGE


def survivor(root: Path, where: tuple[str, int, int], places: list[int], **how: Any) -> Any:
    """What a program told that read it all, and that only its own signal ended."""
    chosen = {"root": str(root), "places": places, "bad": None, "fail": False, "step": 1, **how}
    chosen |= dict(zip(("file", "begin", "end"), where, strict=True))
    done = subprocess.run(
        [sys.executable, "-m", "support.bad_disk_reader", json.dumps(chosen)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout, (done.returncode, done.stderr[-3000:])
    assert done.returncode == -signal.SIGBUS, (done.returncode, done.stderr[-3000:])
    assert "Fatal Python error: Bus error" in done.stderr
    told = json.loads(done.stdout)
    print(where[0], told["counts"], len(told["errors"]), "errors, such as", told["errors"][:3])
    assert told["wrong"][:10] == []
    return told


def says_where(error: str, root: Path, bad: tuple[str, int, int]) -> bool:
    name, begin, end = bad
    offset = error.partition("offset ")[2].partition(":")[0]
    known = "OSError: [Errno 5]" in error or error.startswith("StoreCorruptError: ")
    return known and f"{root}/{name}" in error and begin <= int(offset) < end


def touched(number: int, filled: Any, bad: tuple[str, int, int], margin: int) -> bool:
    """Whether what a message needs of the bad file has bytes that are bad, or near such."""
    _, places, sizes = filled
    name, begin, end = bad
    start = int(name.rpartition("/")[2])
    low, size = places[number], sizes[number]
    if name.startswith("consumequeue"):
        low, size = number * 20, 20
    return start + begin - margin < low + size and low < start + end + margin


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_cannot_read_a_mapped_page(filled, tmp_path, kind):
    bad = bad_range(filled[0], kind)
    root = tmp_path / "disk"
    with bad_disk(filled[0], root) as list_of_bad:
        # A chain goes through bad pages again and again, and each time the disk is asked.
        step = 10 if SHORT or kind == "index" else 1
        told = survivor(root, bad, filled[1], bad=str(list_of_bad), step=step)
    assert told["errors"]
    for error in told["errors"]:
        assert says_where(error, root, bad), error
    failed = {tuple(each) for each in told["failed"]}
    if kind == "index":
        assert {call for call, _ in failed} <= {"query", "locate_many", "query_many"}
        return
    by_log = {"at", "query"} if kind == "consumequeue" else set()
    for number in range(0, COUNT, step):
        for call in ("get", "at", "item", "query"):
            if touched(number, filled, bad, 0) and call not in by_log:
                assert (call, number) in failed
            elif call in by_log or not touched(number, filled, bad, NEAR):
                assert (call, number) not in failed
    assert ("iteration", -1) in failed
    if kind == "commitlog":
        assert {(call, -1) for call in WHOLE} <= failed


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_page_that_only_its_mapping_has_lost(filled, kind):
    """What the mapping cannot give, the file still can."""
    root, places, _ = filled
    told = survivor(root, bad_range(root, kind), places)
    assert told["counts"].pop("pages replaced") == 1
    assert told["failed"] == []
    times = dict.fromkeys(WHOLE, 3) | dict.fromkeys(EACH, 1)
    assert told["counts"] == {call: count * COUNT for call, count in times.items()}


@pytest.mark.needs_debug_build
@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_page_that_the_file_cannot_give_either(filled, kind):
    root, places, _ = filled
    bad = bad_range(root, kind)
    told = survivor(root, bad, places, fail=True)
    assert told["counts"]["pages replaced"] == 1
    assert told["errors"]
    for error in told["errors"]:
        assert "OSError: [Errno 5]" in error, error
        assert f"{root}/" in error, error
        assert ", at offset " in error, error
    failed = {tuple(each) for each in told["failed"]}
    for number in range(COUNT if kind == "commitlog" else 0):
        bad_here = touched(number, filled, bad, 0)
        assert bad_here <= (("get", number) in failed)
