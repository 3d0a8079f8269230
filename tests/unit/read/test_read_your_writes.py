"""What a put has returned is seen by every way of reading, while the dispatch is slow."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import StoreConfig
from rmqstore._core import PullFilter
from rmqstore.consume.lag import bounds_by_topic

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

TOPIC = "T"
KNOWN = 60  # messages that are in their queue before the dispatch is slowed
SLOW_SECONDS = 0.02  # of a unit
CONFIGS = {
    "plain": StoreConfig.small(),
    "ext": StoreConfig.small().replace(
        enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=2000
    ),
    "sync": StoreConfig.small().replace(flush_disk_type="SYNC_FLUSH"),
}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A context in which each unit takes the dispatch a while, which is over when it ends.

    Until ``begin`` is set, where it is given, nothing is dispatched.
    """

    @contextmanager
    def slowed(begin: threading.Event | None = None) -> Iterator[None]:
        held, go_on = os.pipe()
        done = threading.Event()

        def feed() -> None:
            if begin is not None:
                begin.wait()
            while not done.wait(SLOW_SECONDS):
                os.write(go_on, b"x")

        feeder = threading.Thread(target=feed)
        monkeypatch.setenv("RMQ_HOLD_AT", f"before-unit:{held}")
        feeder.start()
        try:
            yield
        finally:
            monkeypatch.delenv("RMQ_HOLD_AT")
            done.set()
            if begin is not None:
                begin.set()
            feeder.join()
            os.close(go_on)  # whoever waits goes on
            slowed.held.append(held)  # type: ignore[attr-defined]

    slowed.held = []  # type: ignore[attr-defined]
    yield slowed
    for held in slowed.held:  # type: ignore[attr-defined]
        os.close(held)


def has(put: Any) -> Callable[[Any], bool]:
    """Whether messages contain the one that was put."""
    return lambda found: put.physical_offset in [one.physical_offset for one in found]


def pulled(store: Any, put: Any, tags: str | None) -> bool:
    made = PullFilter(tags) if tags else None
    at = max(0, put.queue_offset - 40) if tags else put.queue_offset
    *_, count, data = store.core.pull(TOPIC, 0, at, 64, 1 << 20, made)
    return count > 0 and b"newest %d " % put.queue_offset in data


async def taken(store: Any, put: Any) -> bool:
    with store.consumer(TOPIC, group="async") as consumer:
        async for message in consumer:
            if message.physical_offset == put.physical_offset:
                return True
    return False


def consumed(store: Any, put: Any, **options: Any) -> bool:
    with store.consumer(TOPIC, group="g", **options) as consumer:
        return has(put)(consumer)


def lagging(store: Any, put: Any) -> bool:
    store.progress.commit(TOPIC, "late", 0, 0)
    return store.lag("late", TOPIC)[0].max_offset == put.queue_offset + 1


WAYS: dict[str, Callable[[Any, Any], bool]] = {
    "get": lambda s, p: has(p)(s.get(TOPIC, 0, p.queue_offset).messages),
    "get of the whole queue": lambda s, p: has(p)(s.get(TOPIC, 0, 0, 1 << 20).messages),
    "get with tags": lambda s, p: has(p)(s.get(TOPIC, 0, 20, 1 << 10, tags="A || B").messages),
    "a small page with tags": lambda s, p: has(p)(
        s.get(TOPIC, 0, max(0, p.queue_offset - 60), 64, tags="B || A").messages
    ),
    "a page with rare tags": lambda s, p: has(p)(s.get(TOPIC, 0, 0, 32, tags="B").messages),
    "get with SQL": lambda s, p: has(p)(s.get(TOPIC, 0, 0, 32, sql="TAGS = 'B'").messages),
    "get with max_bytes": lambda s, p: has(p)(
        s.get(TOPIC, 0, p.queue_offset, 5, max_bytes=1 << 20).messages
    ),
    "a page up to the head": lambda s, p: (
        s.get(TOPIC, 0, 0, p.queue_offset).max_offset == p.queue_offset + 1
    ),
    "a filtered page up to the head": lambda s, p: (
        s.get(TOPIC, 0, p.queue_offset - 4, 4, tags="*").max_offset == p.queue_offset + 1
    ),
    "get at the head": lambda s, p: (
        s.get(TOPIC, 0, p.queue_offset + 1).max_offset == p.queue_offset + 1
    ),
    "get over it": lambda s, p: s.get(TOPIC, 0, 1 << 40).max_offset == p.queue_offset + 1,
    "at": lambda s, p: s.at(p.physical_offset).queue_offset == p.queue_offset,
    "message": lambda s, p: s.message(p.msg_id).queue_offset == p.queue_offset,
    "message by key": lambda s, p: s.message(p.uniq_key).queue_offset == p.queue_offset,
    "iteration": lambda s, p: has(p)(s[TOPIC][0]),
    "reversed": lambda s, p: next(reversed(s[TOPIC][0])).queue_offset == p.queue_offset,
    "slice": lambda s, p: has(p)(s[TOPIC][0][-3:]),
    "item": lambda s, p: s[TOPIC][0][p.queue_offset].physical_offset == p.physical_offset,
    "the newest": lambda s, p: s[TOPIC][0][-1].physical_offset == p.physical_offset,
    "len": lambda s, p: len(s[TOPIC][0]) == p.queue_offset + 1,
    "max_offset": lambda s, p: s[TOPIC][0].max_offset == p.queue_offset + 1,
    "queue_bounds": lambda s, p: s.queue_bounds(TOPIC, 0)[1] == p.queue_offset + 1,
    "bounds by topic": lambda s, p: bounds_by_topic(s.core)[TOPIC][0].stop == p.queue_offset + 1,
    "units": lambda s, p: len(s[TOPIC][0].units()) == p.queue_offset + 1,
    "ext_units": lambda s, p: len(s[TOPIC][0].ext_units()) == p.queue_offset + 1,
    "offset_at": lambda s, p: s[TOPIC][0].offset_at(1 << 50) == p.queue_offset + 1,
    "topic.messages": lambda s, p: has(p)(s[TOPIC].messages()),
    "consumer": consumed,
    "consumer with tags": lambda s, p: consumed(s, p, tags="B"),
    "consumer from a time": lambda s, p: consumed(s, p, start=1),
    "async consumer": lambda s, p: asyncio.run(taken(s, p)),
    "scan": lambda s, p: has(p)(s.scan()),
    "scan of a queue": lambda s, p: has(p)(s.scan(TOPIC, 0)),
    "scan of a topic": lambda s, p: has(p)(s.scan([TOPIC])),
    "scan by key": lambda s, p: has(p)(s.scan(TOPIC, keys=f"k{p.queue_offset}")),
    "scan by time": lambda s, p: has(p)(s.scan(since=1)),
    "count": lambda s, p: s.scan(TOPIC, 0).count() == p.queue_offset + 1,
    "dataset": lambda s, p: s.scan(TOPIC).dataset().count_rows() == p.queue_offset + 1,
    "query": lambda s, p: has(p)(s.query(TOPIC, f"k{p.queue_offset}")),
    "query by the index": lambda s, p: has(p)(
        s.query(TOPIC, f"k{p.queue_offset}", index_only=True)
    ),
    "query_many": lambda s, p: has(p)(s.query_many(TOPIC, [f"k{p.queue_offset}"])[0]),
    "locate_many": lambda s, p: (
        p.physical_offset in s.locate_many(TOPIC, [f"k{p.queue_offset}"])[0]
    ),
    "index_coverage": lambda s, p: s.index_coverage()[-1][1] > p.physical_offset,
    "lag": lagging,
    "pull": lambda s, p: pulled(s, p, None),
    "pull with tags": lambda s, p: pulled(s, p, "B || A"),
    "a light queue": lambda s, p: has(p)(s["%LMQ%light"][0]),
    "get of a light queue": lambda s, p: has(p)(s.get("%LMQ%light", 0, 0, 1 << 20).messages),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_way_of_reading(tmp_path: Path, slow: Callable[..., Any], kind: str) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=CONFIGS[kind]) as store:
        store.create_topic(TOPIC, 1)
        store.put_many(TOPIC, [b"known"] * KNOWN, queue_id=0, tags="A")
        store.put(TOPIC, b"rare", queue_id=0, tags="B", lite_topics=["light"])
        count = KNOWN + 1
        assert len(store[TOPIC][0]) == count
        missing = []
        for name, way in WAYS.items():
            begin = threading.Event()
            with slow(begin):
                store.put_many(TOPIC, [b"before"] * 2, queue_id=0, tags="A")
                count += 3
                put = store.put(
                    TOPIC,
                    b"newest %d " % (count - 1),
                    queue_id=0,
                    tags="B",
                    keys=f"k{count - 1}",
                    lite_topics=["light"],
                )
                assert put.queue_offset == count - 1
                assert store.stats()["dispatch_behind_bytes"] > 0
                begin.set()
                if not way(store, put):
                    missing.append(name)
        assert missing == []


FIRST: dict[str, Callable[[Any, Any], bool]] = {
    "get": lambda s, p: has(p)(s.get("new", 2, 0).messages),
    "get with tags": lambda s, p: has(p)(s.get("new", 2, 0, tags="B").messages),
    "topics": lambda s, p: "new" in s.topics and len(s["new"][2]) == 1,
    "queue_ids": lambda s, p: 2 in s.queue_ids()["new"],
    "scan": lambda s, p: has(p)(s.scan("new", 2)),
    "query": lambda s, p: has(p)(s.query("new", "first")),
    "pull": lambda s, p: s.core.pull("new", 2, 0, 32, 1 << 20)[4] == 1,
    "light": lambda s, p: has(p)(s.get("%LMQ%new", 0, 0).messages),
    "light topic": lambda s, p: "%LMQ%new" in s.topics and has(p)(s["%LMQ%new"][0]),
    "delayed": lambda s, p: [one.message.topic for one in s.delayed()] == ["later"],
    "in_doubt": lambda s, p: [one.message.topic for one in s.in_doubt()] == ["half"],
}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("way", FIRST)
def test_the_first_put_after_an_opening(
    tmp_path: Path, slow: Callable[[], Any], kind: str, way: str
) -> None:
    """Of a topic, and of queues, that did not exist when the store was looked at before."""
    rmqstore.open(tmp_path / "s", "a", config=CONFIGS[kind]).close()
    with rmqstore.open(tmp_path / "s", "r+", config=CONFIGS[kind]) as store:
        assert not store.get("new", 2, 0).messages
        assert list(store.scan()) == store.delayed() == store.in_doubt() == []
        transaction = None
        with slow():
            if way == "delayed":
                store.put("later", b"x", queue_id=0, delay_level=18)
            if way == "in_doubt":
                transaction = store.begin("half", b"x", queue_id=0)
            put = store.put("new", b"x", queue_id=2, tags="B", keys="first", lite_topics=["new"])
            assert FIRST[way](store, put)
        if transaction is not None:
            transaction.rollback()


def test_many_threads(tmp_path: Path, slow: Callable[[], Any]) -> None:
    missing: list[tuple[int, int]] = []

    def work(store: Any, queue_id: int) -> None:
        for _ in range(8):
            put = store.put(TOPIC, b"x", queue_id=queue_id, tags="A")
            page = store.get(TOPIC, queue_id, 0, 32, tags="A")
            if not has(put)(page.messages):
                missing.append((queue_id, put.queue_offset))

    with (
        rmqstore.open(tmp_path / "s", "a", config=CONFIGS["ext"]) as store,
        slow(),
    ):
        threads = [threading.Thread(target=work, args=(store, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert missing == []
