"""Strategies of the property tests, and comparison of a message with the codec's record."""

from __future__ import annotations

import ipaddress

from hypothesis import strategies as st

from support.oracle import Record, split_host

INT32 = 2**31 - 1
INT64 = 2**63 - 1
TOPIC_ALPHABET = "%|_-abcxyzABCXYZ0189"

# colliding pairs, a hash without an absolute value, and one whose slot is 0
NASTY_WORDS = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "polygenelubricants", "\U0001d11e", "\u00e9"]

topics = st.text(TOPIC_ALPHABET, min_size=1, max_size=127)


def texts(*, exclude: str = "", min_size: int = 0, max_size: int = 20) -> st.SearchStrategy[str]:
    """Text that a property can hold, non-BMP characters too."""
    characters = st.characters(codec="utf-8", exclude_characters="\x01\x02" + exclude)
    wide = st.sampled_from(["\U0001d11e", "\U0010ffff", "\u20ac", "\u00e9", "\ud7ff", "\ufffd"])
    return st.text(characters | wide, min_size=min_size, max_size=max_size)


words = st.sampled_from(NASTY_WORDS) | texts(exclude=" |", min_size=1, max_size=12).filter(
    lambda text: text == text.strip()
)
# no RocketMQ name of its own starts like this
user_properties = st.dictionaries(
    texts(min_size=0, max_size=10).map(lambda text: "p." + text),
    texts(min_size=1, max_size=20),
    max_size=3,
)

ports = st.integers(0, 65535)
v4_hosts = st.builds("{}:{}".format, st.ip_addresses(v=4).map(str), ports)
v6_hosts = st.builds(
    "[{}]:{}".format,
    (st.ip_addresses(v=6) | st.sampled_from([ipaddress.ip_address("::1")])).map(str),
    ports,
)
hosts = v4_hosts | v6_hosts

FIELDS = [
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "flag",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "properties",
    "tags",
    "keys",
    "uniq_key",
    "msg_id",
]


def same_host(left: str, right: str) -> bool:
    """Compare by value: one IPv6 address has many spellings."""
    (address, port), (other_address, other_port) = split_host(left), split_host(right)
    return address == other_address and (port - other_port) % (1 << 32) == 0


def assert_same(message, record: Record) -> None:
    """Assert that the package's message has the fields of the slow codec's record."""
    for name in FIELDS:
        found, expected = getattr(message, name), getattr(record, name)
        assert found == expected, (name, found, expected)
        assert type(found) is type(expected) or isinstance(expected, dict), (name, type(found))
    assert same_host(message.born_host, record.born_host)
    assert same_host(message.store_host, record.store_host)
    assert bytes(message.raw_body) == record.raw_body
