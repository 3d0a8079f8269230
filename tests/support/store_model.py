"""A plain model of a store after a sequence of writes, and messages to draw."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from support import oracle
from support.strategies import user_properties, words

TOPICS = ["Topic1", "orders", "%RETRY%a-b_c|d"]
STORE_HOST = "127.0.0.1:10911"  # of a StoreConfig by default
UNIQ_KEY = re.compile(r"[0-9A-F]{32}")


@dataclass(frozen=True)
class Draft:
    """One message as a user writes it."""

    topic: str
    queue_id: int
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    uniq_key: bool | str = False
    flag: int = 0

    def stored_properties(self, uniq_key: str | None = None) -> dict[str, str]:
        """Every property in the order in which it is stored."""
        stored = dict(self.properties)
        if self.keys:
            stored["KEYS"] = " ".join(self.keys)
        if self.tags:
            stored["TAGS"] = self.tags
        if self.uniq_key is not False:
            stored["UNIQ_KEY"] = uniq_key or str(self.uniq_key)
        return stored

    @property
    def size(self) -> int:
        properties = oracle.encode_properties(self.stored_properties("0" * 32))
        if isinstance(self.uniq_key, str):
            properties = oracle.encode_properties(self.stored_properties(self.uniq_key))
        return oracle.RECORD_MIN_SIZE + len(self.body) + len(self.topic) + len(properties)

    def matches(self, record: oracle.Record, queue_offset: int) -> None:
        """Assert that a record is this message, down to the properties' bytes."""
        assert (record.topic, record.queue_id) == (self.topic, self.queue_id)
        assert (record.queue_offset, record.store_size) == (queue_offset, self.size)
        assert (record.raw_body, record.flag, record.sys_flag) == (self.body, self.flag, 0)
        expected = oracle.encode_properties(self.stored_properties(record.uniq_key))
        assert record.raw_properties == expected
        if self.uniq_key is True:
            assert UNIQ_KEY.fullmatch(record.uniq_key)
        assert (record.born_host, record.store_host) == (STORE_HOST, STORE_HOST)
        assert (record.reconsume_times, record.prepared_transaction_offset) == (0, 0)
        assert 0 < record.born_timestamp <= record.store_timestamp + 1000


bodies = st.binary(max_size=40) | st.integers(0, 400).map(lambda size: b"z" * size)
key_lists = st.lists(words, max_size=3).map(tuple)
uniq_keys = st.booleans() | words


@st.composite
def drafts(draw, *, topic: str | None = None, queue_id: int | None = None):
    return Draft(
        draw(st.sampled_from(TOPICS)) if topic is None else topic,
        draw(st.integers(0, 3)) if queue_id is None else queue_id,
        draw(bodies),
        draw(st.none() | words),
        draw(key_lists),
        draw(user_properties),
        draw(uniq_keys),
    )


@st.composite
def batches(draw, max_size: int = 4):
    """Messages of one topic and queue, all of which have a unique key or none."""
    topic, queue_id = draw(st.sampled_from(TOPICS)), draw(st.integers(0, 3))
    some = draw(st.lists(drafts(topic=topic, queue_id=queue_id), min_size=1, max_size=max_size))
    return [_with_uniq_key(draft, some[0].uniq_key is not False) for draft in some]


@st.composite
def tables(draw):
    """Rows of any topic and queue for put_many."""
    some = draw(st.lists(drafts(), min_size=1, max_size=8))
    return [_with_uniq_key(draft, some[0].uniq_key is not False) for draft in some]


def _with_uniq_key(draft: Draft, uniq_key: bool) -> Draft:
    return Draft(**(vars(draft) | {"uniq_key": uniq_key}))


def columns(rows: list[Draft]) -> dict:
    """Rows as the arguments of put_many: a column each, in which a key list is one string."""
    return {
        "topic": [row.topic for row in rows],
        "bodies": [row.body for row in rows],
        "queue_id": [row.queue_id for row in rows],
        "tags": [row.tags for row in rows],
        "keys": [" ".join(row.keys) or None for row in rows],
        "properties": [row.properties for row in rows],
        "uniq_key": rows[0].uniq_key,
    }


class LogModel:
    """Where the messages of a log with files of ``file_size`` bytes lie."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.end = 0
        self.log: list[tuple[int, Draft, int]] = []  # physical offset, message, queue offset
        self.queues: dict[tuple[str, int], list[tuple[int, Draft]]] = {}

    @property
    def room(self) -> int:
        return self.file_size - self.end % self.file_size

    def put(self, *group: Draft) -> list[tuple[int, int]]:
        """Add messages that share a file; return their (physical offset, queue offset)."""
        if sum(draft.size for draft in group) + 8 > self.room:
            self.end += self.room
        placed = []
        for draft in group:
            queue = self.queues.setdefault((draft.topic, draft.queue_id), [])
            placed.append((self.end, len(queue)))
            self.log.append((self.end, draft, len(queue)))
            queue.append((self.end, draft))
            self.end += draft.size
        return placed

    def put_each(self, rows: Iterable[Draft]) -> list[tuple[int, int]]:
        return [place for row in rows for place in self.put(row)]

    def length(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def with_key(self, topic: str, key: str) -> list[int]:
        """The physical offsets of the messages with a key that the writer gave, newest first."""
        return [
            physical_offset
            for physical_offset, draft, _ in reversed(self.log)
            if draft.topic == topic and (key in draft.keys or key == draft.uniq_key)
        ]

    def assert_holds(self, by_queue: dict[tuple[str, int], list[oracle.Record]]) -> None:
        """Assert that the records of a checked store are what was put, no more and no less."""
        found = {queue: records for queue, records in by_queue.items() if records}
        assert found.keys() == self.queues.keys()
        for queue, records in found.items():
            expected = self.queues[queue]
            assert [record.physical_offset for record in records] == [at for at, _ in expected]
            for number, (record, (_, draft)) in enumerate(zip(records, expected, strict=True)):
                draft.matches(record, number)
