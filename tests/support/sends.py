"""Sends as producers write them: fields of both forms, both headers, bodies of batches."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.frames import Request
from support import frame_oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqstore import Message
    from support.remoting import Frame, RemotingClient

__all__ = ["BATCH", "BORN", "FAQ", "ILLEGAL", "LONG", "OK", "SHORT", "SHORT_NAMES", "batch",
           "deflated", "fields_of", "made", "need_ipv6", "only", "send", "wait_for"]  # fmt: skip

LONG, SHORT, BATCH = 10, 310, 320
REPLY, SHORT_REPLY = 324, 325
OK = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
BORN = 1_795_190_702_924
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 128k, msg properties length limit 32k."
)
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SHORT_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip


def made(config: StoreConfig | None = None, *, hot: bool = False, **settings: Any) -> Server:
    server = Server(None, Settings(**settings), config or StoreConfig.small())
    server.gateway.shared.hot_sends = hot
    server.store.create_topic("orders", 4)
    return server


def only(server: Server, topic: str, queue_id: int) -> Message:
    """Return the one message of a queue."""
    queue = server.store[topic][queue_id]
    assert len(queue) == 1
    return queue[0]


def fields_of(code: int, topic: str | None, **changed: object) -> dict[str, object]:
    """Return the ext fields of a send by their long names or, as the code wants, short ones.

    ``None`` leaves a field out.
    """
    fields: dict[str, object] = {
        "producerGroup": "Producer", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1000",
        "flag": "0", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "true" if code == BATCH else "false", **changed,
    }  # fmt: skip
    short = code not in (LONG, REPLY)
    return {
        SHORT_NAMES.get(name, name) if short else name: value
        for name, value in fields.items()
        if value is not None
    }


def send(
    client: RemotingClient,
    topic: str | None,
    body: bytes,
    *,
    code: int = SHORT,
    binary: bool = False,
    oneway: bool = False,
    version: int = 399,
    language: str = "JAVA",
    **changed: object,
) -> Frame:
    """Send a message and return the answer; of a oneway one an empty answer that never came."""
    fields = fields_of(code, topic, **changed)
    flag = 2 if oneway else 0
    if binary:
        client._opaque += 1
        opaque = client._opaque
        texts = {name: str(value) for name, value in fields.items()}
        request = Request(code, texts, body, opaque, flag, language, version)
        client.socket.sendall(frame_oracle.encode_binary(request))
    else:
        opaque = client.send(code, fields, body, flag=flag, version=version, language=language)
    if oneway:
        from support.remoting import Frame

        return Frame(-1, None, b"", flag, opaque, None)
    return client.answer(opaque)


def batch(messages: Iterable[tuple[bytes, str, int]]) -> bytes:
    """Return the body of a batch: of each message body, properties and flag."""
    made = []
    for body, properties, flag in messages:
        text = properties.encode()
        size = 22 + len(body) + len(text)
        made.append(
            struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body
            + struct.pack(">h", len(text)) + text
        )  # fmt: skip
    return b"".join(made)


def deflated(body: bytes) -> bytes:
    """Return a body as clients deflate it."""
    return zlib.compress(body, 5)


def need_ipv6() -> None:
    """Skip a test where there is no loopback of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as made:
            made.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")


def wait_for(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to hold"
        time.sleep(0.005)
