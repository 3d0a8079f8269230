"""Trace messages and replies as values; what they cannot be read as."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.replies import Exchange, exchange_of, is_reply_topic
from rmqstore.traces import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    UnknownTrace,
    decode_traces,
    is_trace_topic,
)

PUB = ["Pub", "1700000000123", "cn", "g", "orders", "ID1", "TagA", "k1 k2", "10.0.0.1:10911",
       "12", "3", "0", "OFF1", "true"]  # fmt: skip
BEFORE = ["SubBefore", "1700000000124", "cn", "g2", "R1", "ID1", "1", "k1"]
AFTER = ["SubAfter", "R1", "ID1", "7", "false", "k1", "4", "1700000000131", "g2"]
END = ["EndTransaction", "1700000000125", "cn", "g", "orders", "ID1", "null", "null",
       "10.0.0.1:10911", "2", "tx", "COMMIT_MESSAGE", "false"]  # fmt: skip


def body(*parts: list[str]) -> bytes:
    return "".join("\x01".join(part) + "\x02" for part in parts).encode()


def test_what_clients_write() -> None:
    assert decode_traces(body(PUB, BEFORE, AFTER, END)) == [
        Pub(1700000000123, "cn", "g", "orders", "ID1", "TagA", ("k1", "k2"), "10.0.0.1:10911", 12,
            3, "Normal_Msg", "OFF1", True),
        SubBefore(1700000000124, "cn", "g2", "R1", "ID1", 1, ("k1",)),
        SubAfter("R1", "ID1", 7, False, ("k1",), 4, 1700000000131, "g2"),
        EndTransaction(1700000000125, "cn", "g", "orders", "ID1", None, (), "10.0.0.1:10911",
                       "Trans_msg_Commit", "tx", "COMMIT_MESSAGE", False),
    ]  # fmt: skip


def test_other_versions() -> None:
    [old] = decode_traces(body([*PUB[:12], "true"]))
    assert (old.offset_msg_id, old.success, old.client_host) == (None, True, None)
    [new] = decode_traces(body([*PUB, "10.0.0.9", "more"]))
    assert (new.offset_msg_id, new.success, new.client_host) == ("OFF1", True, "10.0.0.9")
    [after] = decode_traces(body(AFTER[:6]))
    assert (after.context_code, after.time, after.group) == (None, None, None)
    [before] = decode_traces(body(BEFORE[:7]))  # 4.9.3 cannot read an empty last field
    assert before.keys == ()


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (["Nothing", "1"], "no kind of trace is called 'Nothing'"),
        (PUB[:9], "Pub with 8 fields, which are too few"),
        ([*PUB[:1], "x", *PUB[2:]], "the time is 'x', no number"),
        ([*PUB[:1], "9" * 5000, *PUB[2:]], "the time is '999"),
        ([*PUB[:11], "4", *PUB[12:]], "the message type is 4, not 0 to 3"),
        ([*END[:11], "MAYBE", "true"], "the state is 'MAYBE', not one of COMMIT_MESSAGE"),
        (["\u0661"], "no kind of trace"),
    ],
)
def test_what_cannot_be_read_says_why_and_hides_nothing(part: list[str], reason: str) -> None:
    first, bad, last = decode_traces(body(AFTER, part, BEFORE))
    assert isinstance(first, SubAfter)
    assert isinstance(last, SubBefore)
    assert isinstance(bad, UnknownTrace)
    assert reason in bad.reason
    assert bad.text == "\x01".join(part)


@given(st.binary(max_size=200) | st.lists(st.sampled_from([*PUB, *END, *AFTER, *BEFORE, "\x02"]))
       .map(lambda words: "\x01".join(words).encode()))  # fmt: skip
def test_any_bytes(data: bytes) -> None:
    found = decode_traces(data)
    assert len(found) <= data.count(b"\x02") + 1
    for trace in found:
        assert not isinstance(trace, UnknownTrace) or trace.reason


@pytest.mark.parametrize("value", ["text", 5, None])
def test_what_is_no_body(value: Any) -> None:
    with pytest.raises(TypeError):
        decode_traces(value)


def test_names_of_topics() -> None:
    assert is_trace_topic("RMQ_SYS_TRACE_TOPIC")
    assert is_trace_topic("rmq_sys_TRACE_DATA_cn")
    assert not is_trace_topic("orders")
    assert is_reply_topic("DefaultCluster_REPLY_TOPIC")
    assert not is_reply_topic("orders")
    assert not is_reply_topic("_REPLY_TOPIC")


def test_requests_and_replies(store: rmqstore.MessageStore) -> None:
    request = "CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01client@1\x02TTL\x013000\x02CLUSTER\x01dc"
    done = store.core.put_stored("orders", 0, b"?", request)
    assert exchange_of(store.at(done.physical_offset)) == Exchange(
        "request", "c-1", "client@1", 3000, None, None, "dc"
    )
    reply = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c-1\x02TTL\x01soon\x02PUSH_REPLY_TIME\x0199"
    done = store.core.put_stored("dc_REPLY_TOPIC", 0, b"!", reply)
    assert exchange_of(store.at(done.physical_offset)) == Exchange(
        "reply", "c-1", None, None, None, 99, None
    )
    assert exchange_of(store.at(store.put("orders", b"").physical_offset)) is None
