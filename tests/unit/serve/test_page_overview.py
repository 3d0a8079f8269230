"""Figures of the page: traffic and bytes of topics, what waits, and what retention may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rmqstore
from rmqstore.serve.figures.http import HttpServer, Reply
from rmqstore.serve.page import groups, sizes
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.pages import get
from support.serving import wait_until

pytestmark = [pytest.mark.pure, pytest.mark.usefixtures("fresh_figures")]

HOUR = 3600
RESERVED = 72
CONFIG = rmqstore.StoreConfig.small(file_reserved_time=RESERVED)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), CONFIG, metrics_port=0) as made:
        yield made


def overview(server: Server) -> dict[str, Any]:
    status, _, body = get(server, "/api/overview")
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def topics(server: Server) -> dict[str, dict[str, Any]]:
    """The rows of topics by name, in order, without the system's."""
    return {one["name"]: one for one in overview(server)["topics"] if not one["system"]}


@pytest.fixture
def sample(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what takes the next sample of rates, ten seconds after the one before.

    All messages are dispatched by then: they are counted as they are.
    """
    rates = server.gateway.rates
    now = [server.in_loop(rates._now)]
    server.in_loop(monkeypatch.setattr, rates, "_now", lambda: now[0])

    core = server.store.core

    def is_dispatched() -> bool:
        counted = sum(messages for messages, _ in core.topic_counts().values())
        return counted == core.figures()["put_records"]

    def sample() -> None:
        wait_until(is_dispatched)
        now[0] += 10_000
        server.in_loop(rates.sample_seconds)

    return sample


def test_topics_are_in_the_order_of_their_traffic(
    server: Server, sample: Callable[[], None]
) -> None:
    store = server.store
    for name, count in (("many", 50), ("%DLQ%g", 9), ("few", 1)):
        for _ in range(count):
            store.put(name, b"x", queue_id=0)
    assert list(topics(server)) == ["many", "few", "%DLQ%g"]  # without a sample: by all messages
    for _ in range(8):
        sample()  # a minute later
    for _ in range(2):
        store.put("few", b"x" * 100, queue_id=0)
    sample()
    found = topics(server)
    assert list(found) == ["few", "many", "%DLQ%g"]
    assert found["few"]["growth"] == round(2 * store["few"][0][-1].store_size / 60)
    assert found["many"]["growth"] == 0


def test_bytes_of_topics(server: Server) -> None:
    store = server.store
    expected = 0
    for number in range(90):
        store.put("small", b"x" * number * 10, queue_id=number % 2)
        expected += store["small"][number % 2][-1].store_size
    for _ in range(2000):
        store.put("even", b"x" * 77, queue_id=0)
    for number in range(3000):  # as many of each size
        store.put("mixed", bytes(number // 750 * 500), queue_id=0)
    mixed = sum(one.store_size for one in store["mixed"][0])
    store.create_topic("empty", 1)
    found = topics(server)
    assert found["small"]["bytes"] == expected  # of so few every record counts
    assert found["even"]["bytes"] == 2000 * store["even"][0][0].store_size
    assert found["mixed"]["bytes"] == pytest.approx(mixed, rel=0.05)
    assert found["empty"]["bytes"] == 0
    for _ in range(9000):
        store.put("mixed", b"", queue_id=0)
    mixed = sum(one.store_size for one in store["mixed"][0])
    assert topics(server)["mixed"]["bytes"] == pytest.approx(mixed, rel=0.05)


def test_few_topics_are_sampled_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_TOPICS", 2)
    read: list[str] = []
    mean = sizes.RecordSizes._mean

    def counted(self: sizes.RecordSizes, topic: str, queues: Any) -> float:
        read.append(topic)
        return mean(self, topic, queues)

    monkeypatch.setattr(sizes.RecordSizes, "_mean", counted)
    for name in "abc":
        server.store.put(name, b"x", queue_id=0)
    assert [one["bytes"] is None for one in topics(server).values()] == [False, False, True]
    assert [one["bytes"] is None for one in topics(server).values()] == [False] * 3
    overview(server)
    assert read == ["a", "b", "c"]  # each is known for a minute
    monkeypatch.setattr(sizes, "_SECONDS", 0.0)
    overview(server)
    assert read == ["a", "b", "c", "a", "b"]


def test_what_is_not_delivered(server: Server) -> None:
    store = server.store
    found = overview(server)
    assert (found["delayed"], found["in_doubt"]) == ([], 0)
    assert found["dead"] == {"messages": 0, "topics": [], "topics_left_out": 0}
    for level in (3, 5, 5):
        store.put("orders", b"later", delay_level=level, queue_id=0)
    for name, count in (("a", 1), ("b", 2)):
        for _ in range(count):
            store.put(f"%DLQ%{name}", b"dead", queue_id=0)
    store.put("orders", b"x", queue_id=0)
    halves = [store.begin("orders", b"half") for _ in range(3)]
    halves[0].commit()
    found = overview(server)
    assert found["delayed"] == [
        {"delay": 10_000, "messages": 1},
        {"delay": 60_000, "messages": 2},
    ]
    assert found["dead"]["messages"] == 3
    assert [(one["name"], one["messages"]) for one in found["dead"]["topics"]] == [
        ("%DLQ%b", 2),
        ("%DLQ%a", 1),
    ]
    assert found["in_doubt"] == 2
    store.transactions.note_ended()
    assert overview(server)["groups"] == []  # not the group that reads half messages
    halves[1].rollback()
    assert overview(server)["in_doubt"] == 1


def fill(server: Server) -> None:
    """Put messages of 'orders' until its first file may be deleted."""
    body = bytes(200_000)
    while server.store.core.removable_files()[1] == 0:
        server.store.put("orders", body, queue_id=0)


def expires(server: Server) -> dict[str, int | None]:
    """By group: ms until retention may delete the first message not consumed."""
    return {one["group"]: one["expires"] for one in overview(server)["groups"]}


def test_groups_are_warned_of_retention(server: Server) -> None:
    store = server.store
    fill(server)
    removable = store.core.removable_files()[1]
    queue = store["orders"][0]
    kept = next(one.queue_offset for one in queue if one.physical_offset >= removable)
    for group, offset in (("slow", 1), ("ahead", kept), ("done", queue.max_offset)):
        store.progress.commit("orders", group, 0, offset)
    assert expires(server) == {"slow": None, "ahead": None, "done": None}
    store.clock.advance((RESERVED - RESERVED // 4 - 1) * HOUR)
    assert expires(server) == {"slow": None, "ahead": None, "done": None}
    store.clock.advance(2 * HOUR)
    found = expires(server)
    left = found.pop("slow")
    assert left is not None
    assert (RESERVED // 4 - 1.1) * HOUR < left / 1000 <= (RESERVED // 4 - 1) * HOUR
    # The file of the newest message is never deleted.
    assert found == {"ahead": None, "done": None}
    store.progress.commit("orders", "slow", 0, kept)
    assert expires(server)["slow"] is None


def test_times_of_some_queues_are_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those furthest behind: a table of groups may have 100,000 queues."""
    monkeypatch.setattr(groups, "_TIMED", 3)
    store = server.store
    for queue_id, count in enumerate((1, 4, 3, 2)):
        for _ in range(count):
            store.put("orders", b"x", queue_id=queue_id)
    for group in ("a", "b"):
        store.progress.commit("orders", group, 0, 0)
    read: list[tuple[int, int]] = []
    time_of_one = groups.time_of_one

    def counted(core: Any, topic: str, queue_id: int, offsets: range, *, warn: bool) -> int:
        read.append((queue_id, offsets[0]))
        return time_of_one(core, topic, queue_id, offsets, warn=warn)

    monkeypatch.setattr(groups, "time_of_one", counted)
    rows = overview(server)["groups"]
    assert [(one["group"], one["messages"]) for one in rows] == [("a", 10), ("b", 10)]
    assert [one["late"] is None for one in rows] == [False, True]
    assert read == [(1, 0), (1, 3), (2, 0), (2, 2), (3, 0), (3, 1)]


def test_figures_are_kept_for_nine_times_as_long_as_they_took() -> None:
    loop = asyncio.new_event_loop()
    now = [100.0]
    loop.time = lambda: now[0]  # type: ignore[method-assign]
    made = []
    server = HttpServer(HttpServer.bind(0))

    async def slow(seconds: float) -> Reply:
        now[0] += seconds
        made.append(now[0])
        return Reply(b"%d" % len(made))

    async def asked() -> None:
        for rest, seconds, kept in ((9, 2.0, 18.0), (9, 10.0, 30.0), (0, 10.0, 0.0)):
            resource = server.made_once(lambda: slow(seconds), rest=rest)  # noqa: B023
            first = await resource({})
            now[0] += max(0.0, kept - 0.1)
            assert ((await resource({})) is first) == (kept > 0)
            now[0] += 0.2
            assert (await resource({})) is not first

    try:
        loop.run_until_complete(asked())
    finally:
        server.close()
        loop.close()
    assert len(made) == 2 + 2 + 3
