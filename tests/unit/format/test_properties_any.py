"""Properties of any stored bytes, as a plain parser reads them: names, values, what is not text."""

from __future__ import annotations

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support import oracle

LARGEST = 32_767
PARTS = st.one_of(
    st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b"k1 k2", b"\xff"]),
    st.sampled_from([b"\xed\xa0\x80", b"\xf0\x9f\x98", "\u017c\u00f3\u0142\u0107".encode(), b"\0"]),
    st.binary(max_size=70),
)


def read(data: bytes) -> rmqstore.Message:
    return rmqstore.decode_record(oracle.encode_record("t", b"", properties=data))


def check(data: bytes) -> None:
    message = read(data)
    expected = oracle.decode_properties(data)
    assert (message.tags, message.uniq_key) == (expected.get("TAGS"), expected.get("UNIQ_KEY"))
    assert message.keys == oracle.split_keys(expected.get("KEYS"))
    for _ in range(3):
        assert list(message.properties.items()) == list(expected.items())


@given(st.lists(PARTS, max_size=40).map(b"".join))
def test_any_bytes(data: bytes) -> None:
    check(data[:LARGEST])


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=80), max_size=30))
def test_any_text(pairs: dict[str, str]) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    check(text.encode("utf-8", "replace")[:LARGEST])


@pytest.mark.parametrize(
    "data",
    [
        b"a\x01" + b"v" * (LARGEST - 2),
        b"n" * (LARGEST - 2) + b"\x01v",
        b"\x02" * LARGEST,
        b"\xff" * (LARGEST - 2) + b"\x01v",
        b"".join(b"%04d\x01%d\x02" % (at, at) for at in range(3_000)),
        b"a\x01b\x02" * (LARGEST // 4),
    ],
    ids=["value", "name", "empty", "invalid", "many", "repeated"],
)
def test_the_largest(data: bytes) -> None:
    check(data)


def test_they_are_a_dict_of_the_caller() -> None:
    pairs = {"TAGS": "A", "KEYS": "k", "color": "red"}
    message = read(oracle.encode_properties(pairs))
    for _ in range(3):
        found = message.properties
        assert type(found) is dict
        found["color"] = "blue"
        found.clear()
    assert message.properties == pairs
    assert json.loads(json.dumps(message.properties)) == pairs
    assert {**message.properties, "a": "b"} == pairs | {"a": "b"} == message.properties | {"a": "b"}
    assert copy.deepcopy(message.properties) == pickle.loads(pickle.dumps(message.properties))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_messages_outlive_their_store(tmp_path: Path, mode: str) -> None:
    pairs = {"color": "red", "\u20ac": "\U0001d11e"}
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        for at in range(100):
            store.put("t", b"%d" % at, queue_id=0, tags="A", keys=[f"k{at}"], properties=pairs)
    with rmqstore.open(tmp_path / "store", mode) as store:
        found = store.get("t", 0, 0, 100).messages
        again = store.get("t", 0, 0, 100).messages
    with ThreadPoolExecutor(4) as pool:
        for round_of in pool.map(lambda _: [m.properties for m in found], range(8)):
            assert all(properties.items() >= pairs.items() for properties in round_of)
    assert found == again == [pickle.loads(pickle.dumps(message)) for message in found]
    assert [hash(message) for message in found] == [hash(message) for message in again]
    assert [message.keys for message in found] == [(f"k{at}",) for at in range(100)]
    assert [message.body for message in found] == [b"%d" % at for at in range(100)]
