"""Random sends, valid or not: the core's way and the handlers' accept and store the same."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient
from support.sends import BATCH, LONG, SHORT, send

QUEUES = 3
MOST = 64 << 10  # bytes of a record
NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch",
)  # fmt: skip
NUMBERS = ("", "x", "0", "+1", "-1", "-0", "007", " 1", "1.0", "\u0663", "2147483647",
           "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
           "9223372036854775808", "99999999999999999999")  # fmt: skip
TEXTS = ("", "p", "p q", "a\u00e4", "\u20ac" * 1024, "x" * 1024, "x" * 1025)
TOPICS = ("known", "none", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "TBW102",
          "", "a.b", "../x", "known ", "x" * 128, "read", "tags")  # fmt: skip
TRUTHS = ("true", "false", "TRUE", "1", "0", "", "yes")
ODD = {
    **dict.fromkeys(NAMES, NUMBERS),
    **dict.fromkeys(("producerGroup", "defaultTopic"), TEXTS),
    **dict.fromkeys(("unitMode", "batch"), TRUTHS),
    "topic": TOPICS,
    "properties": ("", "\1", "\2", "a", "a\1", "\1b", "a\1b\1c", "a\1b\2a\1c"),
}
CHANGES = st.lists(
    st.sampled_from(NAMES).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from((None, *ODD[name])))
    ),
    max_size=2,
).map(dict)
VALUE = st.text(st.characters(codec="utf-8", exclude_characters="\1\2"), min_size=1, max_size=8)
PIECES = st.one_of(
    st.tuples(st.sampled_from(("TAGS", "KEYS", "a", "\u00e4", 'quo"te')), VALUE).map("\1".join),
    st.sampled_from((
        "", "\1", "a", "a\1", "\1b", "a\1b\1c", "WAIT\1true", "WAIT\1FALSE", "DELAY\0010",
        "DELAY\0013", "DELAY\1x", "TRAN_MSG\1false", "TRAN_MSG\1True", "PGROUP\1p", "CLUSTER\1c",
        "TIMER_DELAY_MS\0015", "INNER_MULTI_DISPATCH\1%LMQ%a", "__CRC32#\1x", "__CRC32#1\1x",
        "INNER_MULTI_QUEUE_OFFSET\0011",
    )),
)  # fmt: skip
PROPERTIES = st.one_of(
    st.lists(PIECES, max_size=4).map("\2".join),
    st.integers(32700, 32800).map(lambda size: "a\1" + "v" * size),
    st.integers(60, 70).map(lambda count: "\2".join(f"n{i}\1v" for i in range(count))),
)
BODY = st.one_of(
    st.binary(max_size=40), st.integers(MOST - 250, MOST + 10).map(lambda size: b"b" * size)
)
PARTS = st.lists(
    st.tuples(st.binary(max_size=20), PROPERTIES.map(str.encode), st.integers(-5, 5)), max_size=3
)
# Of a batch's body: bytes put in place of others.
DAMAGE = st.none() | st.tuples(st.integers(0, 80), st.binary(max_size=3))


def batch_of(parts: list[tuple[bytes, bytes, int]]) -> bytes:
    """Return the body of a batch."""
    made = b""
    for body, properties, flag in parts:
        made += struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        made += body + struct.pack(">H", len(properties) & 0xFFFF) + properties
    return made


@dataclass
class Sender:
    """A gateway, and a producer that sends to it on both ways."""

    server: Server
    client: RemotingClient

    def ask(
        self, hot: bool, code: int, body: bytes, binary: bool, fields: dict[str, str | None]
    ) -> Frame:
        self.server.gateway.shared.hot_sends = hot
        topic = fields.pop("topic")
        return send(self.client, topic, body, code=code, binary=binary, **fields)

    @property
    def taken(self) -> int:
        """Sends that the core has taken."""
        return sum(self.server.gateway.sends.requests().values())

    def compare(self, code: int, body: bytes, binary: bool, fields: dict[str, str | None]) -> bool:
        """Send on both ways, with the same outcome; return whether the core took the first."""
        before = self.taken
        first = self.outcome(self.ask(True, code, body, binary, dict(fields)))
        taken = self.taken - before
        assert self.outcome(self.ask(False, code, body, binary, dict(fields))) == first
        assert self.taken == before + taken
        return taken == 1

    def outcome(self, answer: Frame) -> tuple[object, ...]:
        """Return what must be the same on both ways: the answer, and the records."""
        fields = dict(answer.fields or {})
        ids = fields.pop("msgId", "")
        fields.pop("queueOffset", None)
        records = []
        for one in filter(None, ids.split(",")):
            message = self.server.store.at(int(one[-16:], 16))
            records.append((
                message.topic, message.queue_id, message.raw_body, message.properties,
                message.flag, message.sys_flag, message.born_timestamp, message.born_host,
                message.store_host, message.reconsume_times, message.prepared_transaction_offset,
            ))  # fmt: skip
        return answer.code, answer.remark, fields, records


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    config = StoreConfig.small(max_message_size=MOST, message_delay_level="1d")
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        for name in ("known", "read", "tags"):
            server.store.create_topic(name, QUEUES)
        yield Sender(server, client)


@given(
    st.sampled_from((SHORT, SHORT, LONG, BATCH)), st.integers(0, QUEUES), CHANGES, PROPERTIES,
    BODY, PARTS, DAMAGE, st.booleans(),
)  # fmt: skip
def test_both_ways_accept_and_store_the_same(
    sender: Sender,
    code: int,
    queue_id: int,
    changes: dict[str, str | None],
    properties: str,
    body: bytes,
    parts: list[tuple[bytes, bytes, int]],
    damage: tuple[int, bytes] | None,
    binary: bool,
) -> None:
    if code == BATCH or changes.get("batch") is not None:
        body = batch_of(parts)
        if damage is not None:
            at, put = damage
            body = body[:at] + put + body[at + len(put) :]
    fields: dict[str, str | None] = {
        "topic": "known", "queueId": str(queue_id), "properties": properties,
        "batch": "true" if code == BATCH else None, **changes,
    }  # fmt: skip
    if fields["queueId"] in ("-1", "-2147483648"):
        fields["queueId"] = "0"  # the broker chooses, and not the same twice
    taken = sender.compare(code, body, binary, fields)
    event("taken by the core" if taken else "left to the handlers")


PARTS_OF_TWO = batch_of([(b"a", b"k\1v", 1), (b"b", b"", 2)])


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("code", "body"), [(SHORT, b"x"), (LONG, b"x"), (BATCH, PARTS_OF_TWO)])
def test_the_core_takes_a_plain_send_and_a_batch(
    sender: Sender, code: int, body: bytes, binary: bool
) -> None:
    for batch in ("true",) if code == BATCH else ("false", "0"):  # that of C++ clients
        assert sender.compare(code, body, binary, {"topic": "known", "batch": batch})


@pytest.mark.parametrize(
    ("code", "body", "changed"),
    [
        (SHORT, b"x", {"maxReconsumeTimes": "x"}),
        (SHORT, b"x", {"producerGroup": "x" * 1025}),
        (LONG, b"x", {"defaultTopic": "x" * 1025}),
        (SHORT, PARTS_OF_TWO, {"batch": "TRUE"}),
        (LONG, PARTS_OF_TWO, {"batch": "1"}),
        (BATCH, batch_of([(b"a", b"k\1\xff", 1)]), {"batch": "true"}),
    ],
)
def test_the_core_leaves_a_send_to_the_handlers(
    sender: Sender, code: int, body: bytes, changed: dict[str, str | None]
) -> None:
    assert not sender.compare(code, body, True, {"topic": "known", **changed})
