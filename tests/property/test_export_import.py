"""Exports, imported again: equal messages in all formats."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import toolbox
from support.strategies import INT32, hosts, texts, user_properties, words

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.property

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
SAME = (
    *("topic", "tags", "keys", "uniq_key", "properties", "body", "flag"),
    *("born_timestamp", "born_host", "reconsume_times"),
)
FORMATS = ("parquet", "arrow", "csv", "jsonl")
# Times that ISO-8601 has, and others.
TIMES = st.integers(0, 2**41) | st.integers(0, 2**53)

odd = st.sampled_from(["", "\r\n", '"', ",", "\\", "\0", "\u2028", "\ufeff", "[not inflated] x"])
bodies = (
    st.binary(max_size=40)
    | texts(max_size=20).map(str.encode)
    | odd.map(str.encode)
    | st.sampled_from([b"x" * 5000, b"\xff", b"\xed\xa0\x80"])
)
messages = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["orders", "%RETRY%g", "a-b_c|d"]),
        "queue_id": st.integers(0, 5),
        "tags": st.none() | texts(exclude="|", min_size=1, max_size=8),
        "keys": st.lists(words, max_size=3),
        "uniq_key": st.none() | texts(min_size=1, max_size=32),
        "properties": st.none()
        | user_properties.map(lambda pairs: [*pairs.items()])
        | st.just([(f"p.{number}", "v" * 20) for number in range(60)]),
        "body": bodies,
        "flag": st.integers(-INT32, INT32),
        "born_timestamp": TIMES,
        "born_host": hosts,
        "reconsume_times": st.integers(0, 20),
    }
)
TYPES = {
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "tags": pa.string(),
    "uniq_key": pa.string(),
    "body": pa.binary(),
}


def table(rows: list[dict[str, Any]]) -> Any:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return pa.table({name: pa.array(values, TYPES.get(name)) for name, values in columns.items()})


def seen(root: Path, *names: str) -> list[tuple[Any, ...]]:
    with rmqstore.open(root) as store:
        return [
            tuple(getattr(one, name) for name in (*SAME, *names))
            for topic in sorted(store.topics)
            for queue_id in list(store[topic])
            for one in store[topic][queue_id]
        ]


@given(st.lists(messages, min_size=1, max_size=12), st.sampled_from(FORMATS))
def test_messages_come_back_as_they_were(rows: list[dict[str, Any]], form: str) -> None:
    with TemporaryDirectory() as directory:
        here = Path(directory)
        with rmqstore.open(here / "a", "a", config=CONFIG) as store:
            store.put_table(table(rows))
        done = toolbox.export(here / "a", here / f"f.{form}")
        assert (done.messages, done.skipped) == (len(rows), 0)
        assert done.bytes == (here / f"f.{form}").stat().st_size
        made = toolbox.import_messages(
            here / f"f.{form}", here / "b", keep_queues=True, config=CONFIG
        )
        assert (made.messages, made.skipped) == (len(rows), 0)
        kept = ("queue_id", "queue_offset")
        assert seen(here / "b", *kept) == seen(here / "a", *kept)
        toolbox.import_messages(
            here / f"f.{form}", here / "c", keep_queues=True, keep_time=True, config=CONFIG
        )
        kept = (*kept, "store_timestamp", "physical_offset", "body_crc")
        assert seen(here / "c", *kept) == seen(here / "a", *kept)
        with rmqstore.open(here / "c", "r+", config=CONFIG, verify="full") as store:
            assert not store.recovery.ranges
            for row in rows:
                for key in row["keys"]:
                    assert store.query(row["topic"], key)
