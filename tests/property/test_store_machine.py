"""Any sequence of writes, reads, flushes and reopenings against a plain model."""

from __future__ import annotations

import shutil
from bisect import bisect_left, bisect_right
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import rmqstore
from rmqstore import GetStatus
from support import oracle_store
from support.store_model import TOPICS, LogModel, batches, columns, drafts, tables
from support.strategies import words

pytestmark = pytest.mark.property

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=6000,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=7,
    max_index_num=25,
)
# a time is drawn as a message and a distance in ms: draws must not depend on the clock
places = st.integers(0, 100)
distances = st.sampled_from([-(10**12), -1, 0, 1, 1000])
queue_names = st.tuples(st.sampled_from([*TOPICS, "nobody"]), st.integers(0, 3))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(mkdtemp(prefix="rmqstore-"))
        self.model = LogModel(CONFIG.mapped_file_size_commit_log)
        self.store = None
        self.mode = "a"
        self.created = set()  # topics that have had a write

    @initialize()
    def create(self):
        self.store = rmqstore.open(self.root, "a", config=CONFIG)

    def teardown(self):
        try:
            if self.store is not None:
                self.store.close()
                slot_num = CONFIG.max_hash_slot_num
                self.model.assert_holds(oracle_store.check_store(self.root, slot_num=slot_num))
                assert oracle_store.is_clean(self.root)
        finally:
            shutil.rmtree(self.root)

    @property
    def writable(self):
        return self.mode != "r"

    def known(self, topic, queue_id):
        return self.model.queues.get((topic, queue_id), [])

    # Writes

    @precondition(lambda self: self.writable)
    @rule(draft=drafts())
    def put(self, draft):
        (physical_offset, queue_offset), *_ = self.model.put(draft)
        done = self.store.put(
            draft.topic,
            draft.body,
            queue_id=draft.queue_id,
            tags=draft.tags,
            keys=draft.keys or None,
            properties=draft.properties or None,
            uniq_key=draft.uniq_key,
        )
        self.created.add(draft.topic)
        assert (done.physical_offset, done.queue_offset) == (physical_offset, queue_offset)
        assert self.store.at(physical_offset).body == draft.body

    @precondition(lambda self: self.writable)
    @rule(rows=batches())
    def put_batch(self, rows):
        physical_offset, queue_offset = self.model.put(*rows)[0]
        arguments = columns(rows) | {"topic": rows[0].topic, "queue_id": rows[0].queue_id}
        done = self.store.put_batch(**arguments)
        self.created.add(rows[0].topic)
        assert (done.physical_offset, done.queue_offset) == (physical_offset, queue_offset)

    @precondition(lambda self: self.writable)
    @rule(rows=tables())
    def put_many(self, rows):
        placed = self.model.put_each(rows)
        done = self.store.put_many(**columns(rows))
        self.created.update(row.topic for row in rows)
        found = zip(done.physical_offset.tolist(), done.queue_offset.tolist(), strict=True)
        assert list(found) == placed

    @precondition(lambda self: not self.writable)
    @rule(draft=drafts())
    def write_to_a_read_only_store(self, draft):
        with pytest.raises(rmqstore.ReadOnlyStoreError):
            self.store.put(draft.topic, draft.body, queue_id=draft.queue_id)
        with pytest.raises(rmqstore.ReadOnlyStoreError):
            self.store.put_many(draft.topic, [draft.body], queue_id=draft.queue_id)

    # Reads

    @rule(name=queue_names, offset=st.integers(0, 30), max_messages=st.integers(1, 10))
    def get(self, name, offset, max_messages):
        known = self.known(*name)
        found = self.store.get(*name, offset, max_messages)
        bodies = [message.body for message in found.messages]
        if not known:
            expected = (GetStatus.NO_MESSAGE_IN_QUEUE, 0, [])
        elif offset < len(known):
            some = known[offset : offset + max_messages]
            expected = (GetStatus.FOUND, offset + len(some), [draft.body for _, draft in some])
        elif offset == len(known):
            expected = (GetStatus.OFFSET_OVERFLOW_ONE, offset, [])
        else:
            expected = (GetStatus.OFFSET_OVERFLOW_BADLY, 0, [])
        assert (found.status, found.next_offset, bodies) == expected
        if known:
            assert (found.min_offset, found.max_offset) == (0, len(known))

    @rule(name=queue_names, data=st.data())
    def get_by_tag(self, name, data):
        known = self.known(*name)
        tags = [draft.tags for _, draft in known if draft.tags]
        wanted = data.draw(st.sampled_from(tags) if tags else words)
        if not known:
            return
        found = self.store.get(*name, 0, len(known), tags=wanted)
        expected = [at for at, draft in known if draft.tags == wanted]
        assert [message.physical_offset for message in found.messages] == expected
        if expected:
            assert found.status == GetStatus.FOUND
        else:
            assert found.status == GetStatus.NO_MATCHED_MESSAGE
        assert found.next_offset == len(known)

    @rule(name=queue_names)
    def go_through_a_queue(self, name):
        topic, queue_id = name
        known = self.known(*name)
        if topic not in self.created:
            with pytest.raises(rmqstore.TopicNotFoundError):
                self.store[topic]
            return
        if not known:
            return
        queue = self.store[topic][queue_id]
        places = [at for at, _ in known]
        assert len(queue) == queue.max_offset == len(known)
        assert queue.min_offset == 0
        assert [message.physical_offset for message in queue] == places
        assert [message.physical_offset for message in reversed(queue)] == places[::-1]
        assert queue[-1].physical_offset == queue[len(known) - 1].physical_offset == places[-1]
        assert [message.physical_offset for message in queue[1:3]] == places[1:3]
        with pytest.raises(IndexError):
            queue[len(known)]

    @rule(topic=st.sampled_from(TOPICS), data=st.data())
    def query(self, topic, data):
        keys = {key for _, draft, _ in self.model.log for key in draft.keys}
        keys |= {draft.uniq_key for _, draft, _ in self.model.log if draft.uniq_key is not True}
        keys.discard(False)
        key = data.draw((st.sampled_from(sorted(keys)) if keys else st.nothing()) | words)
        expected = self.model.with_key(topic, key)
        found = [message.physical_offset for message in self.store.query(topic, key)]
        assert found == expected
        limited = self.store.query(topic, key, max_num=2)
        assert [message.physical_offset for message in limited] == expected[:2]

    @rule(name=queue_names, place=places, distance=distances)
    def offset_at(self, name, place, distance):
        known = self.known(*name)
        if not known:
            return
        queue = self.store[name[0]][name[1]]
        times = [message.store_timestamp for message in queue]
        assert times == sorted(times)  # a clock set back, too: ours never go back
        time = times[place % len(times)] + distance
        assert queue.offset_at(time) == bisect_left(times, time)
        assert queue.offset_at(time, "upper") == bisect_right(times, time) - 1

    @rule(places=st.tuples(places, places), distances=st.tuples(distances, distances))
    def scan_a_range_of_times(self, places, distances):
        times = [message.store_timestamp for message in self.store.scan()]
        if not times:
            return
        since, until = (
            times[place % len(times)] + distance
            for place, distance in zip(places, distances, strict=True)
        )
        found = [one.physical_offset for one in self.store.scan(since=since, until=until)]
        logged = [physical_offset for physical_offset, _, _ in self.model.log]
        assert found == [
            at for at, time in zip(logged, times, strict=True) if since <= time < until
        ]

    # The rest

    @precondition(lambda self: self.writable)
    @rule(seconds=st.sampled_from([1, 3600, -3600, -86_400]))
    def the_clock_is_set(self, seconds):
        self.store.clock.advance(seconds)

    @precondition(lambda self: self.writable)
    @rule()
    def flush(self):
        self.store.flush()

    @rule(mode=st.sampled_from(["r", "r+", "a"]))
    def reopen(self, mode):
        self.store.close()
        self.store.close()
        with pytest.raises(rmqstore.StoreClosedError):
            self.store.get(TOPICS[0], 0, 0)
        if not self.model.log:
            mode = "a"
        self.mode = mode
        self.store = rmqstore.open(self.root, mode, config=CONFIG)

    @precondition(lambda self: self.writable and self.model.log)
    @rule()
    def read_beside_the_owner(self):
        with rmqstore.open(self.root, "r", config=CONFIG) as reader:
            for name, known in self.model.queues.items():
                places = [message.physical_offset for message in reader.get(*name, 0, 1000)]
                assert places == [at for at, _ in known]
            physical_offset, draft, _ = self.model.log[-1]
            assert reader.at(physical_offset).body == draft.body

    @precondition(lambda self: self.writable)
    @rule()
    def a_second_owner_is_refused(self):
        with pytest.raises(rmqstore.StoreLockedError):
            rmqstore.open(self.root, "r+", config=CONFIG)

    @invariant()
    def newest_is_there(self):
        if self.store is None or not self.model.log:
            return
        physical_offset, draft, queue_offset = self.model.log[-1]
        found = self.store.get(draft.topic, draft.queue_id, queue_offset, 1)
        assert [message.physical_offset for message in found.messages] == [physical_offset]


TestStoreMachine = StoreMachine.TestCase
