"""Parsing of one record: each refused field is named, and nothing past the record is read."""

from __future__ import annotations

import struct

import pytest

import rmqstore
from support import oracle

BODY, TOPIC, PROPERTIES = b"body", b"topic", b"a\x01b"
RECORD = oracle.encode_record("topic", BODY, properties=PROPERTIES)
BODY_LENGTH = 84
TOPIC_LENGTH = BODY_LENGTH + 4 + len(BODY)
PROPERTIES_LENGTH = TOPIC_LENGTH + 1 + len(TOPIC)


def changed(at: int, layout: str, value: int) -> bytes:
    data = bytearray(RECORD)
    struct.pack_into(">" + layout, data, at, value)
    return bytes(data)


def test_the_fields_are_where_the_layout_has_them() -> None:
    assert struct.unpack_from(">i", RECORD, BODY_LENGTH) == (len(BODY),)
    assert RECORD[TOPIC_LENGTH] == len(TOPIC)
    assert struct.unpack_from(">h", RECORD, PROPERTIES_LENGTH) == (len(PROPERTIES),)
    assert len(RECORD) == PROPERTIES_LENGTH + 2 + len(PROPERTIES)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (changed(0, "i", 90), "TOTALSIZE"),
        (changed(0, "i", -1), "TOTALSIZE"),
        (changed(0, "i", len(RECORD) - 1), "PROPERTIESLENGTH"),
        (changed(4, "i", 0), "MAGICCODE"),
        (changed(8, "i", 7), "BODYCRC"),
        (changed(BODY_LENGTH, "i", -1), "BODYLENGTH"),
        (changed(BODY_LENGTH, "i", len(RECORD)), "BODYLENGTH"),
        (changed(TOPIC_LENGTH, "b", -1), "TOPICLENGTH"),
        (changed(TOPIC_LENGTH, "b", 127), "TOPICLENGTH"),
        (changed(PROPERTIES_LENGTH, "h", -1), "PROPERTIESLENGTH"),
        (changed(PROPERTIES_LENGTH, "h", len(PROPERTIES) + 1), "PROPERTIESLENGTH"),
        (changed(PROPERTIES_LENGTH, "h", len(PROPERTIES) - 1), "TOTALSIZE"),
    ],
)
def test_a_field_that_contradicts_the_others_is_named(data: bytes, named: str) -> None:
    with pytest.raises(rmqstore.StoreCorruptError, match=named):
        rmqstore.decode_record(data)


def test_the_least_record() -> None:
    data = oracle.encode_record("", b"")
    assert len(data) == oracle.RECORD_MIN_SIZE
    message = rmqstore.decode_record(data)
    assert (message.topic, message.body, message.properties) == ("", b"", {})


def test_a_blank_is_no_record() -> None:
    with pytest.raises(rmqstore.StoreCorruptError):
        rmqstore.decode_record(struct.pack(">ii", 200, oracle.MAGIC_BLANK) + bytes(192))


@pytest.mark.parametrize("hosts", [("1.2.3.4:5", "[::1]:6"), ("[2001:db8::7]:5", "6.7.8.9:0")])
def test_fields_behind_hosts_of_either_length(hosts: tuple[str, str]) -> None:
    born, stored = hosts
    data = oracle.encode_record(
        "t", BODY, born_host=born, store_host=stored, store_timestamp=11, reconsume_times=12,
        prepared_transaction_offset=13,
    )  # fmt: skip
    message = rmqstore.decode_record(data)
    assert (message.born_host, message.store_host, message.store_timestamp) == (born, stored, 11)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (12, 13)
    assert message.body == BODY
