"""Names of the files and directories of a store.

Source: ``store/config/StorePathConfigHelper.java``, ``common/UtilAll.java`` ``offset2FileName``,
``broker/BrokerPathConfigHelper.java``, ``common/topic/TopicValidator.java``,
``client/Validators.java``, ``common/MixAll.java``.
"""

from __future__ import annotations

import re

from rmqstore.base.layout import INT32_MAX, INT64_MAX

__all__ = [
    "ABORT",
    "CHECKPOINT",
    "COMMIT_LOG",
    "CONFIG",
    "CONSUMER_FILTER_JSON",
    "CONSUMER_OFFSET_JSON",
    "CONSUME_QUEUE",
    "CONSUME_QUEUE_EXT",
    "DELAY_OFFSET_JSON",
    "DELETED_TOPICS",
    "INDEX",
    "LMQ_CONSUMER_OFFSET_JSON",
    "LOCK",
    "QUARANTINE",
    "STORE_ENTRIES",
    "SUBSCRIPTION_GROUP_JSON",
    "TOPICS_JSON",
    "TOPIC_MAX_LENGTH",
    "TOPIC_NAME",
    "dead_letter_topic",
    "is_group_name",
    "is_stored_topic_name",
    "is_topic_name",
    "offset_file_name",
    "parse_index_file_name",
    "parse_offset_file_name",
    "parse_queue_id",
    "retry_topic",
]

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
INDEX = "index"
CONFIG = "config"
CHECKPOINT = "checkpoint"
ABORT = "abort"
QUARANTINE = "rmqstore-quarantine"
LOCK = "lock"
DELETED_TOPICS = "rmqstore-deleted.json"  # ours

# In the directory of a store; a crash may leave any of them without a log file.
STORE_ENTRIES = frozenset(
    (
        COMMIT_LOG,
        CONSUME_QUEUE,
        CONSUME_QUEUE_EXT,
        INDEX,
        CONFIG,
        CHECKPOINT,
        ABORT,
        LOCK,
        QUARANTINE,
        DELETED_TOPICS,
        *(f"{DELETED_TOPICS}.{end}" for end in ("bak", "bak.tmp", "tmp")),
    )
)

TOPICS_JSON = "topics.json"
CONSUMER_OFFSET_JSON = "consumerOffset.json"
LMQ_CONSUMER_OFFSET_JSON = "lmqConsumerOffset.json"
DELAY_OFFSET_JSON = "delayOffset.json"
SUBSCRIPTION_GROUP_JSON = "subscriptionGroup.json"
CONSUMER_FILTER_JSON = "consumerFilter.json"

TOPIC_MAX_LENGTH = 127
TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}", re.ASCII)
_STORED_TOPIC_BYTES = 32767  # longest name in a record of RocketMQ 5

_OFFSET_DIGITS = 20
_OFFSET_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_INDEX_NAME = re.compile(r"[0-9]{17}", re.ASCII)
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def is_topic_name(name: str) -> bool:
    """Whether a client may use the topic name: 1 to 127 of ``[%|a-zA-Z0-9_-]``."""
    return TOPIC_NAME.fullmatch(name) is not None


def is_stored_topic_name(name: str) -> bool:
    """Whether a stored topic can have the name: valid for a directory, and no path.

    Brokers before 4.7 took nearly any name, and RocketMQ 5 writes names of up to 32,767 bytes.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= _STORED_TOPIC_BYTES
    except UnicodeEncodeError:  # bytes that are not UTF-8, impossible in a record's topic
        return False


def is_group_name(name: str) -> bool:
    """Whether ``name`` is valid for a group, as its retry topic has to be a topic name.

    Hence 1 to 120 of ``[%|a-zA-Z0-9_-]``.  The client accepts up to 255, and a broker then stores
    records whose topic length overflows.
    """
    return bool(name) and is_topic_name(retry_topic(name))


def retry_topic(group: str) -> str:
    """Return the retry topic of a group."""
    return f"%RETRY%{group}"


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return f"%DLQ%{group}"


def offset_file_name(offset: int) -> str:
    """Return the name of the log or queue file whose first byte has this offset."""
    return f"{offset:0{_OFFSET_DIGITS}d}"


def parse_offset_file_name(name: str) -> int | None:
    """Parse the name of a log or queue file: the offset of its first byte, or ``None``."""
    if _OFFSET_NAME.fullmatch(name) is None:
        return None
    offset = int(name)
    return offset if offset <= INT64_MAX else None


def parse_queue_id(name: str) -> int | None:
    """Parse the name of a queue's directory: the queue id, or ``None``."""
    if _QUEUE_ID.fullmatch(name) is None:
        return None
    queue_id = int(name)
    return queue_id if queue_id <= INT32_MAX else None


def parse_index_file_name(name: str) -> int | None:
    """Parse the name of an index file: a number that orders them, or ``None``."""
    return int(name) if _INDEX_NAME.fullmatch(name) is not None else None
