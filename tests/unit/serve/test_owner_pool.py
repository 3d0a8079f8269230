"""Look-ups have threads of their own, of which nobody has all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.network.ownerpool import OwnerPool
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient
from support.serving import bodies, wait_until
from support.unread import is_settled

pytestmark = pytest.mark.pure

LONG_MAX = (1 << 63) - 1
SEND = {"a": "p", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
        "k": "false", "m": "false"}  # fmt: skip


def query(key: str) -> dict[str, object]:
    return {"topic": "orders", "key": key, "maxNum": 1, "beginTimestamp": 0,
            "endTimestamp": LONG_MAX}  # fmt: skip


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def server(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a server whose look-ups for ``slow`` wait for the gate."""
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.put("orders", b"1", keys=["slow", "k"])
        locate = made.store.core.locate

        def slow(topic: str, keys: list[str], *other: Any) -> Any:
            if keys == ["slow"]:
                assert gate.wait(60)
            return locate(topic, keys, *other)

        monkeypatch.setattr(made.store.core, "locate", slow)
        yield made
        gate.set()


def test_others_are_served_beside_slow_look_ups(server: Server, gate: threading.Event) -> None:
    """Other look-ups, and all else that is done in threads."""
    many = [RemotingClient(server.address) for _ in range(3)]
    asked = [(one, one.send(12, query("slow"))) for one in many for _ in range(60)]
    wait_until(
        lambda: server.in_loop(lambda: sum(server.gateway.pools.lookups._running.values())) == 2
    )
    with RemotingClient(server.address, source="127.0.0.2") as other:
        assert bodies(other.ask(12, query("k"), seconds=20)) == [b"1"]
        assert other.ask(310, SEND | {"b": "new"}, b"x", seconds=20).code == 0
    assert server.in_loop(lambda: sum(server.gateway.pools.lookups._running.values())) == 2
    gate.set()
    for one, number in asked:
        assert bodies(one.answer(number)) == [b"1"]
    assert is_settled(server)
    for one in many:
        one.close()


def test_look_ups_of_who_is_gone_are_not_made(server: Server, gate: threading.Event) -> None:
    with RemotingClient(server.address) as one:
        for _ in range(60):
            one.send(12, query("slow"))
        lookups = server.gateway.pools.lookups
        wait_until(lambda: server.in_loop(lambda: sum(map(len, lookups._waiting.values()))) == 58)
    gate.set()
    assert is_settled(server)


class Caller:
    """A connection, as far as a pool knows one."""

    is_open = True

    def __init__(self, owner: str) -> None:
        self.owner = self.peer = owner


def test_owners_take_turns() -> None:
    async def run() -> list[str]:
        pool, made = OwnerPool("test", 1), []  # of two threads, one may be late with its own
        calls = [pool.run(Caller(name), made.append, name) for name in "aaaaabbc"]
        await asyncio.gather(*calls)
        assert (pool._free, pool._running, pool._waiting) == (1, {}, {})
        pool.close()
        return made

    made = asyncio.run(run())
    assert sorted(made) == list("aaaaabbc")
    assert set(made[:6]) >= set("abc")


def test_who_is_cancelled_leaves_no_thread_taken() -> None:
    async def run() -> None:
        pool, gate = OwnerPool("test", 2), threading.Event()
        tasks = [asyncio.create_task(pool.run(Caller("a"), gate.wait, 10)) for _ in range(5)]
        await asyncio.sleep(0.01)
        tasks[3].cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (pool._free, pool._running, pool._waiting) == (2, {}, {})
        pool.close()

    asyncio.run(run())


ADDED = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}


def test_who_changes_much_leaves_threads_to_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends to new topics have one of their own; other owners change what they want to."""
    store, opened = server.store, threading.Event()
    change = server.gateway.new_groups.change

    def slow(name: str, new: Any) -> None:
        if name.startswith("slow"):
            assert opened.wait(60)
        change(name, new)

    monkeypatch.setattr(server.gateway.new_groups, "change", slow)
    many = [RemotingClient(server.address) for _ in range(3)]
    group = {"retryMaxTimes": 3}
    asked = [
        (one, one.send(200, None, json.dumps(group | {"groupName": f"slow{n}"}).encode()))
        for one in many
        for n in range(60)
    ]
    wait_until(lambda: server.gateway.requests[200] == 180)
    with RemotingClient(server.address, source="127.0.0.2") as other:
        mine = json.dumps(group | {"groupName": "mine"}).encode()
        assert other.ask(200, None, mine, seconds=20).code == 0
        assert other.ask(17, {"topic": "made", **ADDED}, seconds=20).code == 0
        assert other.ask(215, {"topic": "made"}, seconds=20).code == 0
        assert other.ask(310, SEND | {"b": "new"}, b"x", seconds=20).code == 0
    opened.set()
    for one, number in asked:
        assert one.answer(number).code == 0
    for one in many:
        one.close()
    assert {f"slow{n}" for n in range(60)} | {"mine"} <= set(store.groups)
