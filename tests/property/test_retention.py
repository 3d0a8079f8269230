"""Retention against a model: random puts, deletions, holders of messages, and reopening."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import StoreConfig

pytestmark = pytest.mark.pure

FILE = 4096
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=10,
    max_index_num=40,
)

puts = st.tuples(
    st.just("put"),
    st.integers(1, 30),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.integers(0, 500),
)
steps = st.lists(
    st.one_of(
        puts,
        puts,
        st.tuples(st.just("delete"), st.integers(0, 20_000)),
        st.tuples(st.just("advance"), st.integers(0, 10)),
        st.tuples(st.just("hold"), st.integers(0, 1000)),
        st.tuples(st.just("let go"), st.booleans()),
        st.just(("reopen",)),
    ),
    max_size=25,
)


class Model:
    """The store as lists: each message with its place, size and time."""

    def __init__(self) -> None:
        self.messages: list[
            tuple[int, str, int, int, int, bytes]
        ] = []  # (at, topic, q, o, time, b)
        self.next: dict[tuple[str, int], int] = {}

    def put(self, done: rmqstore.PutResult, topic: str, queue_id: int, body: bytes) -> None:
        offset = self.next.get((topic, queue_id), 0)
        assert done.queue_offset == offset
        self.next[topic, queue_id] = offset + 1
        self.messages.append(
            (done.physical_offset, topic, queue_id, offset, done.store_timestamp, body)
        )

    def delete(self, before: int) -> tuple[int, int]:
        """Delete whole files from the front; how many files and messages."""
        if not self.messages:
            return 0, 0
        newest = self.messages[-1][0] // FILE
        first = self.messages[0][0] // FILE
        file = first
        while file < newest:
            times = [each[4] for each in self.messages if each[0] // FILE == file]
            if max(times) >= before:
                break
            file += 1
        count = len(self.messages)
        self.messages = [each for each in self.messages if each[0] // FILE >= file]
        return file - first, count - len(self.messages)

    def check(self, store: rmqstore.MessageStore) -> None:
        assert [(m.physical_offset, m.body) for m in store.scan()] == [
            (each[0], each[5]) for each in self.messages
        ]
        for (topic, queue_id), stop in self.next.items():
            here = [each for each in self.messages if each[1:3] == (topic, queue_id)]
            queue = store[topic][queue_id]
            assert queue.max_offset == stop
            assert queue.min_offset == (here[0][3] if here else stop)
            assert [(m.queue_offset, m.body) for m in queue] == [
                (each[3], each[5]) for each in here
            ]
            found = store.query(topic, f"q{queue_id}")
            assert [m.physical_offset for m in found] == [each[0] for each in reversed(here)]


@given(steps)
def test_like_the_model(actions: list[tuple]) -> None:
    model = Model()
    held: list[tuple[rmqstore.Message, bytes]] = []
    with tempfile.TemporaryDirectory() as directory:
        store = rmqstore.open(Path(directory, "store"), "a", config=CONFIG)
        shift = 0
        try:
            for action, *rest in actions:
                if action == "put":
                    count, topic, queue_id, size = rest
                    for _ in range(count):
                        body = b"%d." % len(model.messages) + b"x" * size
                        done = store.put(topic, body, queue_id=queue_id, keys=f"q{queue_id}")
                        model.put(done, topic, queue_id, body)
                elif action == "advance":
                    store.clock.advance(rest[0])
                    shift += rest[0]
                elif action == "delete":
                    before = store.clock.now() - rest[0]
                    dry = store.delete_expired(before=before, dry_run=True)
                    done = store.delete_expired(before=before)
                    assert done == dry
                    assert (done.files, done.messages) == model.delete(before)
                elif action == "hold" and model.messages:
                    at, *_, body = model.messages[rest[0] % len(model.messages)]
                    held.append((store.at(at), body))
                elif action == "let go" and held:
                    if rest[0]:
                        held[0][0].detach()
                    else:
                        held.pop()
                elif action == "reopen":
                    store.close()
                    store = rmqstore.open(Path(directory, "store"), "r+", config=CONFIG)
                    store.clock.advance(shift)
                    assert store.recovery.clean
                assert all(message.body == body for message, body in held)
            model.check(store)
            with rmqstore.open(Path(directory, "store")) as reader:
                model.check(reader)
        finally:
            store.close()
        assert all(message.body == body for message, body in held)
