"""Held pulls against a plain model: each is answered exactly when something it wants is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient
from support.serving import on_loop, wait_until

SUSPEND, SUBSCRIPTION = 2, 4
QUEUES = 3
EXPRESSIONS = ("*", "a", "b || c", "SQL:n > 5", "SQL:n < 3 AND TAGS = 'a'", "nobody")

_topics = iter(range(1 << 30))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        yield made


@dataclass
class Waiting:
    """A pull that the model has not answered: of a client, and from an offset of a queue."""

    client: int
    opaque: int
    queue: int
    offset: int
    expression: str


def wanted(expression: str, tag: str, n: int) -> bool:
    return {
        "*": True, "a": tag == "a", "b || c": tag in "bc", "SQL:n > 5": n > 5,
        "SQL:n < 3 AND TAGS = 'a'": n < 3 and tag == "a", "nobody": False,
    }[expression]  # fmt: skip


puts = st.tuples(
    st.just("put"),
    st.lists(
        st.tuples(st.integers(0, QUEUES - 1), st.sampled_from("abcd"), st.integers(0, 9)),
        min_size=1, max_size=5,
    ),
)  # fmt: skip
pulls = st.tuples(
    st.just("pull"), st.integers(0, 1), st.integers(0, QUEUES - 1), st.sampled_from(EXPRESSIONS)
)
losses = st.tuples(st.just("lose"), st.integers(0, 1))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(puts, pulls, pulls, losses), max_size=25))
def test_pulls_are_answered_exactly_when_what_they_want_is_there(
    server: Server, steps: list[tuple]
) -> None:
    topic = f"t{next(_topics)}"
    server.store.create_topic(topic, QUEUES)
    stored: list[list[tuple[str, int]]] = [[] for _ in range(QUEUES)]
    waiting: list[Waiting] = []
    clients = [RemotingClient(server.address) for _ in range(2)]
    try:
        for step in steps:
            if step[0] == "put":
                for queue, tag, n in step[1]:
                    stored[queue].append((tag, n))
                    server.store.put(topic, b"%d" % (len(stored[queue]) - 1), queue_id=queue,
                                     tags=tag, properties={"n": str(n)})  # fmt: skip
                server.store.get(topic, 0, 1 << 40)  # all are dispatched
            elif step[0] == "pull":
                _, number, queue, expression = step
                end = len(stored[queue])
                sql = expression.removeprefix("SQL:")
                opaque = clients[number].send(11, {
                    "consumerGroup": "g", "topic": topic, "queueId": queue, "queueOffset": end,
                    "maxMsgNums": 32, "sysFlag": SUSPEND | SUBSCRIPTION, "commitOffset": 0,
                    "suspendTimeoutMillis": 600_000, "subVersion": 0, "subscription": sql,
                    "expressionType": "TAG" if sql == expression else "SQL92",
                })  # fmt: skip
                waiting.append(Waiting(number, opaque, queue, end, expression))
            else:
                clients[step[1]].close()
                clients[step[1]] = RemotingClient(server.address)
                waiting = [one for one in waiting if one.client != step[1]]
            still = []
            for one in waiting:
                expected = [
                    at
                    for at in range(one.offset, len(stored[one.queue]))
                    if wanted(one.expression, *stored[one.queue][at])
                ]
                if not expected:
                    still.append(one)
                    continue
                answer = clients[one.client].answer(one.opaque)
                assert (answer.code, answer.remark) == (0, "FOUND")
                found, records = [], answer.body
                while records:
                    size = int.from_bytes(records[:4], "big")
                    found.append(int(rmqstore.decode_record(records[:size]).body))
                    records = records[size:]
                # Those that came while it was answered are in the next pull.
                assert found == expected[: len(found)]
                assert found
            waiting = still
            held = len(waiting)
            wait_until(lambda held=held: on_loop(server, lambda g: len(g.holds)) == held)
        for client in clients:
            assert client.is_quiet(0.002)  # nobody was woken for nothing
    finally:
        for client in clients:
            client.close()
    wait_until(lambda: on_loop(server, lambda g: len(g.holds)) == 0)
