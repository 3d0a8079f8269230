"""JSON with objects as keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.serve.wire.objecttext import MessageQueue, dumps, loads

QUEUE = MessageQueue("broker-a", 2, "orders")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
QUEUES = st.builds(MessageQueue, TEXTS, st.integers(0, 99), TEXTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | QUEUES, inner, max_size=3),
    max_leaves=12,
)


def test_the_text_is_what_fastjson_writes() -> None:
    table = {"offsetTable": {QUEUE: {"maxOffset": 9}, MessageQueue("b", 0, "t"): {}}}
    assert dumps(table) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":2,"topic":"orders"}:{"maxOffset":9},'
        b'{"brokerName":"b","queueId":0,"topic":"t"}:{}}}'
    )
    assert dumps({1: 2, 3: [QUEUE, 1.5, None, True]}) == (
        b'{1:2,3:[{"brokerName":"broker-a","queueId":2,"topic":"orders"},1.5,null,true]}'
    )


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"{{}:1}", b'{{"a":1}:1}', b'{{"brokerName":"b","queueId":"1","topic":"t"}:1}',
        b'{{"brokerName":{},"queueId":1,"topic":"t"}:1}', b"{{", b'{{"a":1', b"{{{{{{", b"\xff",
        b'{{"brokerName":"b","queueId":1,"topic":"t"}1}', b"[" * 1000, b'{"a":' * 1000,
    ],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|codec"):
        loads(text)
