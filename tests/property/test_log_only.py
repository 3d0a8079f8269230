"""A store of which only the log survived, damaged anywhere: all that is good is found.

What is good is known from the log as it was: a record of which no byte changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rmqstore
from support import oracle, oracle_store

LOG_SIZE = 16 << 10
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
    record_checksum=True,  # so that no change of a record goes unnoticed
)
COUNT = 150
TOPICS = ("orders", "payments", "rare")


class Log:
    """A log as it was written: its bytes by file, its records, and where they end."""

    def __init__(self, files: dict[int, bytes], records: list[oracle.Record]) -> None:
        self.files = files
        self.records = records
        self.end = records[-1].physical_offset + records[-1].store_size


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Log:
    root = tmp_path_factory.mktemp("written") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            topic = TOPICS[2] if number % 31 == 7 else TOPICS[number % 2]
            body = b"%03d" % number * (20 + number * 37 % 300)
            keys = [f"k{number}", f"each{number % 5}"]
            store.put(topic, body, queue_id=number % 3, keys=keys, tags=f"t{number % 3}")
    files = {start: path.read_bytes() for start, path in oracle_store.log_files(root / "commitlog")}
    records = list(oracle_store.walk_log(root / "commitlog"))
    assert len(records) == COUNT
    assert len(files) > 5
    return Log(files, records)


#: Bytes to be written over the log: where, and what so many times.
PLACES = st.integers(0, 110_000) | st.just(0)
WOUNDS = st.one_of(
    st.tuples(PLACES, st.just(b"\0"), st.integers(1, 3 * LOG_SIZE)),
    st.tuples(PLACES.map(lambda at: at - at % 4096), st.just(b"\0"), st.just(4096)),
    st.tuples(PLACES, st.binary(min_size=1, max_size=64), st.integers(1, 60)),
    st.tuples(PLACES, st.binary(min_size=1, max_size=1), st.just(1)),
)


def hurt(log: Log, hits: list[tuple[int, bytes, int]]) -> dict[int, bytes]:
    files = {start: bytearray(data) for start, data in log.files.items()}
    for at, pattern, times in hits:
        place = at % log.end
        data = (pattern * times)[: log.end - place]
        while data:
            inside = place % LOG_SIZE
            part = data[: LOG_SIZE - inside]
            files[place - inside][inside : inside + len(part)] = part
            place, data = place + len(part), data[len(part) :]
    return {start: bytes(data) for start, data in files.items()}


class Left:
    """What the damage left: records that are good, and those of which nobody can say."""

    def __init__(self, log: Log, files: dict[int, bytes]) -> None:
        self.log = log
        self.good: list[oracle.Record] = []
        self.doubtful: set[int] = set()
        for record in log.records:
            start = record.physical_offset - record.physical_offset % LOG_SIZE
            place = record.physical_offset - start
            part = slice(place, place + record.store_size)
            if files.get(start, b"")[part] == log.files[start][part]:
                self.good.append(record)
            elif start in files and self._checks(record, files[start], place):
                self.doubtful.add(record.physical_offset)
        self.offsets = [record.physical_offset for record in self.good]

    @staticmethod
    def _checks(record: oracle.Record, data: bytes, at: int) -> bool:
        """Whether a changed record still is one: its checksum is gone, with what that covers."""
        try:
            left = oracle.decode_record(data, at)
        except oracle.OracleError:
            return False
        places = [(one.queue_id, one.queue_offset, one.topic) for one in (left, record)]
        assume(places[0] == places[1])
        return left.physical_offset == record.physical_offset

    def without_doubtful(self, messages: Iterable[rmqstore.Message]) -> list[int]:
        found = (message.physical_offset for message in messages)
        return [offset for offset in found if offset not in self.doubtful]

    def lost_at(self, error: rmqstore.StoreCorruptError) -> int:
        """Where the record that an error names begins; it is one that is lost."""
        assert error.offset not in self.offsets
        assert any(record.physical_offset == error.offset for record in self.log.records)
        return error.offset


def queues_of(records: list[oracle.Record]) -> dict[tuple[str, int], dict[int, int]]:
    found: dict[tuple[str, int], dict[int, int]] = {}
    for record in records:
        queue = found.setdefault((record.topic, record.queue_id), {})
        queue[record.queue_offset] = record.physical_offset
    return found


def read_queues(
    store: rmqstore.MessageStore, left: Left
) -> tuple[dict[tuple[str, int], dict[int, int]], set[int]]:
    """What the queues have, and the records whose reading tells that they are damaged."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    told = set()
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            for at in range(queue.min_offset, queue.max_offset):
                try:
                    message = queue[at]
                except rmqstore.StoreCorruptError as error:
                    told.add(left.lost_at(error))
                except LookupError:
                    continue
                else:
                    assert message.queue_offset == at
                    if message.physical_offset not in left.doubtful:
                        found.setdefault((name, queue_id), {})[at] = message.physical_offset
    return found, told


@given(
    hits=st.lists(WOUNDS, min_size=1, max_size=4),
    gone=st.none() | st.integers(1, 4),
    killed=st.booleans(),
)
def test_all_that_is_good_is_found(
    written: Log,
    tmp_path_factory: pytest.TempPathFactory,
    hits: list[tuple[int, bytes, int]],
    gone: int | None,
    killed: bool,
) -> None:
    root = tmp_path_factory.mktemp("log-only") / "store"
    files = hurt(written, hits)
    missing = None if gone is None else gone * LOG_SIZE
    if missing is not None:
        del files[missing]
    (root / "commitlog").mkdir(parents=True)
    try:
        for start, contents in files.items():
            (root / "commitlog" / f"{start:020d}").write_bytes(contents)
        if killed:
            (root / "abort").touch()
        check(root, written, files, missing)
    finally:
        shutil.rmtree(root)


def check(root: Path, log: Log, files: dict[int, bytes], missing: int | None) -> None:
    left = Left(log, files)
    with rmqstore.open(root) as store:
        recovery = store.recovery
        assert recovery.clean == (not (root / "abort").exists())
        last = max(left.offsets, default=-1)
        lacks = missing is not None and missing < last
        assert recovery.damaged_files == ((f"missing {missing:020d}",) if lacks else ())
        ends = [r.physical_offset + r.store_size for r in left.good]
        assert recovery.log_end >= max(ends, default=0)
        queues, told = read_queues(store, left)
        assert queues == queues_of(left.good)
        # Each lost record is told of, by opening or by reading its place; no good one is.
        for record in log.records:
            at = record.physical_offset
            known = any(one.start <= at < one.stop for one in recovery.ranges)
            if at in left.offsets:
                assert not known
            elif at < last and at - at % LOG_SIZE in files and at not in left.doubtful:
                assert known or at in told
        check_searches(store, left)


def check_searches(store: rmqstore.MessageStore, left: Left) -> None:
    passed = store.scan(on_corruption="skip", on_removed="skip")
    assert left.without_doubtful(passed) == left.offsets
    for topic in TOPICS:
        of_topic = [record for record in left.good if record.topic == topic]
        try:
            scanned = left.without_doubtful(store.scan(topic))
        except rmqstore.StoreCorruptError as error:
            left.lost_at(error)
        else:
            assert scanned == [record.physical_offset for record in of_topic]
        for key in [f"each{number}" for number in range(5)]:
            try:
                found = left.without_doubtful(store.query(topic, key))
            except rmqstore.StoreCorruptError as error:  # it has the key, as far as it is there
                left.lost_at(error)
                good = store.scan(topic, keys=[key], on_corruption="skip", on_removed="skip")
                found = left.without_doubtful(good)[::-1]
            hits = [r.physical_offset for r in of_topic if key in oracle.index_keys(r)]
            assert found == hits[::-1]
    for record in left.good[:: max(1, len(left.good) // 10)]:
        unique = record.properties["UNIQ_KEY"]
        assert store.message(unique).physical_offset == record.physical_offset
