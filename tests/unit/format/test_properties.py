"""Properties of a record as text: what is a pair, which of two counts, and what is written."""

from __future__ import annotations

import pytest

import rmqstore
from support import oracle


def read(data: bytes) -> rmqstore.Message:
    return rmqstore.decode_record(oracle.encode_record("t", b"", properties=data))


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"\x01b\x02c\x01\x02d\x02e\x01f", {"e": "f"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\xff", {"a": "\ufffd"}),
    ],
)
def test_pairs(data: bytes, pairs: dict[str, str]) -> None:
    assert oracle.decode_properties(data) == pairs
    assert read(data).properties == pairs


@pytest.mark.parametrize(
    ("data", "tags", "keys", "uniq_key"),
    [
        (b"TAGS\x01A", "A", (), None),
        (b"TAGS\x01A\x02TAGS\x01B", "B", (), None),
        (b"tags\x01A\x02TAG\x01B\x02TAGSS\x01C", None, (), None),
        (b"KEYS\x01a  b ", None, ("a", "b"), None),
        (b"KEYS\x01 \x02UNIQ_KEY\x01u", None, (), "u"),
        (b"UNIQ_KEY\x01\x02KEYS\x01k", None, ("k",), None),
    ],
)
def test_names_of_the_store(
    data: bytes, tags: str | None, keys: tuple[str, ...], uniq_key: str | None
) -> None:
    message = read(data)
    assert (message.tags, message.keys, message.uniq_key) == (tags, keys, uniq_key)


def test_a_mapping_is_written_in_its_order() -> None:
    pairs = {"b": "1", "a": "2", "\u20ac": "\U0001d11e"}
    assert rmqstore.encode_record("t", b"", properties=pairs) == oracle.encode_record(
        "t", b"", properties=pairs
    )
    assert list(read(oracle.encode_properties(pairs)).properties) == list(pairs)
