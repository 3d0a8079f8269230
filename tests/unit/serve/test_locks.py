"""Locks of queues over the wire, and against a plain model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.consuming.locks import LOCK_MILLIS, LockedQueue, Locks
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient

pytestmark = pytest.mark.pure

LOCK, UNLOCK = 41, 42


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", queue_nums=8)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def queue(number: int, topic: str = "orders") -> dict[str, object]:
    return {"brokerName": "broker-a", "queueId": number, "topic": topic}


def body(who: str, group: str, *queues: dict[str, object]) -> bytes:
    return json.dumps({"clientId": who, "consumerGroup": group, "mqSet": queues}).encode()


def locked(answer: Frame) -> list[int]:
    assert (answer.code, answer.remark, answer.fields) == (0, None, None)
    return [one["queueId"] for one in answer.json["lockOKMQSet"]]


def test_a_queue_has_one_client(client: RemotingClient) -> None:
    asked = body("one", "g", queue(0), queue(1))
    answer = client.ask(LOCK, None, asked)
    assert answer.body == (
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"orders"},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}]}'
    )
    assert locked(client.ask(LOCK, None, asked)) == [0, 1]  # its own, again
    others = body("two", "g", queue(0), queue(1), queue(2))
    assert locked(client.ask(LOCK, None, others)) == [2]
    assert locked(client.ask(LOCK, None, body("two", "other", queue(0)))) == [0]
    for who, given_up, then in (("two", 0, [2]), ("one", 0, [0, 2])):
        answer = client.ask(UNLOCK, None, body(who, "g", queue(given_up), queue(7)))
        assert (answer.code, answer.body, answer.fields) == (0, b"", None)
        assert locked(client.ask(LOCK, None, others)) == then


def test_a_lock_lives_for_a_minute_from_its_renewal(server: Server, client: RemotingClient) -> None:
    mine, theirs = (body(who, "minute", queue(0)) for who in ("one", "two"))
    assert locked(client.ask(LOCK, None, mine)) == [0]
    server.store.clock.advance(40)
    assert locked(client.ask(LOCK, None, mine)) == [0]
    server.store.clock.advance(40)
    assert locked(client.ask(LOCK, None, theirs)) == []
    server.store.clock.advance(21)
    assert locked(client.ask(LOCK, None, theirs)) == [0]
    assert locked(client.ask(LOCK, None, mine)) == []


def test_a_client_that_is_gone_has_its_locks_until_they_expire(
    server: Server, client: RemotingClient
) -> None:
    with RemotingClient(server.address) as gone:
        assert locked(gone.ask(LOCK, None, body("gone", "left", queue(0)))) == [0]
    assert locked(client.ask(LOCK, None, body("here", "left", queue(0)))) == []
    server.store.clock.advance(60.5)
    assert locked(client.ask(LOCK, None, body("here", "left", queue(0)))) == [0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (b"", "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"[1]", "the body must be an object"),
        (body("c", "../../x", queue(0)), "consumerGroup must be"),
        (body("c", "a@b", queue(0)), "consumerGroup must be"),
        (body("c", "g" * 121, queue(0)), "consumerGroup must be"),
        (b'{"clientId":"c","mqSet":[]}', "consumerGroup must be"),
        (b'{"consumerGroup":"g","mqSet":[]}', "clientId must be"),
        (body("c" * 256, "g", queue(0)), "clientId must be"),
        (b'{"clientId":"c","consumerGroup":"g","mqSet":7}', "mqSet must be a list"),
        (b'{"clientId":"c","consumerGroup":"g","mqSet":[7]}', "must be an object"),
        (body("c", "g", queue(0, "../x")), "topic must be"),
        (body("c", "g", queue(0, "")), "topic must be"),
        (body("c", "g", queue(-1)), "queueId must be"),
        (body("c", "g", queue(1 << 31)), "queueId must be"),
        (body("c", "g", {**queue(0), "queueId": 1.5}), "queueId must be"),
        (body("c", "g", {**queue(0), "queueId": True}), "queueId must be"),
        (body("c", "g", {**queue(0), "queueId": "x"}), "queueId must be"),
        (body("c", "g", {**queue(0), "brokerName": None}), "brokerName must be"),
        (body("c", "g", queue(0)) + b" " * (4 << 20), "the body must be at most"),
    ],
)
def test_what_is_refused(server: Server, client: RemotingClient, wrong: bytes, says: str) -> None:
    before = len(server.gateway.locks)
    for code in (LOCK, UNLOCK):
        answer = client.ask(code, None, wrong)
        assert answer.code == 1
        assert says in (answer.remark or "")
        assert len(answer.remark or "") < 400
    assert len(server.gateway.locks) == before


def test_numbers_as_text(client: RemotingClient) -> None:
    asked = body("c", "text", {**queue(0), "queueId": "3"})
    assert locked(client.ask(LOCK, None, asked, language="CPP", version=63)) == [3]


def test_there_is_a_most() -> None:
    time = [0]
    locks = Locks(lambda: time[0], most=9)
    queues = [LockedQueue("t", "b", number) for number in range(5)]
    assert locks.lock("g", queues, "one", "a") == queues[:3]
    assert locks.lock("h", queues, "two", "a") == queues[:1]
    assert locks.lock("g", queues, "one", "a") == queues[:3]
    assert locks.lock("i", queues, "three", "b") == queues[:2]
    time[0] = LOCK_MILLIS
    assert locks.lock("h", queues[1:], "two", "a") == []
    time[0] += 1
    assert locks.lock("h", queues[:2], "two", "a") == queues[:2]
    assert len(locks) == 2


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["lock", "unlock"]), NAMES, NAMES, st.sets(st.integers(0, 3))),
    st.tuples(st.just("wait"), st.sampled_from([1, 30_000, 60_000, 60_001])),
)


@given(st.lists(STEPS, max_size=40))
def test_it_is_as_a_plain_model_says(steps: list[tuple]) -> None:
    """The model keeps who locked what when, as a list of all that happened."""
    now = [1_000]
    locks = Locks(lambda: now[0])
    history: list[tuple[str, int, str, int]] = []  # group, queue, client, time

    def owner(group: str, number: int, at: int) -> tuple[str, bool] | None:
        """Return the client, and whether its lock still lives."""
        for past in reversed(history):
            if past[:2] == (group, number):
                return (past[2], at - past[3] <= LOCK_MILLIS) if past[2] else None
        return None

    for step in steps:
        if step[0] == "wait":
            now[0] += step[1]
            continue
        kind, group, who, numbers = step
        queues = [LockedQueue("t", "b", number) for number in sorted(numbers)]
        owners = {one: owner(group, one.queue_id, now[0]) for one in queues}
        if kind == "lock":
            free = [
                one for one, has in owners.items() if has is None or not has[1] or has[0] == who
            ]
            assert locks.lock(group, queues, who, "a") == free
            history += [(group, one.queue_id, who, now[0]) for one in free]
        else:
            locks.unlock(group, queues, who)
            mine = [one for one, has in owners.items() if has is not None and has[0] == who]
            history += [(group, one.queue_id, "", now[0]) for one in mine]
        for name in ("a", "b"):
            for number in range(4):
                has = owner(name, number, now[0])
                held = locks.holder(name, LockedQueue("t", "b", number))
                assert held == (has[0] if has is not None and has[1] else None)


def test_expired_locks_are_forgotten_between_others() -> None:
    """As many as are needed, some a step."""
    now = [0]
    locks = Locks(lambda: now[0], most=3000)
    queues = [LockedQueue("t", "b", number) for number in range(1000)]
    assert len(locks.lock("g", queues, "one", "a")) == 1000
    assert len(locks.lock("h", queues, "one", "b")) == 667
    now[0] = LOCK_MILLIS + 1
    assert locks.lock("g", queues[:10], "one", "a") == queues[:10]  # renewed, so not forgotten
    shares = locks._shares
    shares.take((("owner", "x"),), 1200)  # somebody has more meanwhile
    before = len(locks)
    counts = [len(locks) for _ in locks.make_room("i", "b")]
    assert all(0 < more - less <= 64 for more, less in itertools.pairwise([before, *counts]))
    assert len(counts) > 2
    assert locks.holder("g", queues[9]) == "one"
    assert locks.lock("i", queues[:1], "one", "b") == queues[:1]
    assert len(locks) < before
    assert {len(locks._renewed)} == {sum(map(len, locks._groups.values()))}
