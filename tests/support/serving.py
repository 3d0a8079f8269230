"""Parts of tests of a gateway: bodies of heartbeats and answers, and the state of its loop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rmqstore

if TYPE_CHECKING:
    from rmqstore.serve import Server
    from support.remoting import Frame

__all__ = ["bodies", "consumer", "end_holds", "heartbeat", "on_loop", "wait_until"]


def bodies(frame: Frame) -> list[bytes]:
    """Return the bodies of the records in an answer."""
    found, records = [], frame.body
    while records:
        size = int.from_bytes(records[:4], "big")
        found.append(rmqstore.decode_record(records[:size]).body)
        records = records[size:]
    return found


def consumer(
    group: str, topics: dict[str, str], *, version: int = 1, kind: str = "TAG", **other: Any
) -> dict[str, Any]:
    """Return a consumer group of a heartbeat; its topics with their expressions."""
    subscriptions = [
        {"classFilterMode": False, "codeSet": [], "expressionType": kind, "subString": expression,
         "subVersion": version, "tagsSet": [], "topic": topic}
        for topic, expression in topics.items()
    ]  # fmt: skip
    return {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
        "groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": subscriptions,
        "unitMode": False,
    } | other  # fmt: skip


def heartbeat(
    client_id: str,
    consumers: list[dict[str, Any]] | None = None,
    producers: list[str] | None = None,
) -> bytes:
    """Return the body of a heartbeat, as Java writes it."""
    return json.dumps({
        "clientID": client_id, "consumerDataSet": consumers or [],
        "producerDataSet": [{"groupName": name} for name in producers or []],
    }).encode()  # fmt: skip


def on_loop(server: Server, ask: Callable[[Any], Any]) -> Any:
    """Return what ``ask(gateway)`` returns in the gateway's loop."""
    done = threading.Event()
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(ask(server.gateway))
        finally:
            done.set()

    server.gateway.work.loop.call_soon_threadsafe(run)
    assert done.wait(60)
    return found[0]


def end_holds(server: Server) -> None:
    """End the held pulls, as their timers do: a test that is late would not see them held."""

    def end(gateway: Any) -> None:
        for ends in list(gateway.holds._ending):
            gateway.holds._expire(ends)

    on_loop(server, end)


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to hold"
        time.sleep(0.002)
