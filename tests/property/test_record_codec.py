"""The record codec, the hashes and the CRC against the slow codec."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rmqstore
from support import oracle
from support.strategies import (
    INT32,
    INT64,
    TOPIC_ALPHABET,
    assert_same,
    hosts,
    texts,
    topics,
    user_properties,
)

pytestmark = pytest.mark.property

REFUSED = (rmqstore.StoreCorruptError, ValueError)

entries = st.tuples(
    texts(min_size=0, max_size=8) | st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a"]),
    st.sampled_from(["\x01", ""]),
    texts(min_size=0, max_size=12) | st.sampled_from(["Aa", "k1 k2  k3 ", " "]),
)


@st.composite
def stored_properties(draw):
    """Bytes as a client may have sent them: duplicates, empty names and values, a last 0x02."""
    pairs = draw(st.lists(entries, max_size=6))
    text = "\x02".join("".join(pair) for pair in pairs)
    return (text + draw(st.sampled_from(["", "\x02", "\x02\x02"]))).encode()


@st.composite
def records(draw):
    """The arguments of encode_record."""
    body = draw(st.binary(max_size=200))
    sys_flag = draw(st.sampled_from([0, 2, 4, 8, 12]))
    if draw(st.booleans()):
        body = zlib.compress(body)
        sys_flag |= oracle.FLAG_COMPRESSED
    born_host, store_host = draw(hosts), draw(hosts)
    sys_flag |= oracle.FLAG_BORN_V6 if born_host.startswith("[") else 0
    sys_flag |= oracle.FLAG_STORE_V6 if store_host.startswith("[") else 0
    topic = draw(topics | st.sampled_from(["", "t", "T" * 127]))
    return (topic, body), {
        "queue_id": draw(st.integers(0, INT32)),
        "queue_offset": draw(st.integers(0, 1 << 62)),
        "physical_offset": draw(st.integers(0, 1 << 62)),
        "flag": draw(st.integers(-INT32 - 1, INT32)),
        "sys_flag": sys_flag,
        "born_timestamp": draw(st.integers(0, 1 << 62)),
        "born_host": born_host,
        "store_timestamp": draw(st.integers(0, 1 << 62)),
        "store_host": store_host,
        "reconsume_times": draw(st.integers(0, INT32)),
        "prepared_transaction_offset": draw(st.integers(0, 1 << 62)),
        "properties": draw(stored_properties() | user_properties),
    }


@given(records())
def test_encode_and_decode(record):
    arguments, options = record
    data = rmqstore.encode_record(*arguments, **options)
    assert data == oracle.encode_record(*arguments, **options)
    decoded = oracle.decode_record(data)
    message = rmqstore.decode_record(data)
    assert_same(message, decoded)
    assert message.body == decoded.body


@given(records(), st.text(TOPIC_ALPHABET, max_size=400) | st.sampled_from(["T" * 32767]))
def test_decode_the_second_version(record, topic):
    """RocketMQ 5's records with 2 bytes of topic length, for which a topic need not be long."""
    (_, body), options = record
    data = oracle.encode_record(topic, body, version=2, **options)
    decoded = oracle.decode_record(data)
    assert decoded.topic == topic
    message = rmqstore.decode_record(data)
    assert_same(message, decoded)
    assert message.body == decoded.body
    assert_same(rmqstore.decode_record(b"x" + data + b"y", 1), decoded)
    for cut in (data[:-1], data[: len(data) // 2]):
        with pytest.raises(REFUSED):
            rmqstore.decode_record(cut)


@given(records(), st.binary(max_size=9), st.binary(max_size=9), st.sampled_from([bytes, bytearray]))
def test_decode_in_the_middle_of_a_buffer(record, before, after, buffer):
    data = oracle.encode_record(*record[0], **record[1])
    decoded = oracle.decode_record(data)
    whole = buffer(before + data + after)
    assert_same(rmqstore.decode_record(whole, len(before)), decoded)
    assert_same(rmqstore.decode_record(memoryview(whole), len(before)), decoded)


@given(records())
def test_host_bits_follow_from_the_hosts(record):
    arguments, options = record
    expected = oracle.encode_record(*arguments, **options)
    options["sys_flag"] &= ~(oracle.FLAG_BORN_V6 | oracle.FLAG_STORE_V6)
    assert rmqstore.encode_record(*arguments, **options) == expected


@pytest.mark.parametrize("size", [0, 1, 2, 126, 127])
def test_topic_lengths(size):
    data = rmqstore.encode_record("t" * size, b"x")
    assert data == oracle.encode_record("t" * size, b"x")
    assert rmqstore.decode_record(data).topic == "t" * size


@pytest.mark.parametrize("size", [0, 1, 3, 255, 256, 32766, 32767])
def test_properties_lengths(size):
    properties = (b"a\x01" + b"v" * size)[:size]
    data = rmqstore.encode_record("t", b"x", properties=properties)
    assert data == oracle.encode_record("t", b"x", properties=properties)
    assert_same(rmqstore.decode_record(data), oracle.decode_record(data))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4095, 4096, 4097, 300_000, 5_000_000])
def test_body_lengths(size):
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    data = rmqstore.encode_record("t", body)
    assert data == oracle.encode_record("t", body)
    message = rmqstore.decode_record(data)
    assert message.body == body
    assert message.body_crc == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("t" * 128, b""),
        ("t" * 1000, b""),
        ("t", b"a\x01" + b"v" * 32766),
        ("t", {"a": "v" * 32766}),
    ],
)
def test_what_does_not_fit_is_refused(topic, properties):
    with pytest.raises(ValueError, match=r"127|32,?767"):
        rmqstore.encode_record(topic, b"x", properties=properties)


@given(stored_properties())
@example(b"a\x01\x02b\x01c")
@example(b"a\x01b\x02a\x01c\x02")
@example(b"\x01b\x02c")
@example(b"a\x01b\x01c\x02TAGS\x01\xf0\x9d\x84\x9e")
def test_properties_are_read_as_rocketmq_reads_them(properties):
    data = oracle.encode_record("t", b"", properties=properties)
    message = rmqstore.decode_record(data)
    assert message.properties == oracle.decode_properties(properties)


@given(st.binary(max_size=40))
@example(b"TAGS\x01\xed\xa0\x80")
@example(b"TAGS\x01\xc0\x80")
@example(b"TAGS\x01\xe4\xb8\x02KEYS\x01\xff")
def test_text_that_is_not_utf8(properties):
    data = oracle.encode_record("t", b"", properties=properties)
    message = rmqstore.decode_record(data)
    assert message.properties == oracle.decode_properties(properties)


@given(records(), st.data())
def test_truncations_are_refused(record, data):
    encoded = oracle.encode_record(*record[0], **record[1])
    size = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(REFUSED):
        rmqstore.decode_record(encoded[:size])
    # the same where the buffer goes on, unless zeros say what the record said
    _assert_refused_or_same(encoded[:size] + bytes(len(encoded)), True)


@given(records(), st.integers(-INT64, INT64))
def test_positions_outside_are_refused(record, at):
    encoded = oracle.encode_record(*record[0], **record[1])
    if 0 <= at < len(encoded):
        at += len(encoded)
    with pytest.raises((*REFUSED, IndexError)):
        rmqstore.decode_record(encoded, at)


@given(
    records(),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    st.booleans(),
)
def test_mutations_are_refused_or_read_the_same(record, changes, check_crc):
    changed = bytearray(oracle.encode_record(*record[0], **record[1]))
    for place, difference in changes:
        changed[int(place * len(changed))] ^= difference
    if changed[4:8] == b"\xda\xa3\x20\xab":
        return  # RocketMQ 5's record version: another layout
    _assert_refused_or_same(bytes(changed), check_crc)


@given(records(), st.data(), st.integers(-INT32 - 1, INT32))
def test_hostile_lengths_are_refused_or_read_the_same(record, data, length):
    encoded = bytearray(oracle.encode_record(*record[0], **record[1]))
    decoded = oracle.decode_record(encoded)
    body_at = len(encoded) - 7 - len(decoded.raw_body) - len(decoded.topic.encode())
    body_at -= len(decoded.raw_properties)
    places = [(0, 4), (body_at, 4), (body_at + 4 + len(decoded.raw_body), 1)]
    places.append((len(encoded) - 2 - len(decoded.raw_properties), 2))
    at, width = data.draw(st.sampled_from(places))
    encoded[at : at + width] = (length % (1 << 8 * width)).to_bytes(width, "big")
    _assert_refused_or_same(bytes(encoded), True)


def _assert_refused_or_same(encoded, check_crc):
    try:
        decoded = oracle.decode_record(encoded, check_crc=check_crc)
    except oracle.OracleError:
        with pytest.raises(REFUSED):
            rmqstore.decode_record(encoded, check_crc=check_crc)
        return
    try:
        message = rmqstore.decode_record(encoded, check_crc=check_crc)
    except REFUSED:
        return
    assert_same(message, decoded)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    with pytest.raises(REFUSED):
        rmqstore.decode_record(data)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_changed_body_is_found_by_its_crc(body, data):
    encoded = bytearray(oracle.encode_record("t", body))
    at = data.draw(st.integers(88, 87 + len(body)))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(rmqstore.StoreCorruptError):
        rmqstore.decode_record(bytes(encoded))
    message = rmqstore.decode_record(bytes(encoded), check_crc=False)
    assert bytes(message.raw_body) == bytes(encoded[88 : 88 + len(body)])


@given(texts(max_size=60) | st.text(max_size=20))
@example("")
@example("Aa")
@example("BB")
@example("polygenelubricants")
@example("\U0001d11e")
@example("\U0010ffff\uffff\u0800\u07ff\u0080\u007f")
def test_string_hash(text):
    assert rmqstore.string_hash(text) == oracle.string_hash(text)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_crc32(data, value, skip):
    view = memoryview(data)[skip:]
    assert rmqstore.crc32(view) == zlib.crc32(view)
    assert rmqstore.crc32(view, value) == zlib.crc32(view, value)


@pytest.mark.parametrize("size", [*range(0, 300, 7), 1023, 1024, 4095, 65536, 1_000_003])
def test_crc32_of_every_length_class_and_alignment(size):
    data = bytes((7 * index + index // 256) & 0xFF for index in range(size + 17))
    for start in range(17):
        view = memoryview(data)[start : start + size]
        assert rmqstore.crc32(view) == zlib.crc32(view)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_crc32_goes_on(parts):
    value = 0
    for part in parts:
        value = rmqstore.crc32(part, value)
    assert value == zlib.crc32(b"".join(parts))
