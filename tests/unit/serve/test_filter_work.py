"""Pulls with costly filters: each look has a budget of work, and the pull goes on behind it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rmqstore._core import PullFilter
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient
from support.serving import bodies, consumer, heartbeat, on_loop, wait_until

SUSPEND, SUBSCRIPTION = 2, 4
COUNT = 200
COSTLY = " AND TRUE" * 7000  # 21,000 steps, of 1,048,576 a look


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("costly", 4)
        for number in range(COUNT):
            made.store.put("costly", b"%d" % number, queue_id=0, properties={"n": str(number)})
        made.store.get("costly", 0, COUNT - 1)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def fields(offset: int, expression: str, *, queue: int = 0, suspend: int = 0) -> dict[str, object]:
    assert len(expression) <= 64 << 10
    return {
        "consumerGroup": "g", "topic": "costly", "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": str(SUBSCRIPTION | (SUSPEND if suspend else 0)),
        "commitOffset": "0", "suspendTimeoutMillis": str(suspend), "subscription": expression,
        "expressionType": "SQL92", "subVersion": "0",
    }  # fmt: skip


def following(frame: Frame) -> int:
    assert frame.fields is not None
    return int(frame.fields["nextBeginOffset"])


def pulled_all(client: RemotingClient, asked: dict[str, object]) -> tuple[list[bytes], int]:
    """Pull from 0 to the end, as a client does."""
    found: list[bytes] = []
    offset, rounds = 0, 0
    while offset < COUNT:
        answer = client.ask(11, asked | {"queueOffset": str(offset)})
        assert answer.code == (0 if answer.body else 20)  # PULL_RETRY_IMMEDIATELY
        assert offset < following(answer) <= COUNT
        found += bodies(answer)
        offset, rounds = following(answer), rounds + 1
    return found, rounds


def test_a_pull_is_answered_after_its_budget(client: RemotingClient) -> None:
    """And the next one goes on, until all was examined."""
    for expression, wanted in (("n = 190 OR n = 3", [b"3", b"190"]), ("n = 1000", [])):
        found, rounds = pulled_all(client, fields(0, f"({expression}){COSTLY}"))
        assert found == wanted
        assert 4 <= rounds <= 6  # some 50 messages a look
    assert pulled_all(client, fields(0, "n = 190")) == ([b"190"], 1)


def test_the_subscription_of_a_heartbeat_has_the_same(client: RemotingClient) -> None:
    expression = f"(n = 190){COSTLY}"
    client.ask(34, None, heartbeat("c", [
        consumer("beating", {"costly": expression}, version=7, kind="SQL92")]))  # fmt: skip
    asked = fields(0, "") | {"consumerGroup": "beating", "sysFlag": "0", "subVersion": "7"}
    found, rounds = pulled_all(client, asked)
    assert (found, 4 <= rounds <= 6) == ([b"190"], True)


def test_a_held_pull_goes_on_behind_its_budget(server: Server, client: RemotingClient) -> None:
    """More comes at once than one look examines; what is wanted is at its end."""
    number = client.send(11, fields(0, f"(n = 7){COSTLY}", queue=1, suspend=30_000))
    wait_until(lambda: on_loop(server, lambda gateway: len(gateway.holds)) == 1)
    server.store.put_many("costly", [b"x"] * COUNT, queue_id=1)
    server.store.put("costly", b"wanted", queue_id=1, properties={"n": "7"})
    answer = client.answer(number)
    assert (answer.code, bodies(answer), following(answer)) == (0, [b"wanted"], COUNT + 1)
    assert on_loop(server, lambda gateway: len(gateway.holds)) == 0


@pytest.mark.parametrize("beating", [True, False])
def test_long_lists_of_tags_are_kept_parsed_within_a_bound(
    server: Server, client: RemotingClient, beating: bool
) -> None:
    """16 MiB: 4,000 tags have some 640 KiB, of 28 KB of text."""
    wanted = {f"g{n}": "||".join(f"{n}-{tag}" for tag in range(4000)) for n in range(40)}
    groups = [consumer(group, {"costly": tags}) for group, tags in wanted.items()]
    for some in (groups[:20], groups[20:]) if beating else ():
        assert client.ask(34, None, heartbeat("c", some)).code == 0
    server.store.put("costly", b"this", queue_id=3, tags="39-3999")
    for group, tags in wanted.items():
        asked = fields(0, tags, queue=3) | {"consumerGroup": group, "expressionType": "TAG"}
        if beating:
            asked |= {"sysFlag": "0", "subscription": ""}
        answer = client.ask(11, asked)
        assert answer.code == (0 if group == "g39" else 20)
    gc.collect()
    assert 10 < sum(isinstance(one, PullFilter) for one in gc.get_objects()) < 30
