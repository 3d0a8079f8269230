"""A request that is answered is gone at once: nothing of it waits for the garbage collector.

Uncounted, that would be as much as clients send until it runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.admin import forwarding, resets
from rmqstore.serve.producing import replies
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.frames import Request
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until

END = 37
FIELDS: dict[str, object] = {
    "topic": "orders", "group": "g", "consumerGroup": "g", "producerGroup": "p", "clientId": "c",
    "clientID": "c", "queueId": 0, "offset": 0, "key": "k", "maxNum": 1, "beginTimestamp": 0,
    "endTimestamp": 1, "timestamp": 0, "queueOffset": 5, "maxMsgNums": 1, "sysFlag": 6,
    "commitOffset": 0, "suspendTimeoutMillis": 100, "subVersion": 0, "subscription": "*",
    "delayLevel": 0, "a": "p", "b": "made", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
    "i": "REPLY_TO_CLIENT\1c\2", "j": 0, "k": "false", "m": "false",
}  # fmt: skip


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(forwarding, "_SECONDS", 0.2)
    monkeypatch.setattr(resets, "_STATUS_SECONDS", 0.2)
    monkeypatch.setattr(replies, "_PUSH_SECONDS", 0.2)
    config = StoreConfig.small(flush_disk_type=request.param)
    with Server(None, Settings(), config) as made:
        made.store.create_topic("orders", queue_nums=2)
        made.gateway.shared.hot_sends = False
        gc.collect()
        gc.disable()
        try:
            yield made
        finally:
            gc.enable()


def held_requests() -> list[Request]:
    return [one for one in gc.get_objects() if isinstance(one, Request)]


@pytest.fixture
def forgotten(server: Server) -> Callable[[], bool]:
    """Wait until no request is answered later; whether none of this test is left."""
    gateway = server.gateway
    # Free-threaded 3.13 keeps all classes, so each mock's, and the traceback of an error it raised.
    earlier = held_requests()

    def left() -> list[int]:
        return [one.code for one in held_requests() if not any(one is old for old in earlier)]

    def wait() -> bool:
        wait_until(
            lambda: not server.in_loop(lambda: gateway.connections.unanswered or len(gateway.holds))
        )
        found = server.in_loop(left)
        print(f"what is left: {found}")
        return not found

    return wait


@pytest.mark.parametrize("fields", [None, FIELDS, {"topic": "a/b", "group": "%", "queueId": "x"}])
def test_all_kinds(
    server: Server, forgotten: Callable[[], bool], fields: dict[str, object] | None
) -> None:
    with RemotingClient(server.address) as client:
        for code in (*server.gateway.handlers, 9999):
            for body in (b"", b"{", b"[]"):
                number = client.send(code, fields, body)
                if code != END or fields is None:  # an unknown end has no answer
                    client.answer(number)
        assert forgotten()


@pytest.mark.parametrize("how", ["timeout", "consumer is gone", "asker is gone", "answered"])
def test_what_a_consumer_answers(server: Server, forgotten: Callable[[], bool], how: str) -> None:
    stored = server.store.put("orders", b"x", queue_id=0)
    with RemotingClient(server.address) as member, RemotingClient(server.address) as client:
        body = heartbeat("c", [consumer("g", {"orders": "*"})], [])
        assert member.ask(34, None, body).code == 0
        fields = {**FIELDS, "msgId": stored.msg_id}
        asked = [client.send(code, fields) for code in (223, 307, 309, 325)]
        requests = [member.next_request(code) for code in (221, 307, 309, 326)]
        if how == "consumer is gone":
            member.close()
        if how == "asker is gone":
            client.close()
        elif how == "answered":
            for one in requests:
                member.reply(one, body=b"{}")
        if how != "asker is gone":
            for number in asked:
                client.answer(number)
        assert forgotten()
