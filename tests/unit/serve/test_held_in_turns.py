"""Held pulls that a message wakes, or that have waited: some a turn, other clients between."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

import pytest

from rmqstore.serve.consuming.pullreader import PullReader
from rmqstore.serve.server import Server
from support.remoting import RemotingClient
from support.serving import wait_until
from support.turns import SECONDS, Answers, Clock

PULL = 11


def hold(client: RemotingClient, queue_id: int = 0, wanted: str = "*", kind: str = "TAG") -> int:
    return client.send(PULL, {
        "consumerGroup": "g", "topic": "t", "queueId": queue_id, "queueOffset": 0,
        "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 600_000,
        "subscription": wanted, "expressionType": kind, "subVersion": 0,
    })  # fmt: skip


def opaques(client: RemotingClient, count: int) -> list[int]:
    """Return the numbers of the next answers, as they come."""
    until = time.monotonic() + SECONDS
    return [client._take(until).opaque for _ in range(count)]


def test_hundreds_of_held_pulls_with_long_expressions(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
) -> None:
    """Others are served after one or two of them, and they are answered as old as they are."""
    count = 300  # about as many as one connection's share has room for
    terms = " OR ".join(f"a = {number}" for number in range(5400))
    assert 60_000 < len(terms) < 65_000
    asked = [hold(asker, 0, f"{terms} OR b = {n}", "SQL92") for n in range(count)]
    wait_until(lambda: len(stepped.gateway.holds) == count)
    clock.stop_when(lambda: len(stepped.gateway.holds) == count - 3)
    stepped.store.put("t", b"x", queue_id=0, properties={"a": "5399"})
    assert answers.is_served_between(other)
    assert opaques(asker, count) == asked


def test_a_message_that_comes_while_pulls_are_left_wakes_the_others(
    stepped: Server, asker: RemotingClient, clock: Clock
) -> None:
    wants_b = hold(asker, 0, "b")
    of_one = hold(asker, 1)
    many = [hold(asker, 0, "a") for _ in range(50)]
    wait_until(lambda: len(stepped.gateway.holds) == 52)
    clock.stop_after(20)
    stepped.store.put("t", b"1", queue_id=0, tags="a")
    assert clock.stopped.wait(SECONDS)
    stepped.store.put("t", b"2", queue_id=0, tags="b")  # it was looked at already, and stayed
    stepped.store.put("t", b"3", queue_id=1)
    assert stepped.store.get("t", 1, 0).messages[0].body == b"3"  # it is in its queue
    clock.go_on()
    assert [asker.answer(one).code for one in (wants_b, of_one, *many)] == [0] * 52
    wait_until(lambda: len(stepped.gateway.holds) == 0)


def test_pulls_that_pass_many_messages_take_turns(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock
) -> None:
    held = hold(asker, 0, "wanted")
    wait_until(lambda: len(stepped.gateway.holds) == 1)
    stepped.store.put_many("t", [b"x"] * 20_000, queue_id=0, tags="other")
    stepped.store.put("t", b"this", queue_id=0, tags="wanted")
    answer = asker.answer(held)
    assert answer.fields is not None
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "20001")


def test_pulls_that_have_waited_end_between_others(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
) -> None:
    asked = [hold(asker) for _ in range(1000)]
    holds = stepped.gateway.holds
    wait_until(lambda: len(holds) == 1000)
    clock.stop_after(6)
    stepped.in_loop(lambda: [stepped.gateway.work.loop.call_soon(holds._expire, ends)
                            for ends in holds._ending])  # fmt: skip
    assert answers.is_served_between(other)
    assert sorted(opaques(asker, 1000)) == asked
    assert len(holds) == 0


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the clients whose held pulls are read, in order."""
    seen: list[str] = []
    answer: Callable[..., bool] = PullReader.answer

    def noted(reader: Any, connection: Any, pull: Any, *, woken: bool = False, **rest: Any) -> bool:
        if woken:
            seen.append(connection.peer)
        return answer(reader, connection, pull, woken=woken, **rest)

    monkeypatch.setattr(PullReader, "answer", noted)
    return seen


def test_a_held_pull_does_not_wait_for_hundreds_of_another_connection(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, read: list[str]
) -> None:
    """Neither for those that a message wakes, nor for those whose time is over."""
    holds = stepped.gateway.holds
    asked = [hold(asker, 0, "wanted") for _ in range(300)]
    for offset in range(2):
        is_end = offset == 1
        mine = other.send(PULL, {
            "consumerGroup": "g", "topic": "t", "queueId": 1, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 300_000,
            "subscription": "*", "subVersion": 0,
        })  # fmt: skip
        wait_until(lambda: len(holds) == 301)
        read.clear()
        clock.stop_when(lambda: len(read) >= 20)
        if is_end:
            ends = stepped.in_loop(lambda: max(holds._ending))
            stepped.in_loop(lambda ends=ends: holds._expire(ends))
        else:
            stepped.store.put("t", b"x", queue_id=0, tags="other")
        assert clock.stopped.wait(SECONDS)
        assert set(read) == {asker.name}
        stepped.store.put("t", b"y", queue_id=1)
        stepped.store.get("t", 1, offset)  # it is in its queue
        assert select.select([holds._wakeup.fileno()], [], [], SECONDS)[0]  # and the loop learns it
        before = len(read)
        clock.go_on()
        assert other.answer(mine).code == 0
        wait_until(lambda: len(read) == 301)
        assert read.index(other.name) - before <= 20, "a turn, and one more"
    assert sorted(opaques(asker, 300)) == asked


def test_an_address_has_its_turn_among_those_of_one_with_many_connections(
    stepped: Server, clock: Clock, read: list[str]
) -> None:
    holds = stepped.gateway.holds
    many = [RemotingClient(stepped.address) for _ in range(40)]
    alone = RemotingClient(stepped.address, source="127.0.0.2")
    try:
        asked = [(client, hold(client, 0, "wanted")) for client in many for _ in range(5)]
        wait_until(lambda: len(holds) == 200)
        last = [hold(alone, 0, "wanted") for _ in range(2)]
        wait_until(lambda: len(holds) == 202)
        stepped.store.put("t", b"x", queue_id=0, tags="wanted")
        assert [alone.answer(one).code for one in last] == [0, 0]
        assert [client.answer(one).code for client, one in asked] == [0] * 200
        assert [at for at, name in enumerate(read) if name == alone.name] == [1, 3]
        assert read[0::2][:2] == [many[0].name, many[1].name]  # these rotate as well
    finally:
        for client in (*many, alone):
            client.close()


def test_a_client_that_reads_again_has_its_pulls_back_some_at_a_time(
    stepped: Server, asker: RemotingClient, clock: Clock
) -> None:
    asked = [hold(asker) for _ in range(1000)]
    holds = stepped.gateway.holds
    wait_until(lambda: len(holds) == 1000)

    def aside() -> int:
        return sum(one.is_aside for one in holds._holds.values())

    def read_again() -> int:
        for one in holds._holds.values():
            holds._put_aside(one)
        holds.go_on(next(iter(holds._of)))
        return aside()

    assert 500 < stepped.in_loop(read_again) < 1000
    wait_until(lambda: stepped.in_loop(aside) == 0)
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    stepped.store.put("t", b"x", queue_id=0)
    assert opaques(asker, 1000) == asked
