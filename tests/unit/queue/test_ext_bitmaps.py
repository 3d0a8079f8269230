"""Bit maps of ext units: which subscriptions want a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from support import oracle_ext
from support.queue_ext import TAGS, config, fill

FILTERS = {
    "first": "TAGS = 'a'",
    "second": "n > 5 AND n BETWEEN 7 AND 60",
    "third": "missing IS NULL",
    "broken": "n > ",
}


def filter_file(root: Path, topic: str = "T", **changes: Any) -> None:
    """consumerFilter.json, each with bits of its own."""
    groups = {
        group: {
            "bloomFilterData": {"bitNum": 112, "bitPos": [3 * at, 3 * at + 1, 40 + at]},
            "bornTime": 1,
            "clientVersion": 1,
            "consumerGroup": group,
            "deadTime": 0,
            "expression": text,
            "expressionType": "SQL92",
            "topic": topic,
            **changes,
        }
        for at, (group, text) in enumerate(FILTERS.items())
    }
    path = root / "config" / "consumerFilter.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"groupFilterData": groups, "topic": topic}
    path.write_text(json.dumps({"filterDataByTopic": {topic: entry}}))


def bits(bitmap: bytes) -> set[int]:
    return {n for n in range(8 * len(bitmap)) if bitmap[n // 8] >> n % 8 & 1}


def test_bit_maps_say_who_wants_a_message(tmp_path: Path) -> None:
    root = tmp_path / "s"
    filter_file(root)
    with rmqstore.open(root, "a", config=config(enable_calc_filter_bit_map=True)) as store:
        for n in range(100):
            store.put("T", b"", tags=TAGS[n % 5], properties={"n": str(n)}, queue_id=0)
            store.put("U", b"", queue_id=0)
        ext = store["T"][0].ext_units()
        assert (store["U"][0].ext_units()["bitmap_size"] == 0).all()  # nobody subscribed to it
    found = oracle_ext.check_ext(root)
    for n in range(100):
        expected = {6, 7, 42}
        expected |= {0, 1, 40} if TAGS[n % 5] == "a" else set()
        expected |= {3, 4, 41} if 7 <= n <= 60 else set()
        assert len(found["T", 0, n].bitmap) == 14
        assert bits(found["T", 0, n].bitmap) == expected, n
        assert ext["bitmap"][n].tobytes() == found["T", 0, n].bitmap


@pytest.mark.parametrize("length", [0, 8, 64, 4096])
def test_how_long_bit_maps_are(tmp_path: Path, length: int) -> None:
    """As long as the Bloom filter's: the setting is what is kept ready, as in 4.9.3."""
    root = tmp_path / "s"
    filter_file(root)
    given = config(enable_calc_filter_bit_map=True, bit_map_length_consume_queue_ext=length)
    with rmqstore.open(root, "a", config=given) as store:
        store.put("T", b"", tags="a", queue_id=0)
    (found,) = oracle_ext.check_ext(root).values()
    assert len(found.bitmap) == 14
    assert bits(found.bitmap) == {0, 1, 40, 6, 7, 42}


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),  # not asked for
        ({"enable_calc_filter_bit_map": True, "expect_consumer_num_use_filter": 64}, {}),
        ({"enable_calc_filter_bit_map": True}, {"deadTime": 1000}),  # dead for long
        ({"enable_calc_filter_bit_map": True}, {"expressionType": "TAG"}),
        ({"enable_calc_filter_bit_map": True}, {"expression": "\udcff > 1"}),
    ],
)
def test_no_bit_maps(tmp_path: Path, given: dict[str, Any], changes: dict[str, Any]) -> None:
    root = tmp_path / "s"
    filter_file(root, **changes)
    with rmqstore.open(root, "a", config=config(**given)) as store:
        fill(store, 0, 10)
    assert {one.bitmap for one in oracle_ext.check_ext(root).values()} == {b""}


def test_a_bit_map_too_large_for_a_unit(tmp_path: Path) -> None:
    root = tmp_path / "s"
    wide = config(mapped_file_size_consume_queue_ext=1 << 20)
    with rmqstore.open(root, "a", config=wide) as store:
        for width, whole in ((32_747, True), (32_748, False)):
            store.core.set_bitmap_filters({"T": [("TRUE", [0, 8 * width - 1])]}, width)
            store.put("T", b"", queue_id=0)
            ext = store["T"][0].ext_units()[-1]
            assert ext["bitmap_size"] == (width if whole else -1)
            if whole:
                assert bits(ext["bitmap"].tobytes()) == {0, 8 * width - 1}
        with pytest.raises(ValueError, match="bit 16 of 16"):
            store.core.set_bitmap_filters({"T": [("TRUE", [16])]}, 2)
