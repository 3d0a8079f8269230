"""A slow, independent codec of the store format, in plain Python.

The tests compare the package with it, so it shares no code with it and imports nothing of it.
This module has the record and what is computed from one; ``oracle_index`` has the index file and
``oracle_store`` the directory.
"""

from __future__ import annotations

import codecs
import re
import socket
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

MAGIC_MESSAGE = -0x255CDF59  # 0xDAA320A7
MAGIC_MESSAGE_V2 = -0x255CDF55  # 0xDAA320AB: RocketMQ 5, 2 bytes of topic length
MAGIC_BLANK = -0x342BCE6C  # 0xCBD43194
UNIT_SIZE = 20
RECORD_MIN_SIZE = 91  # with IPv4 hosts and no body, topic or properties
FILLER_UNIT = (0, 0x7FFFFFFF, 0)
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LMQ_PREFIX = "%LMQ%"

FLAG_COMPRESSED = 0x1
FLAG_TRANSACTION = 0xC
TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK = 0, 4, 8, 12
FLAG_BORN_V6 = 0x10
FLAG_STORE_V6 = 0x20

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
DELAYS_MS = (
    *(n * SECOND for n in (1, 5, 10, 30)),
    *(n * MINUTE for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(n * HOUR for n in (1, 2)),
)


class OracleError(ValueError):
    """Bytes that contradict the format."""


# Text and hashes


def _java_malformed(error: UnicodeError) -> tuple[str, int]:
    """Replace as Java's decoder does: an encoded surrogate is one malformed sequence, not three."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        end = start + 2
        if end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return "\ufffd", end


codecs.register_error("oracle-java", _java_malformed)


def decode_text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "oracle-java")


def signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)


def string_hash(text: str) -> int:
    """Java's ``String.hashCode``."""
    total = 0
    for unit in utf16_units(text):
        total = (31 * total + unit) & 0xFFFFFFFF
    return signed32(total)


def tags_code(tags: str | None) -> int:
    return string_hash(tags) if tags else 0


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


# Properties


def encode_properties(properties: Mapping[str, str], *, last: bool = False) -> bytes:
    """``name 0x01 value`` joined by 0x02; ``last`` puts one behind the last pair too."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return (text + ("\x02" if last and text else "")).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for entry in decode_text(data).split("\x02"):
        name, separator, value = entry.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def split_keys(keys: str | None) -> tuple[str, ...]:
    return tuple(key for key in (keys or "").split(" ") if key)


# Hosts and message ids


def split_host(text: str) -> tuple[bytes, int]:
    """``"ip:port"`` or ``"[v6]:port"`` as address bytes and port."""
    address, _, port = text.rpartition(":")
    if address.startswith("["):
        return socket.inet_pton(socket.AF_INET6, address[1:-1]), int(port)
    return socket.inet_pton(socket.AF_INET, address), int(port)


def join_host(address: bytes, port: int) -> str:
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def message_id(store_host: str, physical_offset: int) -> str:
    address, port = split_host(store_host)
    return (address + struct.pack(">iq", port, physical_offset)).hex().upper()


# The record


@dataclass(frozen=True)
class Record:
    """Every field of one commit log record, and its place in the log's bytes."""

    store_size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    raw_body: bytes
    topic: str
    raw_properties: bytes
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return inflate(self.raw_body, self.sys_flag) if self.compressed else self.raw_body

    @property
    def compressed(self) -> bool:
        return bool(self.sys_flag & FLAG_COMPRESSED)

    @property
    def transaction(self) -> int:
        return self.sys_flag & FLAG_TRANSACTION

    @property
    def is_queued(self) -> bool:
        """Prepared and rollback messages have no place in a queue."""
        return self.transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT)

    @property
    def msg_id(self) -> str:
        return message_id(self.store_host, self.physical_offset)

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        return split_keys(self.properties.get("KEYS"))

    @property
    def uniq_key(self) -> str | None:
        return self.properties.get("UNIQ_KEY")

    @property
    def tags_code(self) -> int:
        """Content of the record's own consume queue unit."""
        level = self.properties.get("DELAY")
        if self.topic == SCHEDULE_TOPIC and level is not None and int(level) > 0:
            return deliver_time(self.store_timestamp, int(level))
        return tags_code(self.tags)

    @property
    def unit(self) -> tuple[int, int, int]:
        return self.physical_offset, self.store_size, self.tags_code


def inflate(stored: bytes, sys_flag: int) -> bytes:
    """A body as it was before a client compressed it, in one of RocketMQ 5's ways or 4.9.3's."""
    if not stored:
        return b""
    match sys_flag >> 8 & 7:
        case 1:
            import lz4.frame

            return lz4.frame.decompress(stored)
        case 2:
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(stored) as reader:
                return reader.readall()
        case _:
            return zlib.decompress(stored)


def deliver_time(store_timestamp: int, level: int) -> int:
    """When a message of a delay level, from 1, is due; levels above the last count as it."""
    return store_timestamp + DELAYS_MS[min(level, len(DELAYS_MS)) - 1]


def index_keys(record: Record) -> list[str]:
    """Index keys of a record, in this order, without the topic."""
    if record.transaction == TRANSACTION_ROLLBACK:
        return []
    return ([record.uniq_key] if record.uniq_key else []) + list(record.keys)


def dispatched_queues(record: Record) -> list[tuple[str, int, int]]:
    """The (queue name, queue offset, tags code) of a record's multi-dispatch units."""
    names = record.properties.get("INNER_MULTI_DISPATCH")
    offsets = record.properties.get("INNER_MULTI_QUEUE_OFFSET")
    if not names or not offsets or not record.is_queued:
        return []
    code = tags_code(record.tags)
    pairs = zip(names.split(","), offsets.split(","), strict=True)
    return [(name, int(offset), code) for name, offset in pairs]


def encode_record(
    topic: str,
    body: bytes,
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = "127.0.0.1:0",
    store_timestamp: int = 0,
    store_host: str = "127.0.0.1:0",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    properties: bytes | Mapping[str, str] = b"",
    version: int = 1,
) -> bytes:
    """``version`` 2 is RocketMQ 5's for topics longer than 127."""
    body = bytes(body)
    topic_bytes = topic.encode()
    if isinstance(properties, Mapping):
        properties = encode_properties(properties)
    if len(topic_bytes) > (127 if version == 1 else 32767):
        raise OracleError(f"topic of {len(topic_bytes)} bytes")
    if len(properties) > 32767:
        raise OracleError(f"properties of {len(properties)} bytes")
    born_address, born_port = split_host(born_host)
    store_address, store_port = split_host(store_host)
    if len(born_address) == 16:
        sys_flag |= FLAG_BORN_V6
    if len(store_address) == 16:
        sys_flag |= FLAG_STORE_V6
    rest = b"".join(
        (
            struct.pack(">i", MAGIC_MESSAGE if version == 1 else MAGIC_MESSAGE_V2),
            struct.pack(">iii", body_crc(body), queue_id, flag),
            struct.pack(">qqi", queue_offset, physical_offset, sys_flag),
            struct.pack(">q", born_timestamp) + born_address + struct.pack(">i", born_port),
            struct.pack(">q", store_timestamp) + store_address + struct.pack(">i", store_port),
            struct.pack(">iq", reconsume_times, prepared_transaction_offset),
            struct.pack(">i", len(body)) + body,
            struct.pack(">b" if version == 1 else ">h", len(topic_bytes)) + topic_bytes,
            struct.pack(">h", len(properties)) + properties,
        )
    )
    return struct.pack(">i", 4 + len(rest)) + rest


class _Fields:
    """Takes big-endian fields one after the other, never past ``stop``."""

    def __init__(self, data: bytes | memoryview, at: int, stop: int) -> None:
        self.data, self.at, self.stop = data, at, stop

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > self.stop:
            raise OracleError(f"{count} bytes at {self.at}, the record ends at {self.stop}")
        taken = bytes(self.data[self.at : self.at + count])
        self.at += count
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big", signed=True)

    def host(self, is_v6: bool) -> str:
        address = self.take(16 if is_v6 else 4)
        return join_host(address, self.number(4))


def decode_record(data: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Record:
    room = len(data) - at
    if room < 8:
        raise OracleError(f"{room} bytes are no record")
    size, magic = struct.unpack_from(">ii", data, at)
    if magic not in (MAGIC_MESSAGE, MAGIC_MESSAGE_V2):
        raise OracleError(f"magic {magic & 0xFFFFFFFF:#x}")
    if not RECORD_MIN_SIZE <= size <= room:
        raise OracleError(f"size {size}, room {room}")
    fields = _Fields(data, at + 8, at + size)
    head = {
        "store_size": size,
        "body_crc": fields.number(4),
        "queue_id": fields.number(4),
        "flag": fields.number(4),
        "queue_offset": fields.number(8),
        "physical_offset": fields.number(8),
        "sys_flag": (sys_flag := fields.number(4)),
        "born_timestamp": fields.number(8),
        "born_host": fields.host(bool(sys_flag & FLAG_BORN_V6)),
        "store_timestamp": fields.number(8),
        "store_host": fields.host(bool(sys_flag & FLAG_STORE_V6)),
        "reconsume_times": fields.number(4),
        "prepared_transaction_offset": fields.number(8),
    }
    body = fields.take(fields.number(4))
    topic = fields.take(fields.number(1 if magic == MAGIC_MESSAGE else 2))
    properties = fields.take(fields.number(2))
    if fields.at != fields.stop:
        raise OracleError(f"parts end at {fields.at - at}, the record at {size}")
    if check_crc and head["body_crc"] != body_crc(body):
        raise OracleError(f"body CRC {head['body_crc']}, computed {body_crc(body)}")
    return Record(
        **head,
        raw_body=body,
        topic=decode_text(topic),
        raw_properties=properties,
        properties=decode_properties(properties),
    )


# Consume queue units


def pack_unit(physical_offset: int, size: int, code: int) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


def unpack_unit(data: bytes, at: int = 0) -> tuple[int, int, int]:
    return struct.unpack_from(">qiq", data, at)


# Message ids as text


def parse_message_id(text: str) -> tuple[str, int]:
    """The (store host, physical offset) of a store message id."""
    if not re.fullmatch(r"[0-9A-F]{32}|[0-9A-F]{56}", text):
        raise OracleError(f"{text!r} is no message id")
    data = bytes.fromhex(text)
    port, physical_offset = struct.unpack(">iq", data[-12:])
    return join_host(data[:-12], port), physical_offset
