"""Long work of the loop: some of it a turn, the requests of clients between."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from rmqstore import StoreConfig
from rmqstore.base.warn import Log
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve.figures.metrics import gateway_figures
from rmqstore.serve.network import turns
from rmqstore.serve.network.turns import Steps, Turns
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.topics.newtopics import NewTopics
from rmqstore.serve.wire.frames import Answer
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import SECONDS, Answers, Clock

pytestmark = pytest.mark.pure

ROUTE = 105


class Loop:
    """What a loop does at its next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def work(loop: Loop, clock: Clock) -> Turns:
    return Turns(cast("AbstractEventLoop", loop), Log("rmqstore.serve"))


def counting(seen: list[str], name: str, steps: int) -> Steps:
    for number in range(steps):
        seen.append(f"{name}{number}")
        yield


def test_short_work_is_done_at_once(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    work.start(counting(seen, "a", 1))
    assert seen == ["a0"]
    assert (len(work), loop.soon) == (0, [])


def test_a_turn_has_a_budget_and_works_take_steps_in_rotation(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    work.start(counting(seen, "a", 4))
    assert seen == ["a0", "a1"]  # 2.2 ms
    work.start(counting(seen, "b", 2))
    work.add(counting(seen, "c", 2))
    assert seen == ["a0", "a1"]
    loop.turn()
    assert seen[2:] == ["b0", "a2"]  # what is started goes first
    for _ in range(4):  # also those in which they come to their ends
        assert len(loop.soon) == 1  # one turn is due, however many works there are
        loop.turn()
    assert seen[4:] == ["c0", "b1", "a3", "c1"]
    assert (len(work), loop.soon) == (0, [])


def test_added_work_begins_with_the_next_turn(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    work.add(counting(seen, "a", 1))
    assert seen == []
    loop.turn()
    assert seen == ["a0"]


def test_work_that_starts_work_does_not_wait_for_it(loop: Loop, work: Turns) -> None:
    seen: list[str] = []

    def starting() -> Steps:
        work.start(counting(seen, "b", 1))
        seen.append("a")
        yield

    work.start(starting())
    loop.turn()
    assert seen == ["a", "b0"]


def test_works_of_a_lane_have_the_share_of_one(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    for name in "abc":
        work.requests.add(counting(seen, name, 3))
    work.add(counting(seen, "x", 3))
    for _ in range(3):
        loop.turn()
    assert seen == ["a0", "x0", "b0", "x1", "c0", "x2"]
    for _ in range(6):
        loop.turn()
    assert seen[6:] == ["a1", "b1", "c1", "a2", "b2", "c2"]
    assert (len(work), loop.soon) == (0, [])


def test_many_small_works_do_not_hold_up_others(loop: Loop, work: Turns) -> None:
    """Those for a connection or a message each have one share; a started work goes first."""
    seen: list[str] = []
    work.spend(1)  # the turn has no time left
    for number in range(200):
        work.begin(counting(seen, f"s{number}.", 1))
    work.add(counting(seen, "x", 2))
    work.start(counting(seen, "a", 2))
    assert not seen
    for _ in range(5):
        loop.turn()
    assert seen[:2] == ["a0", "s0.0"]
    assert [one for one in seen if one[0] in "ax"] == ["a0", "x0", "a1", "x1"]
    assert seen.index("x1") < 12


def test_a_stop_ends_the_works_of_a_lane(loop: Loop, work: Turns) -> None:
    ended: list[str] = []

    def until_ended(name: str) -> Steps:
        try:
            yield from counting([], name, 10)
        finally:
            ended.append(name)

    for name in "abc":
        work.singles.add(until_ended(name))
    for _ in range(8):
        loop.turn()
    work.close()
    assert sorted(ended) == ["a", "b", "c"]


def test_every_other_step_of_a_lane_is_of_a_short_work(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    for name in "abc":
        work.requests.add(counting(seen, name, 1))
    for name in "xy":
        work.requests.add(counting(seen, name, 2), short=True)
    for _ in range(12):
        loop.turn()
    assert seen == ["x0", "a0", "y0", "b0", "c0", "x1", "y1"]
    assert (len(work), loop.soon) == (0, [])


def test_works_of_a_lane_go_on_after_an_error(
    loop: Loop, work: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def failing() -> Steps:
        raise ValueError("no")
        yield

    work.requests.add(failing())
    work.requests.add(counting(seen, "a", 2))
    for _ in range(4):
        loop.turn()
    assert seen == ["a0", "a1"]
    assert "work of the loop failed" in caplog.text
    assert (len(work), loop.soon) == (0, [])


def test_a_share_has_many_short_steps(
    loop: Loop, work: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more time is spent on rotation than on the work."""
    times = iter(number * 0.0001 for number in range(10_000))
    monkeypatch.setattr(turns, "perf_counter", lambda: next(times))
    seen: list[str] = []
    work.add(counting(seen, "a", 50))
    work.add(counting(seen, "b", 50))
    loop.turn()
    assert [name[0] for name in seen] == ["a"] * 5 + ["b"] * 5 + ["a"] * 5 + ["b"] * 5


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_the_others_go_on_after_an_error(
    loop: Loop, work: Turns, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    seen: list[str] = []

    def failing() -> Steps:
        raise error("no")
        yield

    work.add(failing())
    work.add(counting(seen, "a", 1))
    try:
        loop.turn()
    except SystemExit:
        assert error is SystemExit
    else:
        assert "work of the loop failed" in caplog.text
    for _ in range(3):
        loop.turn()
    assert (seen, len(work)) == (["a0"], 0)


def test_nothing_is_done_after_the_end(loop: Loop, work: Turns) -> None:
    seen: list[str] = []
    left = counting(seen, "a", 9)
    work.start(left)
    work.close()
    loop.turn()
    work.start(counting(seen, "b", 1))
    assert (seen, loop.soon) == (["a0", "a1"], [])
    assert list(left) == []


def test_a_client_that_sends_many_requests_at_once_takes_turns(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
) -> None:
    stepped.in_loop(lambda: None)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    stepped.gateway.work.loop.call_soon_threadsafe(wait)
    assert begun.wait(SECONDS)
    asked = [asker.send(ROUTE, {"topic": "t"}) for _ in range(300)]
    clock.stop_after(6)
    go_on.set()
    assert answers.is_served_between(other)
    until = time.monotonic() + SECONDS
    assert [asker._take(until).opaque for _ in range(300)] == asked


def test_many_clients_with_long_requests_do_not_each_go_first() -> None:
    """One turn of the loop has a few of them; then whoever needs less than a share."""
    handled: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def long(connection: Any, request: Any) -> Answer:
        handled.append("long")
        time.sleep(0.003)
        return Answer()

    def brief(connection: Any, request: Any) -> Answer:
        handled.append("brief")
        return Answer()

    def wait() -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    with Server(None, Settings(), StoreConfig.small()) as server, ExitStack() as clients:
        server.in_loop(server.gateway.handlers.update, {7777: long, 7778: brief})
        many = [clients.enter_context(RemotingClient(server.address)) for _ in range(41)]
        other = many.pop()
        assert {one.ask(7777).code for one in many} == {0}
        [known] = [one for one in server.gateway.connections.open if one.peer == other.name]
        # It needs less than a share, unless somebody else has the processor meanwhile.
        wait_until(lambda: other.ask(7778).code == 0 and server.in_loop(lambda: known._was_short))
        handled.clear()
        server.gateway.work.loop.call_soon_threadsafe(wait)
        assert begun.wait(SECONDS)
        asked = [one.send(7777) for one in many]
        last = other.send(7778)  # its socket is the last one of this turn
        go_on.set()
        assert other.answer(last).code == 0
        assert [one.answer(number).code for one, number in zip(many, asked, strict=True)] == [
            0
        ] * 40
    assert handled.index("brief") < 10
    assert len(handled) == 41


def test_a_stop_ends_work_that_is_left() -> None:
    seen = []

    def forever() -> Steps:
        while True:
            seen.append(1)
            yield

    server = Server(None, Settings(), StoreConfig.small())
    server.in_loop(lambda: server.gateway.work.turns.start(forever()))
    server.close()
    count = len(seen)
    assert count > 0
    assert len(server.gateway.work.turns) == 0


def test_sends_that_wait_for_a_topic_take_turns(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stay in their order, also before those that come while they are handled."""
    entered = threading.Event()
    enter = NewTopics._enter

    def slow(self: NewTopics, entries: dict[str, TopicConfig]) -> None:
        assert entered.wait(SECONDS)
        enter(self, entries)

    monkeypatch.setattr(NewTopics, "_enter", slow)
    fields = {"a": "p", "b": "new", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "",
              "j": 0, "k": "false", "m": "false"}  # fmt: skip
    asked = [asker.send(310, fields, b"%d" % number) for number in range(60)]
    wait_until(lambda: stepped.gateway.requests[310] == 60)
    clock.stop_after(5)
    entered.set()
    assert clock.stopped.wait(SECONDS)
    asked += [asker.send(310, fields, b"%d" % number) for number in range(60, 90)]
    assert answers.is_served_between(other)
    assert [asker.answer(one).code for one in asked] == [0] * 90
    bodies = [message.body for message in stepped.store.scan("new")]
    assert bodies == [b"%d" % number for number in range(90)]
    assert not stepped.gateway.new_topics.waiting


def test_answers_that_wait_for_the_disk_take_turns(
    stepped: Server, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    seen: list[tuple[int, str]] = []

    def hold() -> None:
        for number in range(500):
            stepped.gateway.durable.hold(0, lambda outcome, at=number: seen.append((at, outcome)))
        clock.stop_after(5)

    stepped.in_loop(hold)
    assert answers.is_served_between(other)
    wait_until(lambda: len(seen) == 500)
    assert seen == [(number, "durable") for number in range(500)]


def test_the_look_for_silent_clients_takes_turns(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    body = heartbeat("c", [consumer(f"g{n}", {"t": "*"}) for n in range(500)], [])
    assert asker.ask(34, None, body).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)

    def look() -> None:
        clock.stop_after(5)
        stepped.gateway.clients.close_silent()

    stepped.in_loop(look)
    assert answers.is_served_between(other)
    assert asker.ask(ROUTE, {"topic": "t"}).code == 0


def test_a_stop_waits_for_a_long_answer(
    stepped: Server, asker: RemotingClient, clock: Clock
) -> None:
    stepped.store.create_topic("big", 2048)
    clock.stop_after(20)
    asked = asker.send(202, {"topic": "big"})
    assert clock.stopped.wait(SECONDS)
    closing = threading.Thread(target=stepped.close)
    closing.start()
    clock.go_on()
    assert asker.answer(asked).code == 0
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert len(stepped.gateway.work.turns) == 0


def test_producers_that_may_not_be_asked_are_passed_over_in_turns(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = stepped.gateway
    assert asker.ask(34, None, heartbeat("c", [], ["p"])).code == 0
    properties = {"TRAN_MSG": "true", "PGROUP": "p"}
    stepped.store.transactions.put_half(
        "t", 0, b"x", properties, born_timestamp=stepped.store.clock.now()
    )
    [one] = stepped.store.in_doubt()
    looked: list[object] = []
    monkeypatch.setattr(gateway.access, "allows", lambda caller, topic: looked.append(topic))

    def ask() -> None:
        [client] = gateway.clients.producer_groups["p"].values()
        members = cast("Any", {object(): client for _ in range(2000)})
        gateway.clients.producer_groups["p"] = members
        clock.stop_when(lambda: 0 < len(looked) < 2000)
        assert gateway.transactions._room.acquire(blocking=False)
        gateway.transactions._send(one)

    gateway.work.loop.call_soon_threadsafe(ask)
    assert answers.is_served_between(other)
    wait_until(lambda: len(looked) == 2000)


@pytest.mark.parametrize("asked", ["a sample", "figures", "a rate"])
def test_what_is_counted_by_topic_is_read_in_turns(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    asked: str,
) -> None:
    gateway = stepped.gateway
    counts = {f"t{number}": (1, 1) for number in range(8000)}
    stepped.store.core.topic_counts = lambda: counts  # type: ignore[method-assign]
    number = 0

    def begin() -> None:
        clock.stop_after(10)
        if asked == "a sample":
            gateway.rates._begin(gateway.rates._sampled_seconds)
        elif asked == "figures":
            gateway.work.spawn(figures())

    async def figures() -> None:
        await gateway.work.turns.run(gateway_figures(gateway.figures))

    stepped.in_loop(begin)
    if asked == "a rate":
        number = asker.send(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t1"})
    assert answers.is_served_between(other)
    if asked == "a rate":
        assert asker.answer(number).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(gateway.work.turns)) == 0)
    assert stepped.in_loop(lambda: len(list(gateway.rates.rates("TOPIC_PUT_NUMS")))) == 8000


def test_a_work_has_a_result(clock: Clock) -> None:
    async def ask() -> list[str]:
        results = []
        turns = Turns(asyncio.get_running_loop(), Log("rmqstore.serve"))

        def three(error: Exception | None) -> Generator[None, None, str]:
            for _ in range(3):
                yield
            if error is not None:
                raise error
            return "done"

        results.append(await turns.run(three(None)))
        with pytest.raises(ValueError, match="no"):
            await turns.run(three(ValueError("no")))
        return results

    assert asyncio.run(ask()) == ["done"]
