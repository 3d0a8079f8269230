"""Records that stand for a message of another topic: delayed ones, and half messages.

Source: ``store/schedule/ScheduleMessageService.java messageTimeup``,
``broker/transaction/queue/TransactionalMessageBridge.java``, ``common/topic/TopicValidator.java``.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore import _core
from rmqstore._core import Message, PutResult
from rmqstore.base.layout import DELAY_LEVELS, INT32_MAX
from rmqstore.files.paths import TOPIC_MAX_LENGTH, is_stored_topic_name

__all__ = [
    "HALF_TOPIC",
    "MAX_TIME_TOPIC",
    "OP_TOPIC",
    "SCHEDULE_TOPIC",
    "SYSTEM_TOPICS",
    "Place",
    "has_one_queue",
    "identity",
    "is_system_topic",
    "made_queue_nums",
    "properties_text",
    "put_again",
    "real_message",
    "real_place",
    "real_record",
]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

# Built-in topics of any broker; some of them hold messages of all other topics.
SYSTEM_TOPICS = (
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    "RMQ_SYS_TRACE_TOPIC",
    OP_TOPIC,
    "BenchmarkTest",
    MAX_TIME_TOPIC,
    "OFFSET_MOVED_EVENT",
    "TBW102",
    "SELF_TEST_TOPIC",
)
_SYSTEM_PREFIX = "rmq_sys_"

_CHECKSUM = "__CRC32#"  # of the record; each record gets its own
_ONE_QUEUE = frozenset((HALF_TOPIC, OP_TOPIC, MAX_TIME_TOPIC))
_ONE_QUEUE_PREFIXES = ("%RETRY%", "%DLQ%")
# Properties that the store itself changes as it writes a record.
_CHANGING = frozenset((_CHECKSUM, "WAIT", "INNER_MULTI_QUEUE_OFFSET"))


class Place(NamedTuple):
    """A queue, by topic and id."""

    topic: str
    queue_id: int


def is_system_topic(name: str) -> bool:
    """Whether a topic is built into brokers: users may not create, change or delete it."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)


def has_one_queue(topic: str) -> bool:
    """Whether a broker creates a topic of this name with a single queue."""
    return topic in _ONE_QUEUE or topic.startswith(_ONE_QUEUE_PREFIXES)


def made_queue_nums(topic: str, default: int) -> int:
    """Return the number of queues of a topic that a broker creates; ``default`` for a user's."""
    if topic == SCHEDULE_TOPIC:
        return DELAY_LEVELS
    return 1 if has_one_queue(topic) else default


def real_place(properties: dict[str, str]) -> Place | None:
    """Return the destination of a message, ``None`` if its properties name none.

    A broker may have acknowledged any name: only a path, or a name too long for a record, is
    refused.
    """
    topic = properties.get("REAL_TOPIC", "")
    number = properties.get("REAL_QID", "")
    if not (number.isascii() and number.isdigit()):
        return None
    if not is_stored_topic_name(topic) or len(topic.encode()) > TOPIC_MAX_LENGTH:
        return None
    queue_id = int(number[:11])
    return Place(topic, queue_id) if queue_id <= INT32_MAX else None


def properties_text(properties: dict[str, str]) -> str:
    """Return the properties string of a record with these properties."""
    return "\2".join(f"{name}\1{value}" for name, value in properties.items() if name != _CHECKSUM)


def put_again(
    core: _core.Core,
    place: Place,
    message: Message,
    properties: dict[str, str],
    *,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared_transaction_offset: int = 0,
    wait: bool = False,
) -> PutResult:
    """Store a message again, at a place and with properties; the rest is its own by default.

    It keeps the store host of its original record, as with a broker.  The message was acknowledged:
    configured limits do not apply.
    """
    return core.put_stored(
        place.topic,
        place.queue_id,
        bytes(message.raw_body),
        properties_text(properties),
        flag=message.flag,
        sys_flag=(message.sys_flag if sys_flag is None else sys_flag) & INT32_MAX,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        moved=True,
        wait=wait,
    )


def real_message(message: Message, place: Place | None) -> Message:
    """Return a message as its consumer will see it, with its real topic and queue.

    Its ``physical_offset`` and ``queue_offset`` are those of the waiting record; the record's
    checksum is left out.
    """
    return _core.decode_record(real_record(message, place, message.properties))


def real_record(message: Message, place: Place | None, properties: dict[str, str]) -> bytes:
    """Return the record of :func:`real_message`, with the given properties."""
    topic, queue_id = place if place is not None else (message.topic, message.queue_id)
    return _core.encode_record(
        topic,
        message.raw_body,
        queue_id=queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_timestamp=message.store_timestamp,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        properties=properties_text(properties).encode(),
    )


def identity(message: Message, properties: dict[str, str]) -> tuple[object, ...]:
    """Return the key that a record shares with the records made of it.

    Topic, queue, store time and offsets are left out.
    """
    return (
        message.body_crc,
        len(message.raw_body),
        message.flag,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
        frozenset(item for item in properties.items() if item[0] not in _CHANGING),
    )
