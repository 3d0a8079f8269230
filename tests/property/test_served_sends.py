"""Random sends of a producer over the wire: what each record must hold, by a plain model."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rmqstore._core import Message
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient

SEND, SEND_V2, SEND_BATCH = 10, 310, 320
LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip
SCHEDULE, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
LEVELS = 18
DEFAULT_QUEUES = 8  # of TBW102
RETRIES = 16  # of a group that nobody has set up

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\1\2"), min_size=1, max_size=12)
PROPERTIES = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "psly", "a b", "\u00e4", 'quo"te', "back\\slash"]),
    TEXT,
    max_size=5,
)
INT = st.integers(-(2**31), 2**31 - 1)
BODY = st.binary(min_size=1, max_size=200)


@dataclass(frozen=True)
class Send:
    """A request of a producer."""

    hot: bool  # whether the core may take it
    code: int
    topic: str
    queue_id: int
    default_topic: str
    default_queues: int
    sys_flag: int
    born: int
    flag: int
    body: bytes
    properties: dict[str, str]
    wait: str | None
    reconsumed: int | None
    most: int | None
    oneway: bool
    ends: bool  # whether the properties end with a separator, as Java's do


SENDS = st.builds(
    Send,
    hot=st.booleans(),
    code=st.sampled_from([SEND, SEND_V2]),
    topic=st.sampled_from(["known", "made", "other", "%RETRY%g"]),
    queue_id=st.integers(-1, 4),
    default_topic=st.sampled_from(["TBW102", "TBW102", "known"]),
    default_queues=st.integers(1, 12),
    sys_flag=st.sampled_from([0, 0, 1]),
    born=st.integers(0, 2**62),
    flag=INT,
    body=BODY,
    properties=PROPERTIES,
    wait=st.sampled_from([None, "true", "false"]),
    reconsumed=st.sampled_from([None, 0, 1, 15, 16, 40]),
    most=st.sampled_from([None, None, 1, 20]),
    oneway=st.booleans(),
    ends=st.booleans(),
)
DELAYS = st.tuples(SENDS, st.sampled_from(["0", "1", "3", "18", "19", "1000"]))
BATCHES = st.tuples(SENDS, st.lists(st.tuples(BODY, PROPERTIES, INT), min_size=1, max_size=5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), SENDS, st.none()),
        DELAYS.map(lambda pair: ("delayed", *pair)),
        st.tuples(st.just("half"), SENDS, st.none()),
        BATCHES.map(lambda pair: ("batch", *pair)),
    ),
    min_size=1,
    max_size=12,
)


def properties_text(properties: dict[str, str], ends: bool) -> str:
    """As clients write them: in 4.9.3 a separator follows the last one as well."""
    text = "\2".join(f"{name}\1{value}" for name, value in properties.items())
    return text + "\2" if ends and text else text


def batch_body(rows: list[tuple[bytes, dict[str, str], int]]) -> bytes:
    """As ``MessageDecoder.encodeMessages`` writes it."""
    body = b""
    for data, properties, flag in rows:
        text = properties_text(properties, True).encode()
        size = 4 + 4 + 4 + 4 + 4 + len(data) + 2 + len(text)
        body += struct.pack(">iiiii", size, 0, 0, flag, len(data)) + data
        body += struct.pack(">h", len(text)) + text
    return body


def place_of(message_id: str) -> tuple[str, int]:
    """What a message id says: the address of the broker, and the place in the log."""
    raw = bytes.fromhex(message_id)
    port, place = struct.unpack(">iq", raw[4:])
    return f"{'.'.join(str(part) for part in raw[:4])}:{port}", place


@dataclass
class Model:
    """The topics that there are, and how long the queues are."""

    server: Server
    client: RemotingClient
    topics: dict[str, int] = field(default_factory=lambda: {"known": 3})
    lengths: Counter[tuple[str, int]] = field(default_factory=Counter)

    def refused(self, send: Send) -> tuple[int, str] | None:
        """Return the code and how the words begin; makes the topic where a broker does."""
        queues = self.topics.get(send.topic)
        if queues is None:
            if send.topic.startswith("%RETRY%"):
                queues = 1
            elif send.default_topic == "TBW102":
                queues = min(send.default_queues, DEFAULT_QUEUES)
            else:
                return 17, f"topic[{send.topic}] not exist, apply first please!"
            self.topics[send.topic] = queues
        if send.queue_id >= queues:
            return (
                1,
                f"request queueId[{send.queue_id}] is illegal, "
                f"TopicConfig [topicName={send.topic},",
            )
        return None

    def ask(self, send: Send, code: int, properties: dict[str, str], body: bytes) -> Frame | None:
        short: dict[str, object] = {
            "a": "p", "b": send.topic, "c": send.default_topic, "d": send.default_queues,
            "e": send.queue_id, "f": send.sys_flag, "g": send.born, "h": send.flag,
            "i": properties_text(properties, send.ends), "k": "false",
            "m": "true" if code == SEND_BATCH else "false",
        }  # fmt: skip
        if send.reconsumed is not None:
            short["j"] = send.reconsumed
        if send.most is not None:
            short["l"] = send.most
        if code == SEND:
            short = {LONG_NAMES[name]: value for name, value in short.items()}
        self.server.gateway.shared.hot_sends = send.hot
        if send.oneway:
            self.client.tell(code, short, body)
            # Nothing but answers to the next requests comes.
            assert self.client.ask(9999).code == 3
            while self.server.gateway.new_topics.waiting:  # it is stored once its topic is there
                assert self.client.ask(9999).code == 3
            assert self.client.ask(9999).code == 3
            return None
        return self.client.ask(code, short, body)

    def check(
        self,
        send: Send,
        answer: Frame | None,
        place: tuple[str, int] | None,
        real: int | None,
        rows: list[tuple[bytes, dict[str, str], int]],
    ) -> list[Message]:
        """Check the answer and the records; ``place``: the queue, ``None`` if we choose it."""
        store = self.server.store
        if answer is not None:
            assert answer.code == 0, answer
            assert answer.remark is None
            fields = answer.fields
            assert fields is not None
            assert fields["MSG_REGION"] == "DefaultRegion"
            assert fields["TRACE_ON"] == "true"
            if real is not None:
                assert fields["queueId"] == str(real)
        if place is None:  # the broker has chosen the queue
            if answer is not None:
                assert answer.fields is not None
                queue_id = int(answer.fields["queueId"])
            else:
                grown = [
                    number for number in range(self.topics[send.topic])
                    if len(store[send.topic][number]) != self.lengths[send.topic, number]
                ]  # fmt: skip
                (queue_id,) = grown
            place = send.topic, queue_id
            assert 0 <= queue_id < self.topics[send.topic]
        first = self.lengths[place]
        self.lengths[place] += len(rows)
        found = [store[place[0]][place[1]][number] for number in range(first, first + len(rows))]
        if answer is not None:
            assert answer.fields is not None
            assert answer.fields["queueOffset"] == str(first)
            ids = answer.fields["msgId"].split(",")
            assert [place_of(one) for one in ids] == [
                (self.server.address, message.physical_offset) for message in found
            ]
        for message, (body, properties, flag) in zip(found, rows, strict=True):
            assert message.raw_body == body
            assert message.properties == properties
            assert message.flag == flag
            assert message.born_timestamp == send.born
            assert message.born_host == self.client.name
            assert message.store_host == self.server.address
            assert message.reconsume_times == (send.reconsumed or 0)
        return found

    def step(self, kind: str, send: Send, more: object) -> None:
        properties = dict(send.properties)
        if send.wait is not None:
            properties["WAIT"] = send.wait
        code, body = send.code, send.body
        if kind == "delayed":
            assert isinstance(more, str)
            properties["DELAY"] = more
        elif kind == "half":
            properties |= {"TRAN_MSG": "true", "PGROUP": "p"}
        elif kind == "batch":
            assert isinstance(more, list)
            code, body = SEND_BATCH, batch_body(more)
        answer = self.ask(send, code, properties, body)
        refused = self.refused(send)
        if refused is not None:
            if answer is not None:
                assert answer.code == refused[0]
                assert answer.remark is not None
                assert answer.remark.startswith(refused[1])
                assert answer.fields is not None
                assert answer.fields["TRACE_ON"] == "true"
            return
        self.stored(kind, send, more, answer, properties)

    def stored(
        self,
        kind: str,
        send: Send,
        more: object,
        answer: Frame | None,
        properties: dict[str, str],
    ) -> None:
        plain = {name: value for name, value in properties.items() if name != "WAIT"}
        plain["CLUSTER"] = "DefaultCluster"
        queue_id = send.queue_id if send.queue_id >= 0 else None
        where = None if queue_id is None else (send.topic, queue_id)
        topic = send.topic
        if kind == "batch":
            assert isinstance(more, list)
            rows = [(body, own | {"CLUSTER": "DefaultCluster"}, flag) for body, own, flag in more]
            self.check(send, answer, where, queue_id, rows)
            return
        most = send.most if send.most is not None else RETRIES
        if topic.startswith("%RETRY%") and (send.reconsumed or 0) >= most:
            topic, where = f"%DLQ%{topic[7:]}", (f"%DLQ%{topic[7:]}", 0)
            self.topics[topic] = 1
            if kind == "delayed":
                more = plain["DELAY"] = "0"  # dead letters do not wait
        level = int(more) if isinstance(more, str) else 0
        if kind == "half" or level > 0:
            place = (HALF, 0) if kind == "half" else (SCHEDULE, min(level, LEVELS) - 1)
            expected = plain | {"REAL_TOPIC": topic}
            if kind == "delayed":
                expected["DELAY"] = str(min(level, LEVELS))
            if send.wait is not None:  # the text is built again, with all of them
                expected["WAIT"] = send.wait
            known = where[1] if where is not None else None
            if known is None:  # chosen by the broker, and in the answer
                at = self.lengths[place]
                chosen = self.server.store[place[0]][place[1]][at].properties["REAL_QID"]
                known = int(chosen)
                assert 0 <= known < self.topics[topic]
                if answer is not None and topic == send.topic:
                    assert answer.fields is not None
                    assert answer.fields["queueId"] == chosen
            expected["REAL_QID"] = str(known)
            self.check(send, answer, place, queue_id, [(send.body, expected, send.flag)])
            return
        (message,) = self.check(send, answer, where, queue_id, [(send.body, plain, send.flag)])
        assert message.sys_flag == send.sys_flag


# A server a step makes shrinking slow: the example that fails is told as it is.
@settings(max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(STEPS)
def test_sends(steps: list[tuple[str, Send, object]]) -> None:
    """Stored as a broker stores them, whichever way they take through the gateway."""
    # No delayed message is due while the test runs.
    config = StoreConfig.small().replace(message_delay_level=" ".join(["1d"] * LEVELS))
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        server.store.create_topic("known", 3)
        model = Model(server, client)
        for kind, send, more in steps:
            model.step(kind, send, more)
        store = server.store
        for topic, queues in model.topics.items():
            entry = store.registry.get(topic)
            assert entry is not None, topic
            assert (entry.read_queue_nums, entry.write_queue_nums, entry.perm) == (
                queues,
                queues,
                6,
            )
        for (topic, queue_id), length in model.lengths.items():
            assert len(store[topic][queue_id]) == length
