"""Hosts and message ids as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support import oracle
from support.strategies import hosts


@given(hosts, hosts, st.integers(0, 1 << 62))
def test_hosts_and_the_message_id_of_a_record(born: str, stored: str, offset: int) -> None:
    data = oracle.encode_record("t", b"", born_host=born, store_host=stored, physical_offset=offset)
    message, expected = rmqstore.decode_record(data), oracle.decode_record(data)
    assert (message.born_host, message.store_host) == (expected.born_host, expected.store_host)
    assert message.msg_id == expected.msg_id
    assert oracle.parse_message_id(message.msg_id) == (expected.store_host, offset)


@pytest.mark.parametrize(
    ("host", "msg_id"),
    [
        ("127.0.0.1:10911", "7F00000100002A9F000000000000007B"),
        ("255.255.255.255:2147483647", "FFFFFFFF7FFFFFFF000000000000007B"),
        ("[::1]:1", "00000000000000000000000000000001" + "00000001" + "000000000000007B"),
    ],
)
def test_digits(host: str, msg_id: str) -> None:
    data = rmqstore.encode_record("t", b"", store_host=host, physical_offset=123)
    assert rmqstore.decode_record(data).msg_id == msg_id


@pytest.mark.parametrize(
    "host",
    [
        "", ":", ":1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:-1", "1.2.3.4:2147483648",
        "1.2.3:4", "1.2.3.4.5:6", "256.2.3.4:5", "1.2.3.4 :5", "localhost:1", "::1:1", "[::1]",
        "[]:1", "[1.2.3.4]:5", "[::g]:1", "1.2.3.4\0:5", "[" + "1" * 80 + "]:1",
    ],
)  # fmt: skip
def test_other_text_is_no_host(host: str) -> None:
    with pytest.raises(ValueError, match="host"):
        rmqstore.encode_record("t", b"", born_host=host)
