"""Send requests of producers: the broker's checks, then storing.

Plain messages to known topics do not come here: the core appends them straight from their frames,
with the same result.

Source: ``broker/processor/SendMessageProcessor.java``, ``AbstractSendMessageProcessor.java``,
``broker/topic/TopicConfigManager.java createTopicInSendMessageMethod``,
``broker/transaction/queue/TransactionalMessageBridge.java parseHalfMessageInner``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqstore._core import SEND_FIELD_NAMES
from rmqstore.base.layout import INT32_MAX, INT64_MAX, INT64_MIN
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import PutError, StoreClosedError, StoreError, StoreFailedError
from rmqstore.files import paths
from rmqstore.serve.topics.newtopics import TopicAwaited
from rmqstore.serve.topics.producedtopics import config_text
from rmqstore.serve.wire.batches import ILLEGAL, parse_properties, parts_of_batch
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, optional_number, text, truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, new_topic
from rmqstore.services.stored import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    Place,
    made_queue_nums,
    properties_text,
)
from rmqstore.types import PutStatus

if TYPE_CHECKING:
    from rmqstore._core import PutResult
    from rmqstore.serve.network.answers import Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.durable import DurableAnswers
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.newtopics import NewTopics
    from rmqstore.serve.topics.producedtopics import SentTopics
    from rmqstore.store import MessageStore

__all__ = ["Sends", "Sent", "parse_send", "properties_of", "refusal_of"]

_V3_4_9 = 121  # MQVersion from which a request's maxReconsumeTimes counts
_MAX_PROPERTIES = 200 << 10  # characters parsed; the store limits the bytes stored
_TRANSACTION_BITS = 0xC
_MULTI_TAGS = 2  # MessageSysFlag.MULTI_TAGS_FLAG
# Arbitrary delays of 5.x, unknown to 4.9.3; batches are searched for their common prefix.
_TIMERS = frozenset(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"))
_TIMER = "TIMER_DEL"
_MOST_WARNED = 4096  # clients; then the set is cleared
_OFFSET_DIGITS = 16  # at the end of a message id

_LONG_FORMS = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
# Field names by those of SEND_MESSAGE: the letters of SEND_MESSAGE_V2, in order; the names.
_SHORT = {name: chr(ord("a") + at) for at, name in enumerate(SEND_FIELD_NAMES)}
_LONG = {name: name for name in SEND_FIELD_NAMES}

_UNKNOWN = "UNKNOWN_ERROR"
_ANSWERS = {
    PutStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: "
        "the broker's disk is full, messages are put to the slave, message store has been shut "
        "down, etc.",
    ),
    PutStatus.OS_PAGECACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq "
        "consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w.",
    ),
}
_ANSWERS[PutStatus.DISK_FULL] = _ANSWERS[PutStatus.SERVICE_NOT_AVAILABLE]


@dataclass(slots=True)
class Sent:
    """Parsed send request."""

    request: Request
    producer_group: str
    topic: str  # to store in: the dead-letter topic after too many retries
    default_topic: str
    default_queue_nums: int
    asked_queue: int  # in the answer
    queue_id: int  # to store in
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: dict[str, str]  # of a batch: of its header
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool

    @property
    def waits(self) -> bool:
        """Whether the producer waits for the disk."""
        return self.properties.get("WAIT", "true").lower() == "true"


def properties_of(request: Request) -> dict[str, str]:
    """Return the parsed properties of a send request."""
    name = (_LONG if request.code in _LONG_FORMS else _SHORT)["properties"]
    found = name in request.fields
    return parse_properties(text(request, name, _MAX_PROPERTIES)) if found else {}


def parse_send(request: Request) -> Sent:
    """Return the parsed send; ``Refusal`` if a field is missing or invalid."""
    names = _LONG if request.code in _LONG_FORMS else _SHORT
    group = text(request, names["producerGroup"])
    topic = new_topic(text(request, names["topic"]))
    queue_id = number(request, names["queueId"])
    return Sent(
        request,
        group,
        topic,
        text(request, names["defaultTopic"]),
        number(request, names["defaultTopicQueueNums"]),
        queue_id,
        queue_id,
        number(request, names["sysFlag"]),
        number(request, names["bornTimestamp"], least=INT64_MIN, most=INT64_MAX),
        number(request, names["flag"]),
        properties_of(request),
        optional_number(request, names["reconsumeTimes"]) or 0,
        truth(request, names["unitMode"]),
        optional_number(request, names["maxReconsumeTimes"]),
        truth(request, names["batch"]),
    )


def refusal_of(error: StoreError) -> Answer:
    """Return the answer to a message that the store rejected."""
    status = error.status if isinstance(error, PutError) else None
    if isinstance(error, (StoreClosedError, StoreFailedError)):
        status = PutStatus.SERVICE_NOT_AVAILABLE
    code, remark = _ANSWERS.get(
        status if status is not None else PutStatus.UNKNOWN_ERROR,
        (ResponseCode.SYSTEM_ERROR, _UNKNOWN),
    )
    return Answer(code, remark)


class Sends:
    """Sends that the core leaves to Python."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        topics: SentTopics,
        *,
        new_topics: NewTopics,
        durable: DurableAnswers,
    ) -> None:
        self._store = store
        self._settings = settings
        self._log = work.log
        self._topics = topics
        self._new_topics = new_topics
        self._durable = durable
        self._warned: set[str] = set()  # clients with arbitrary delays

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, request: Request) -> Answer | None:
        """Answer SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
        fields = {"MSG_REGION": self._settings.region, "TRACE_ON": "true"}
        try:
            sent = parse_send(request)
            entry = self.topic_of(connection, sent)
            if not sent.batch:
                entry = self._retries_exhausted(connection, sent, entry)
            if entry.topic_filter_type == "MULTI_TAG":
                sent.sys_flag |= _MULTI_TAGS
            sent.sys_flag &= INT32_MAX
            if sent.batch:
                done, ids = self._store_batch(connection, sent)
            else:
                done = self._store_one(connection, sent)
                ids = done.msg_id
        except (Refusal, StoreError) as error:
            answer = error.answer if isinstance(error, Refusal) else refusal_of(error)
            if answer.remark == _UNKNOWN:
                self._log.warning("a message is not stored: %s", error)
            answer.fields = fields
            return answer
        return self._answer_when_stored(connection, sent, done=done, ids=ids, fields=fields)

    def _answer_when_stored(
        self,
        connection: Connection,
        sent: Sent,
        *,
        done: PutResult,
        ids: str,
        fields: dict[str, str],
    ) -> Answer | None:
        """Answer with id and queue offset; with synchronous flush, once the message is on disk."""
        fields |= {
            "msgId": ids,
            "queueId": str(sent.asked_queue),
            "queueOffset": str(done.queue_offset),
        }
        answer = Answer(fields=fields)
        if self._store.config.flush_disk_type != "SYNC_FLUSH":
            return answer
        if not sent.waits:
            self._durable.ask()
            return answer

        # Of a batch the last record counts: the disk may have only the first ones.
        connection.answer_durable(sent.request, answer, int(ids[-_OFFSET_DIGITS:], 16) + 1)
        return None

    # Checks

    def topic_of(self, connection: Connection, sent: Sent) -> TopicConfig:
        """Return the topic of a message, created if allowed; pick its queue if it names none."""
        if sent.topic == SCHEDULE_TOPIC:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{sent.topic}] is forbidden."
            )
        entry = self._topics.for_send(
            connection.owner,
            sent.topic,
            sent.default_topic,
            sent.default_queue_nums,
            unit=sent.unit_mode,
        )
        if entry is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{sent.topic}] not exist, apply first please!",
                faq=True,
            )
        if sent.queue_id >= max(entry.write_queue_nums, entry.read_queue_nums):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{sent.queue_id}] is illegal, {config_text(entry)} "
                f"Producer: {connection.peer}",
            )
        if sent.queue_id < 0:
            if entry.write_queue_nums <= 0:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR, f"topic[{sent.topic}] has no queue to write to"
                )
            sent.asked_queue = sent.queue_id = random.randrange(entry.write_queue_nums)
        return self._topics.entered(entry)

    def _retries_exhausted(
        self, connection: Connection, sent: Sent, entry: TopicConfig
    ) -> TopicConfig:
        """Return the topic of a retry: the dead-letter topic after too many retries."""
        prefix = paths.retry_topic("")
        if not sent.topic.startswith(prefix):
            return entry
        name = checked_group(sent.topic[len(prefix) :])
        group = self._store.group_entries.get(name)
        if group is None:
            if not self._settings.auto_create_groups:
                raise Refusal(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"subscription group not exist, {name} ",
                    faq=True,
                )
            group = GroupConfig(name)
        most = group.retry_max_times
        if sent.request.version >= _V3_4_9 and sent.max_reconsume_times is not None:
            most = sent.max_reconsume_times
        if sent.reconsume_times < most:
            return entry
        sent.topic, sent.queue_id = paths.dead_letter_topic(name), 0
        if "DELAY" in sent.properties:  # dead letters do not wait
            sent.properties["DELAY"] = "0"
        dead = self._topics.for_send(connection.owner, sent.topic, "", 1, unit=False)
        if dead is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{sent.topic}] not exist")
        return dead

    # Storing

    def _store_one(self, connection: Connection, sent: Sent) -> PutResult:
        """Store one message: plain, delayed, or half."""
        properties = sent.properties
        if not _TIMERS.isdisjoint(properties):
            self._warn_of_timer(connection, sent)
        properties["CLUSTER"] = self._settings.cluster
        if properties.get("TRAN_MSG", "").lower() == "true":
            return self._store_half(connection, sent)
        level = self._delay_level(sent)
        if level > 0:
            return self._store_delayed(connection, sent, level)
        kept = {name: value for name, value in properties.items() if name != "WAIT"}
        return self.store_plain(connection, sent, Place(sent.topic, sent.queue_id), kept)

    def _warn_of_timer(self, connection: Connection, sent: Sent) -> None:
        """Warn a client once that 4.9.3 has no arbitrary delays: its message is not delayed."""
        client = connection.client_id or connection.peer  # no id before a heartbeat
        warned = self._warned
        if client not in warned:
            if len(warned) >= _MOST_WARNED:
                warned.clear()
            warned.add(client)
            self._log.warning(
                "%s (%s): a message to %s does not wait for its arbitrary delay (%s): those are of "
                "5.x, 4.9.3 has delay levels",
                connection.peer, sent.producer_group, sent.topic, ", ".join(sorted(_TIMERS)),
            )  # fmt: skip

    def store_plain(
        self,
        connection: Connection,
        sent: Sent,
        place: Place,
        properties: dict[str, str],
        *,
        sys_flag: int | None = None,
    ) -> PutResult:
        """Store a message in a queue, without waiting for the disk."""
        return self._store.core.put_stored(
            *place,
            bytes(sent.request.body),
            properties_text(properties),
            flag=sent.flag,
            sys_flag=sent.sys_flag if sys_flag is None else sys_flag,
            born_timestamp=sent.born_timestamp,
            born_host=connection.peer,
            store_host=connection.store_host,
            reconsume_times=sent.reconsume_times,
            wait=False,
        )

    def _delay_level(self, sent: Sent) -> int:
        """Return the delay level of a message, 0 without one."""
        value = sent.properties.get("DELAY")
        if value is None or sent.sys_flag & _TRANSACTION_BITS in (0x4, 0xC):
            return 0
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f'For input string: "{value}"')
        return min(int(value), len(self._store.config.message_delay_level.split()))

    def _store_delayed(self, connection: Connection, sent: Sent, level: int) -> PutResult:
        """Store a delayed message; it keeps its WAIT, as with a broker.

        Refused for the half topic: a broker accepts such a message, and drops it when it is due.
        """
        if sent.topic == HALF_TOPIC:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
        if not self._store.core.knows_topic(SCHEDULE_TOPIC):
            self._new_topics.check(SCHEDULE_TOPIC)
            queue_nums = made_queue_nums(SCHEDULE_TOPIC, 0)
            raise TopicAwaited(TopicConfig(SCHEDULE_TOPIC, queue_nums, queue_nums))
        properties = sent.properties | {
            "DELAY": str(level),
            "REAL_TOPIC": sent.topic,
            "REAL_QID": str(sent.queue_id),
        }
        return self.store_plain(connection, sent, Place(SCHEDULE_TOPIC, level - 1), properties)

    def _store_half(self, connection: Connection, sent: Sent) -> PutResult:
        """Store a half message, invisible until its transaction is committed."""
        self._topics.for_send(connection.owner, HALF_TOPIC, "", 1, unit=False)
        return self._store.transactions.put_half(
            sent.topic,
            sent.queue_id,
            bytes(sent.request.body),
            sent.properties,
            flag=sent.flag,
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born_timestamp,
            born_host=connection.peer,
            store_host=connection.store_host,
            reconsume_times=sent.reconsume_times,
        )

    def _store_batch(self, connection: Connection, sent: Sent) -> tuple[PutResult, str]:
        """Store a batch contiguously, or nothing; return its result, and the ids of all."""
        most = self._store.config.max_message_size
        if len(sent.request.body) > most:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)  # the records are larger
        cluster = f"CLUSTER\1{self._settings.cluster}"
        rows = [
            (body, f"{own}{'' if not own or own.endswith(chr(2)) else chr(2)}{cluster}", flag)
            for body, own, flag in parts_of_batch(bytes(sent.request.body), most)
        ]
        if any(
            _TIMER in own and not _TIMERS.isdisjoint(parse_properties(own)) for _, own, _ in rows
        ):
            self._warn_of_timer(connection, sent)
        done, offsets = self._store.core.put_stored_batch(
            sent.topic,
            sent.queue_id,
            rows,
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born_timestamp,
            born_host=connection.peer,
            store_host=connection.store_host,
            reconsume_times=sent.reconsume_times,
            wait=False,
        )
        address = done.msg_id[:-_OFFSET_DIGITS]
        return done, ",".join(f"{address}{offset:016X}" for offset in offsets)
