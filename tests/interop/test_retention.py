"""Retention by ours and by the real 4.9.3: the same files, and each goes on after the other's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from interop.driver import Driver, copy
from rmqstore.config.store_config import StoreConfig

SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
)
QUEUES = 3
Compared = Callable[[str, int], None]


def files(path: Path) -> set[str]:
    """The files that retention is about."""
    return {
        str(file.relative_to(path))
        for part in ("commitlog", "consumequeue", "index")
        for file in (path / part).rglob("*")
        if file.is_file()
    }


def bounds(store: rmqstore.MessageStore) -> dict[tuple[str, int], tuple[int, int]]:
    """Of the queues that have a message."""
    return {
        (name, queue_id): (queue.min_offset, queue.max_offset)
        for name, topic in store.topics.items()
        for queue_id, queue in topic.items()
        if len(queue)
    }


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_the_real_one_goes_on_after_ours(
    real: Driver, tmp_path: Path, compared: Compared, end: str
) -> None:
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        for number in range(3000):
            if number == 1500:
                store.clock.advance(3600)
            store.put("t", b"%d" % number * 20, queue_id=number % QUEUES, keys=f"k{number}")
        before = store["t"][0][-1].store_timestamp
        done = store.delete_expired(before=before)
        assert done.files > 3
        store.flush()
        if end == "killed":
            path = copy(path, tmp_path / "killed")
    with rmqstore.open(path) as reader:
        ours = bounds(reader)
        kept = {m.physical_offset: m.body for m in reader.scan()}
    assert min(kept) == done.until
    opened = real.open(path, SIZES)
    assert opened["load"]
    assert opened["start"]
    assert opened["clean"] == (end == "closed")
    assert {place: ends for place, ends in real.minmax().items() if place in ours} == ours
    found = {each[0]["physical_offset"]: each for each in real.records(list(kept))}
    assert found.keys() == kept.keys()
    puts = real.append(
        [{"topic": "t", "queue_id": n % QUEUES, "body": b"theirs"} for n in range(30)]
    )
    assert {put.status for put in puts} == {"PUT_OK"}
    assert puts[0].queue_offset == ours["t", 0][1]
    real.shutdown()
    with rmqstore.open(path, "r+") as again:
        bodies = {m.physical_offset: m.body for m in again.scan()}
        assert bodies == kept | {put.physical_offset: b"theirs" for put in puts}
        assert {place: ends[0] for place, ends in bounds(again).items()} == {
            place: ends[0] for place, ends in ours.items()
        }
    compared("retention: records after ours", len(kept))


@pytest.mark.long
def test_ours_says_what_the_real_one_deletes(
    real: Driver, tmp_path: Path, compared: Compared
) -> None:
    path = tmp_path / "store"
    assert real.open(path, SIZES)["start"]
    for first in range(0, 3000, 500):
        real.append(
            [
                {
                    "topic": "t",
                    "queue_id": n % QUEUES,
                    "body": b"%d" % n * 20,
                    "properties": {"KEYS": f"k{n}"},
                }
                for n in range(first, first + 500)
            ]
        )
    real.shutdown()
    log = sorted((path / "commitlog").iterdir())
    assert len(log) > 7
    now = int(time.time())
    for number, file in enumerate(log):
        age = 10_000 - number * 100
        os.utime(file, (now - age, now - age))
    cuts = [10_000 - 50 - 100 * count for count in (0, 2, 5)]
    ours = copy(path, tmp_path / "ours")
    config = CONFIG.replace(retention_clock="mtime")
    checked = 0
    assert real.open(path, SIZES)["start"]
    with rmqstore.open(path) as beside:
        for seconds in cuts:
            limit = (now - seconds) * 1000
            said = rmqstore.open(ours, config=config)
            wanted = said.delete_expired(before=limit, dry_run=True)
            said.close()
            taken = real.clean(int(time.time() - now + seconds) * 1000)
            assert taken == wanted.files
            with rmqstore.open(ours, "r+", config=config) as store:
                assert store.delete_expired(before=limit) == wanted
            # A store that is open has made the next file ahead; its own does not count.
            theirs = {name for name in files(path) if name[:10] != "commitlog/"}
            assert {name for name in files(ours) if name[:10] != "commitlog/"} == theirs
            starts = [
                sorted(p.name for p in (each / "commitlog").iterdir())[0] for each in (path, ours)
            ]
            assert starts[0] == starts[1] == f"{wanted.until:020d}"
            with rmqstore.open(ours) as reader:
                mine = bounds(reader)
                live = {place: beside.queue_bounds(*place) for place in mine}
                assert {p: e for p, e in real.minmax().items() if p in mine} == mine == live
                for topic, queue_id in mine:
                    got = beside.get(topic, queue_id, 0, 10)
                    assert got.min_offset == mine[topic, queue_id][0]
                    checked += len(got.messages)
            for number, file in enumerate(log):  # opening ours for writing touches no file of old
                age = 10_000 - number * 100
                for each in (path, ours):
                    if (each / "commitlog" / file.name).exists():
                        os.utime(each / "commitlog" / file.name, (now - age, now - age))
            checked += len(theirs)
    real.shutdown()
    for directory in (path, ours):
        with rmqstore.open(directory, "r+", config=config) as store:
            assert store.recovery.clean
            assert store["t"][0].min_offset > 0
            assert len(store.query("t", "k2999")) == 1
            assert store.query("t", "k0") == []
    compared("retention: files and queues as theirs", checked)
