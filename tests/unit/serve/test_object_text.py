"""JSON with objects as keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.serve.network.turns import ended
from rmqstore.serve.wire.objecttext import (
    PAUSE,
    Entries,
    MessageQueue,
    dumps,
    dumps_in_steps,
    loads,
)

pytestmark = pytest.mark.pure

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


def test_steps_write_the_same() -> None:
    """Objects and lists that are made when they are written, in each other, with pauses."""
    queues = [MessageQueue("b", number, '\u00fc"t') for number in range(40)]

    def pairs() -> Iterator[tuple[MessageQueue, dict[str, int]]]:
        for queue in queues:
            yield PAUSE
            yield queue, {"offset": queue.queue_id}

    def items() -> Iterator[object]:
        yield None
        yield Entries([])
        yield PAUSE
        yield iter(())
        yield {"queue": queues[0], "numbers": {1: 2.5}}

    lazy = Entries([("table", Entries(pairs())), ("list", items()), ("plain", [1, "x", None])])
    plain = {
        "table": {queue: {"offset": queue.queue_id} for queue in queues},
        "list": [None, {}, [], {"queue": queues[0], "numbers": {1: 2.5}}],
        "plain": [1, "x", None],
    }
    assert ended(dumps_in_steps(lazy)) == dumps(plain)
    assert len(list(dumps_in_steps(Entries(pairs())))) >= 40 // 16


def test_nothing_is_kept_of_what_is_made_for_steps() -> None:
    seen: list[int] = []
    steps = dumps_in_steps(iter(seen.append(number) or number for number in range(1000)))
    next(steps)
    assert 0 < len(seen) < 40
