"""Compressed bodies and traces beside the real client's own code."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqstore
from interop.driver import Driver
from rmqstore import StoreConfig, traces

COMPRESSED = 1


def test_a_real_consumer_inflates_what_ours_deflated(
    start: Callable[[], Driver], tmp_path: Path, seed: str, compared: Any
) -> None:
    draw = random.Random(seed)
    real = start()
    real.reset()
    bodies = [b"", b"x", b"y" * 99, b"z" * 100, bytes(70_000)]
    bodies += [draw.randbytes(draw.randrange(1, 3000)) * draw.randrange(1, 4) for _ in range(60)]
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small(compress_above=100)) as store:
        for body in bodies:
            store.put("t", body, queue_id=0)
        store.put_many("t", bodies, queue_id=0)
        messages = list(store["t"][0])
        assert [m.body for m in messages] == bodies * 2
    real.open(tmp_path / "s", {"mappedFileSizeCommitLog": 16 << 20,
                               "mappedFileSizeConsumeQueue": 120_000,
                               "maxHashSlotNum": 50_000, "maxIndexNum": 200_000})  # fmt: skip
    raw = [unit[6]["raw"] for unit in real.dump("t", raw=True)]
    real.shutdown()
    assert real.inflated(raw) == bodies * 2
    deflated = real.deflated(bodies)
    for message, body, theirs in zip(messages, bodies * 2, deflated * 2, strict=True):
        large = len(body) >= 100
        assert message.sys_flag == (COMPRESSED if large else 0)
        assert bytes(message.raw_body) == (zlib.compress(body, 5) if large else body)
        if large:  # the same library made it, or at least the same stream
            assert zlib.decompress(theirs) == zlib.decompress(message.raw_body)
            compared("client bodies of equal bytes", int(theirs == bytes(message.raw_body)) + 1)


def bean(draw: random.Random) -> dict[str, Any]:
    return {
        "topic": draw.choice(["orders", "%RETRY%g"]),
        "msg_id": f"{draw.getrandbits(128):032X}",
        "tags": draw.choice([None, "TagA", "\u00e4\U0001f600"]),
        "keys": draw.choice([None, "", "k1", "k1 k2"]),
        "store_host": "10.0.0.1:10911",
        "body_length": draw.randrange(1 << 20),
        "retry_times": draw.randrange(3),
        "message_type": draw.randrange(4),
        "offset_msg_id": draw.choice([None, "7F0000010000"]),
        "transaction_id": draw.choice([None, "tx-1"]),
        "state": draw.randrange(3),
        "from_check": draw.random() < 0.5,
    }


def context(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["Pub", "SubBefore", "SubAfter", "EndTransaction"])
    return {
        "type": kind,
        "time": draw.randrange(1 << 41),
        "region": draw.choice(["", "cn"]),
        "group": draw.choice(["g", "%g-1"]),
        "cost": draw.randrange(1000),
        "success": draw.random() < 0.5,
        "request_id": f"{draw.getrandbits(64):X}",
        "context_code": draw.randrange(5),
        "beans": [bean(draw) for _ in range(draw.randrange(1, 4) if "Sub" in kind else 1)],
    }


def keys_of(text: str) -> tuple[str, ...]:
    return () if text == "null" else tuple(text.split())


def absent(text: str) -> str | None:
    return None if text in ("", "null") else text


def test_traces_are_read_as_the_real_client_reads_them(
    start: Callable[[], Driver], seed: str, compared: Any
) -> None:
    draw = random.Random(seed)
    real = start()
    contexts = [context(draw) for _ in range(500)]
    for given, (body, read) in zip(contexts, real.traces(contexts), strict=True):
        ours = traces.decode_traces(body)
        if read is None:  # it cannot read what it wrote where the last field is empty
            assert any(one["keys"] == "" for one in given["beans"])
            assert [(type(one).__name__, one.msg_id) for one in ours] == [
                ("SubBefore", one["msg_id"]) for one in given["beans"]
            ]
            continue
        assert len(ours) == len(read) == len(given["beans"])
        for trace, theirs, sent in zip(ours, read, given["beans"], strict=True):
            (kind, at, group, cost, success, request_id, code, topic, msg_id, tags, keys,
             store_host, length, retries, message_type, offset_id, transaction_id, state,
             checked) = theirs  # fmt: skip
            assert type(trace).__name__ == kind == given["type"]
            assert not isinstance(trace, traces.UnknownTrace)
            assert (trace.time, trace.group) == (at, group) == (given["time"], given["group"])
            assert (trace.msg_id, trace.keys) == (msg_id, keys_of(keys))
            assert trace.msg_id == sent["msg_id"]
            if isinstance(trace, traces.Pub):
                assert (trace.topic, trace.tags, trace.store_host) == (
                    topic, absent(tags), store_host
                )  # fmt: skip
                assert (trace.body_length, trace.cost, trace.success) == (length, cost, success)
                assert (trace.message_type, trace.offset_msg_id) == (
                    message_type, absent(offset_id)
                )  # fmt: skip
            elif isinstance(trace, traces.SubBefore):
                assert (trace.request_id, trace.retry_times) == (request_id, retries)
            elif isinstance(trace, traces.SubAfter):
                assert (trace.request_id, trace.cost, trace.success, trace.context_code) == (
                    request_id, cost, success, code
                )  # fmt: skip
            else:
                assert (trace.topic, trace.tags) == (topic, absent(tags))
                assert (trace.message_type, trace.state, trace.from_check) == (
                    message_type, state, checked
                )  # fmt: skip
                assert trace.transaction_id == transaction_id
        compared("traces", len(ours))
