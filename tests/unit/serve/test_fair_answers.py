"""Long answers of one owner do not hold up those of another, nor heartbeats and locks."""

from __future__ import annotations

import itertools
import json
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from rmqstore import StoreConfig
from rmqstore.base.warn import Log
from rmqstore.serve.network.rotation import Rotation
from rmqstore.serve.network.turns import Steps, Turns
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import Answers, Clock

STATUS, HEARTBEAT, LOCK = 202, 34, 41
MANY = 12


class Loop:
    """What a loop does at its next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def rotation(loop: Loop, clock: Clock) -> Rotation:
    return Rotation(Turns(cast("AbstractEventLoop", loop), Log("rmqstore.serve")))


def counting(seen: list[str], name: str, steps: int) -> Steps:
    for _ in range(steps):
        seen.append(name)
        yield


def ends(seen: list[str]) -> list[str]:
    """Names in the order of their last steps."""
    return sorted(set(seen), key=lambda name: len(seen) - seen[::-1].index(name))


def test_owners_take_turns_however_many_works_each_has(loop: Loop, rotation: Rotation) -> None:
    seen: list[str] = []
    for number in range(5):
        rotation.add("a", counting(seen, f"a{number}", 3))
    rotation.add("b", counting(seen, "b", 3))
    loop.run()
    assert seen[:6] == ["a0", "b", "a1", "b", "a2", "b"]
    assert len(seen) == 18
    assert loop.soon == []


def test_short_works_go_before_long_ones(loop: Loop, rotation: Rotation) -> None:
    seen: list[str] = []
    for number in range(5):
        rotation.add("a", counting(seen, f"long{number}", 300))
    for _ in range(400):
        loop.soon.pop(0)()
    rotation.add("a", counting(seen, "short", 20))
    before = len(seen)
    loop.run()
    assert "short" not in seen[before + 60 :]
    assert len(seen) == 1520


def test_an_owner_has_one_long_work_in_memory_and_all_have_few(
    loop: Loop, rotation: Rotation
) -> None:
    seen: list[str] = []
    for owner in "abcdef":
        for number in range(2):
            rotation.add(owner, counting(seen, f"{owner}{number}", 200))
    loop.run()
    assert len(seen) == 6 * 2 * 200
    rest = seen[12 * 33 :]
    first = {name: rest.index(name) for name in rest}
    last = {name: len(rest) - rest[::-1].index(name) for name in rest}
    for at in range(0, len(rest), 10):
        begun = {name for name in first if first[name] < at < last[name]}
        assert len(begun) <= 4
        assert len({name[0] for name in begun}) == len(begun)
    assert ends(seen)[:4] == ["a0", "b0", "c0", "d0"]
    assert ends(seen)[4:6] == ["e0", "f0"]  # others before anybody's second


@pytest.mark.parametrize("long", [False, True])
def test_others_go_on_after_an_error(loop: Loop, rotation: Rotation, long: bool) -> None:
    seen: list[str] = []

    def failing() -> Steps:
        yield from counting(seen, "failing", 50 if long else 1)
        raise ValueError("no")

    rotation.add("a", failing())
    rotation.add("a", counting(seen, "a", 40))
    rotation.add("b", counting(seen, "b", 40))
    loop.run()
    assert (seen.count("a"), seen.count("b")) == (40, 40)


# Over the wire


@pytest.fixture
def crowd(stepped: Server, clock: Clock) -> Iterator[list[RemotingClient]]:
    """Return clients of one address, each with a long answer that is being built."""
    stepped.store.create_topic("big", 1024)
    with ExitStack() as clients:
        made = [clients.enter_context(RemotingClient(stepped.address)) for _ in range(MANY)]
        yield made


@pytest.fixture
def victim(stepped: Server) -> Iterator[RemotingClient]:
    with RemotingClient(stepped.address, source="127.0.0.2") as made:
        assert made.ask(105, {"topic": "t"}).code == 0
        yield made


def have_asked(server: Server, crowd: list[RemotingClient], code: int, body: bytes = b"") -> None:
    """Have each of a crowd ask, with the loop standing still as soon as all have."""
    for one in crowd:
        one.send(code, {"topic": "big"}, body)


def beat(groups: int) -> bytes:
    return heartbeat("v", [consumer(f"v{n}", {"t": "*"}) for n in range(groups)], [])


def locks(topic: str, queues: int, group: str) -> bytes:
    one = {"topic": topic, "brokerName": "broker-a"}
    listed = [{**one, "queueId": number} for number in range(queues)]
    return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": listed}).encode()


@pytest.mark.parametrize("asked", ["heartbeat", "lock", "status"])
@pytest.mark.parametrize("of", [STATUS, LOCK])
def test_a_crowd_of_one_address_does_not_hold_up_another(
    stepped: Server,
    crowd: list[RemotingClient],
    victim: RemotingClient,
    clock: Clock,
    answers: Answers,
    asked: str,
    of: int,
) -> None:
    code, fields, body = {
        "heartbeat": (HEARTBEAT, None, beat(20)),
        "lock": (LOCK, None, locks("t", 2, "v")),
        "status": (STATUS, {"topic": "t"}, b""),
    }[asked]
    clock.stop_after(40)
    have_asked(stepped, crowd, of, locks("big", 1024, "g") if of == LOCK else b"")
    assert clock.stopped.wait(60)
    answers.seen.clear()
    number = victim.send(code, fields, body)
    clock.go_on()
    assert victim.answer(number).code == 0
    names = {one.name for one in crowd}
    seen = answers.clients  # the loop has gone on since
    before = [name for name in seen[: seen.index(victim.name)] if name in names]
    assert len(before) < 2
    wait_until(lambda: len(answers.seen) > MANY)


def test_a_crowd_has_one_answer_in_memory_at_a_time(
    stepped: Server, crowd: list[RemotingClient], clock: Clock, answers: Answers
) -> None:
    have_asked(stepped, crowd, STATUS)
    wait_until(lambda: len(answers.seen) == MANY)
    looks = [at for _, at in answers.seen]
    between = [after - before for before, after in itertools.pairwise(looks)]
    assert min(between) > 20  # one after the other, not all at the end


def test_who_unlocks_may_be_about_to_go(stepped: Server, clock: Clock) -> None:
    """All of it is done, in steps, and for the others at once where it is little."""
    stepped.store.create_topic("big", 1024)
    with RemotingClient(stepped.address) as client:
        assert len(client.ask(LOCK, None, locks("big", 1024, "g")).json["lockOKMQSet"]) == 1024
        clock.stop_after(100)
        client.send(42, None, locks("big", 1024, "g"), flag=2)
        assert clock.stopped.wait(60)
        assert len(stepped.gateway.locks) > 0
    clock.go_on()
    wait_until(lambda: len(stepped.gateway.locks) == 0)


def test_a_stop_ends_rotations() -> None:
    def forever() -> Steps:
        while True:
            yield

    server = Server(None, Settings(), StoreConfig.small())
    rotation = server.in_loop(Rotation, server.gateway.work.turns)
    for owner in "ab":
        server.in_loop(rotation.add, owner, forever())
    server.close()
    assert len(server.gateway.work.turns) == 0
