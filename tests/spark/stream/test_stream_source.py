"""The streaming source, driven as Spark drives it: each message once, in the order of its queue."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreNotFoundError, TopicNotFoundError
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.stream.offsets import DataLossError, OffsetError
from rmqstore.spark.stream.progress import StreamProgress
from rmqstore.spark.stream.source import StreamReader
from support.stream_model import FAST, Crash, Query, dispatched, fill, options

pytestmark = pytest.mark.spark


def expected(store: rmqstore.MessageStore) -> list[tuple[str, int, int, bytes]]:
    return sorted((m.topic, m.queue_id, m.queue_offset, m.body) for m in store.scan())


def check_all_once(query: Query, store: rmqstore.MessageStore) -> None:
    assert sorted(query.rows) == expected(store)
    place: dict[tuple[str, int], int] = {}
    for topic, queue_id, queue_offset, _ in query.rows:
        assert queue_offset == place.get((topic, queue_id), 0)
        place[topic, queue_id] = queue_offset + 1


def test_from_the_first_message_to_the_last(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 3, 7)
    query = Query(options(store, consumeFrom="first"))
    assert query.all() == 1
    fill(store, "orders", 2, 3)
    fill(store, "later", 1, 2)
    assert query.all() == 1
    check_all_once(query, store)


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, "orders", 2, 5)
    query = Query(options(store))
    query.offsets, query.done = [json.dumps(query.initial())], 1
    assert query.all() == 0
    store.put("orders", b"new", queue_id=1)
    store.put("orders", b"of a new queue", queue_id=7)
    store.put("later", b"of a new topic", queue_id=0)
    dispatched(store)
    assert query.all() == 1
    assert sorted(row[3] for row in query.rows) == [b"new", b"of a new queue", b"of a new topic"]


def test_where_it_begins(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 2)
    fill(store, "orders", 2, 5)
    middle = store["orders"][0][3].store_timestamp

    def begins(**more: str) -> dict[str, int]:
        found: dict[str, int] = Query(options(store, **more)).initial()["q"]["."]["orders"]
        return found

    assert begins() == begins(startingOffsets="latest") == {"0": 5, "1": 5}
    assert begins(consumeFrom="first") == {"0": 0, "1": 0}
    assert begins(consumeFrom='{"orders":{"0":2,"1":-1}}') == {"0": 2, "1": 5}
    by_time = begins(consumeFromTimestamp=str(middle), onNoTimestampMatch="last")
    assert by_time["0"] == store["orders"][0].offset_at(middle) <= 3


@pytest.mark.parametrize("seed", range(12))
def test_each_message_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    several = seed % 3 == 0
    with (
        rmqstore.open(tmp_path / "a", "a", config=StoreConfig.small()) as store,
        rmqstore.open(tmp_path / "b", "a", config=StoreConfig.small()) as other,
    ):
        store.put("t0", b"first", queue_id=0)
        other.put("t0", b"first of the other", queue_id=0)

        def chosen() -> dict[str, str]:
            paths = json.dumps([store.path, other.path])
            found = {"paths": paths} if several else {"path": store.path}
            found |= {"consumeFrom": "first", **FAST}
            if chance.random() < 0.5:
                found["maxMessagesPerTrigger"] = str(chance.choice([1, 3, 10, 50]))
            if chance.random() < 0.4:
                found["maxBytesPerTrigger"] = str(chance.choice([1, 300, 1000, 20_000]))
            if chance.random() < 0.2:
                found["minMessagesPerTrigger"] = "1"
            if chance.random() < 0.3:
                found["maxPartitionBytes"] = str(chance.choice([1024, 2000, 5000]))
            if chance.random() < 0.3:
                found["minPartitions"] = str(chance.choice([2, 5]))
            return found

        query = Query(chosen())
        for _ in range(120):
            action = chance.random()
            if action < 0.5:
                target = other if several and chance.random() < 0.5 else store
                topic = f"t{chance.randrange(4)}"
                for _ in range(chance.choice([1, 1, 5, 40])):
                    size = chance.choice([1, 10, 200])
                    queue_id = chance.randrange(6)
                    target.put(topic, chance.randbytes(size), queue_id=queue_id, wait=False)
            elif action < 0.6:
                query.start(chosen())
            elif action < 0.65:
                query.start(chosen(), available_now=True)
                query.all()
                query.start(chosen())
            elif action < 0.8:
                try:
                    query.trigger(crash_at=chance.choice(["planned", "read", "written"]))
                except Crash:
                    query.start(chosen())
            else:
                query.trigger(limit=ReadAllAvailable() if chance.random() < 0.2 else None)
        dispatched(store)
        dispatched(other)
        query.start(chosen() | {"maxMessagesPerTrigger": "200", "maxBytesPerTrigger": "1m"})
        query.all()
        rows = Counter(query.rows)
        stores = [store, other] if several else [store]
        assert rows == Counter(row for each in stores for row in expected(each))
        if not several:
            check_all_once(query, store)


def test_a_first_batch_that_failed_is_run_again_as_it_was(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 1, 8)
    query = Query(options(store, consumeFrom='{"orders":{"0":3}}'))
    with pytest.raises(Crash):
        query.trigger(crash_at="planned")
    fill(store, "orders", 1, 4)
    # A new query would begin elsewhere: the batch does not ask where.
    query.start(options(store, consumeFrom="last"))
    assert query.initial()["q"]["."]["orders"]["0"] == 12
    assert query.all() == 2
    assert [row[2] for row in query.batches[0]] == [3, 4, 5, 6, 7]
    assert [row[2] for row in query.batches[1]] == [8, 9, 10, 11]


def test_an_idle_stream_looks_at_no_queue(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.spark.stream.heads._SETTLE_SECONDS", 0.05)
    fill(store, "orders", 40, 1)
    query = Query({"path": store.path, "consumeFrom": "first"})
    query.all()
    looked: list[str] = []
    bounds = rmqstore.MessageStore.queue_bounds

    def counted(self: rmqstore.MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
        looked.append(topic)
        return bounds(self, topic, queue_id)

    monkeypatch.setattr(rmqstore.MessageStore, "queue_bounds", counted)
    until = time.monotonic() + 60
    idle = 0
    while idle < 20:
        assert time.monotonic() < until
        looked.clear()
        assert not query.trigger()
        idle = 0 if looked else idle + 1
        time.sleep(0.01)
    store.put("orders", b"new", queue_id=17)
    dispatched(store)
    assert query.trigger()
    assert len(looked) >= 40
    assert query.batches[1] == [("orders", 17, 1, b"new")]


def test_nothing_new_is_the_very_same_offset(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 2, 2)
    query = Query(options(store, consumeFrom="first"))
    query.all()
    end = json.loads(query.offsets[-1])
    assert query.reader.latestOffset(end, ReadAllAvailable()) is end
    assert query.reader.partitions(end, end) == []
    assert list(query.reader.read(None)) == []  # type: ignore[arg-type]


def test_what_is_there_now_and_nothing_else(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 2, 10)
    query = Query(
        options(store, consumeFrom="first", maxMessagesPerTrigger="3"), available_now=True
    )
    query.trigger()
    fill(store, "orders", 3, 10)
    fill(store, "later", 1, 1)
    query.all()
    assert len(query.rows) == 20
    query.start(options(store, consumeFrom="first"), available_now=True)
    query.all()
    check_all_once(query, store)


def test_the_trigger_overrules_the_limits(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 2, 10)
    limits = {"maxMessagesPerTrigger": "3", "maxBytesPerTrigger": "1", "minMessagesPerTrigger": "2"}
    query = Query(options(store, consumeFrom="first", **limits))
    assert query.trigger(limit=ReadAllAvailable())
    assert len(query.rows) == 20


@pytest.mark.parametrize("limit", [1, 3, 4, 7, 1000])
def test_no_more_messages_than_asked_for_and_none_is_starved(
    store: rmqstore.MessageStore, limit: int
) -> None:
    fill(store, "big", 1, 200)
    fill(store, "small", 3, 2)
    query = Query(options(store, consumeFrom="first", maxMessagesPerTrigger=str(limit)))
    query.all()
    sizes = [len(batch) for batch in query.batches.values()]
    assert sizes[:-1] == [limit] * (len(sizes) - 1)
    assert sizes[-1] <= limit
    seen = [row for number in range(min(4, len(sizes))) for row in query.batches[number]]
    assert {row[:2] for row in seen} == {("big", 0), ("small", 0), ("small", 1), ("small", 2)}
    check_all_once(query, store)


def test_no_more_bytes_than_asked_for(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 3, 50)
    store.put("orders", b"x" * 5000, queue_id=0)
    fill(store, "orders", 1, 3)
    sizes = {(m.queue_id, m.queue_offset): m.store_size for m in store.scan()}
    query = Query(options(store, consumeFrom="first", maxBytesPerTrigger="1000"))
    query.all()
    taken = [sum(sizes[row[1:3]] for row in batch) for batch in query.batches.values()]
    assert all(each <= 1000 or len(query.batches[i]) == 1 for i, each in enumerate(taken))
    assert max(taken) > 5000
    assert min(taken[:10]) > 600
    check_all_once(query, store)


def test_a_batch_waits_for_enough_messages_but_not_for_ever(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("rmqstore.spark.stream.progress.time", clock)
    fill(store, "orders", 1, 2)
    waiting = {"minMessagesPerTrigger": "5", "maxTriggerDelay": "400ms"}
    query = Query(options(store, consumeFrom="first", **waiting))
    assert query.trigger()  # the first one waits for nothing
    fill(store, "orders", 1, 2)
    now[0] += 0.3
    assert not query.trigger()
    fill(store, "orders", 1, 3)
    assert query.trigger()
    assert len(query.batches[1]) == 5
    fill(store, "orders", 1, 1)
    now[0] += 0.3  # since the last batch
    assert not query.trigger()
    now[0] += 0.2
    assert query.trigger()
    query.start(options(store, **waiting), available_now=True)
    fill(store, "orders", 1, 1)
    query.all()
    assert len(query.rows) == 8  # that one came too late


def test_only_what_is_selected(store: rmqstore.MessageStore) -> None:
    for i in range(20):
        tags, key = ("A", "B", "C")[i % 3], f"k{i % 2}"
        store.put("orders", b"%d" % i, queue_id=i % 4, tags=tags, keys=[key])
        store.put("orders-eu", b"%d" % i, queue_id=i % 4)
        store.put("events", b"%d" % i, queue_id=0)
    dispatched(store)

    def read(**more: str) -> list[tuple[str, int, int, bytes]]:
        query = Query(options(store, consumeFrom="first", **more))
        query.all()
        return query.rows

    assert {row[0] for row in read(topics="orders,events")} == {"orders", "events"}
    assert {row[0] for row in read(topicPattern="orders.*")} == {"orders", "orders-eu"}
    assert {row[:2] for row in read(queues='{"orders":[1,2]}')} == {("orders", 1), ("orders", 2)}
    tagged = read(topics="orders", tags="A || C")
    assert sorted(int(row[3]) for row in tagged) == [i for i in range(20) if i % 3 != 1]
    keyed = read(topics="orders", keys="k1")
    assert sorted(int(row[3]) for row in keyed) == list(range(1, 20, 2))


def test_a_task_sees_a_topic_that_a_broker_made_anew(store: rmqstore.MessageStore) -> None:
    fill(store, "kept", 1, 1)
    fill(store, "orders", 1, 5)
    batch = {"v": 1, "q": {".": {"orders": {"0": 3}}}, "from": {".": {"orders": {"0": 0}}}}
    query = Query(options(store))
    assert [row[3] for row in query.read({}, batch)] == [
        b"orders/0/0",
        b"orders/0/1",
        b"orders/0/2",
    ]
    store.delete_topic("orders")
    Path(store.path, "rmqstore-deleted.json").unlink()  # which a broker does not write
    for i in range(4):
        store.put("orders", b"anew %d" % i, queue_id=0)
    dispatched(store)
    assert [row[3] for row in query.read({}, batch)] == [b"anew %d" % i for i in range(3)]


def test_only_errors_that_say_all_are_told_plainly(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, "orders", 1, 1)
    # As in a process of Spark's, where it is this variable that leaves the traceback out.
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    behind = {"v": 1, "q": {".": {"orders": {"0": 5}}}, "from": {".": {"orders": {"0": 2}}}}
    reader = StreamReader(options(store), spark_schema(["topic"]))
    wrong = StreamReader(options(store, topics="order"), spark_schema(["topic"]))
    monkeypatch.setattr("rmqstore.spark.stream.plan._APPEAR_SECONDS", 0.1)
    calls: list[tuple[Callable[[], object], type[Exception]]] = [
        (wrong.initialOffset, TopicNotFoundError),
        (lambda: reader.latestOffset(behind, ReadAllAvailable()), DataLossError),
        (lambda: reader.latestOffset({}, ReadAllAvailable()), OffsetError),
        (lambda: reader.partitions({}, behind), DataLossError),
        (lambda: reader.commit({}), OffsetError),
        (StreamReader({}, spark_schema(["topic"])).getDefaultReadLimit, OptionError),
        (StreamReader({}, spark_schema(["topic"])).prepareForTriggerAvailableNow, OptionError),
        (StreamReader({}, spark_schema(["topic"])).reportLatestOffset, OptionError),
    ]
    for call, kind in calls:
        monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
        with pytest.raises(kind):
            call()
        assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setattr(StreamProgress, "initial", lambda _: {}["a mistake"])
    with pytest.raises(KeyError):
        reader.initialOffset()
    assert not os.environ["SPARK_HIDE_TRACEBACK"]


@pytest.mark.parametrize(
    ("more", "kind", "text"),
    [
        ({"maxMessagePerTrigger": "1"}, OptionError, "nearest is 'maxMessagesPerTrigger'"),
        ({"maxMessagesPerTrigger": "0"}, OptionError, "'maxMessagesPerTrigger' must be .*'0'"),
        ({"maxBytesPerTrigger": "x"}, OptionError, "'maxBytesPerTrigger' must be .*'x'"),
        (
            {"consumeUntil": "last"},
            OptionError,
            "the streaming source has no option 'consumeUntil'",
        ),
        ({"maxTriggerDelay": "1m"}, OptionError, "without 'minMessagesPerTrigger'"),
        (
            {"maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "3"},
            OptionError,
            "'minMessagesPerTrigger' is 3, above 'maxMessagesPerTrigger', which is 2",
        ),
        ({"group": "a@b"}, OptionError, "'group' must be .*'a@b'"),
        ({"topics": "a", "topicPattern": "b"}, OptionError, "contradict each other"),
        ({"consumeFrom": "group"}, OptionError, "'group' names none"),
        ({"path": "/nowhere"}, StoreNotFoundError, "/nowhere: no store"),
    ],
)
def test_options_that_cannot_be(
    store: rmqstore.MessageStore, more: dict[str, str], kind: type[Exception], text: str
) -> None:
    given = {name.lower(): value for name, value in {"path": store.path, **more}.items()}
    reader = StreamReader(given, spark_schema(["topic"]))  # which Spark would not let tell it
    with pytest.raises(kind, match=text):
        reader.getDefaultReadLimit()
    with pytest.raises(kind, match=text):
        reader.latestOffset({}, ReadAllAvailable())


def test_names_that_are_not_there(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 2, 2)
    with pytest.raises(TopicNotFoundError, match="no topic 'order'; nearest is 'orders'"):
        Query(options(store, topics="order")).initial()
    with pytest.raises(OptionError, match="'consumeFrom' is 9 for orders/0, behind its end at 2"):
        Query(options(store, consumeFrom='{"orders":{"0":9}}')).initial()


def test_a_reader_pickles_without_what_it_has_open(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 1, 1)
    query = Query(options(store))
    size = len(pickle.dumps(query.reader))
    query.initial()
    assert len(pickle.dumps(query.reader)) == size < 4000


def test_an_offset_of_another_source(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 1, 1)
    query = Query(options(store))
    with pytest.raises(OffsetError, match="version None"):
        query.reader.latestOffset({"orders": {"0": 1}}, ReadAllAvailable())
    moved = {
        "v": 1,
        "q": {"/other": {"orders": {"0": 1}}},
        "from": {"/other": {"orders": {"0": 0}}},
    }
    with pytest.raises(OffsetError, match="the store '/other', which is not read"):
        query.reader.partitions({}, moved)
