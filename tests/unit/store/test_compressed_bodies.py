"""compress_above: which bodies are deflated, as what, and read back."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import MessageIllegalError, StoreConfig
from support import oracle_store

COMPRESSED = 1
SMALL = StoreConfig.small()
BODIES = [b"", b"x", b"y" * 99, b"z" * 100, b"w" * 5000, bytes(range(256)) * 40]


def assert_stored(message: Any, body: bytes, above: int | None) -> None:
    large = above is not None and len(body) >= above
    expected = zlib.compress(body, 5) if large else body
    assert message.sys_flag & COMPRESSED == (COMPRESSED if large else 0)
    assert bytes(message.raw_body) == expected
    assert message.body_crc == zlib.crc32(expected) & 0x7FFFFFFF
    assert message.body == body


@pytest.mark.parametrize("above", [None, 1, 100, 101, 1 << 20])
def test_bodies_of_that_size_are_deflated(tmp_path: Path, above: int | None) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL.replace(compress_above=above)) as store:
        for body in BODIES:
            assert_stored(store.at(store.put("t", body).physical_offset), body, above)
            done = asyncio.run(store.aput("t", memoryview(body)))
            assert_stored(store.at(done.physical_offset), body, above)
        for column in (BODIES, pa.array(BODIES, pa.binary()), [bytearray(b) for b in BODIES]):
            put = store.put_many("t", column, queue_id=1)
            for offset, body in zip(put.physical_offset.tolist(), BODIES, strict=True):
                assert_stored(store.at(offset), body, above)
        put = store.put_many("t", b"s" * 300, queue_id=[1, 2], keys=["a", "b"])
        for offset in put.physical_offset.tolist():
            assert_stored(store.at(offset), b"s" * 300, above)
        # A client's batch is not compressed.
        batch = store.put_batch("t", BODIES, queue_id=3)
        assert [m.sys_flag for m in store["t"][3][batch.queue_offset :]] == [0] * len(BODIES)
    with rmqstore.open(root, "r", verify="full") as store:
        assert store.recovery.ranges == ()
    oracle_store.check_store(root)


def test_a_table_of_compressed_messages(tmp_path: Path) -> None:
    """Inflated where ``body`` is there alone, the very bytes with ``raw_body``."""
    config = SMALL.replace(compress_above=100)
    with (
        rmqstore.open(tmp_path / "from", "a", config=config) as source,
        rmqstore.open(tmp_path / "to", "a", config=config) as store,
    ):
        source.put_many("t", BODIES, queue_id=0)
        store.put_table(source.scan())
        columns = [name for name in source.scan().schema.names if name != "body"]
        store.put_table(source.scan(columns=[*columns, "raw_body"]))
        found = list(store["t"][0])
        assert [m.body for m in found] == BODIES * 2
        assert [m.sys_flag for m in found[: len(BODIES)]] == [0] * len(BODIES)
        assert [bytes(m.raw_body) for m in found[len(BODIES) :]] == [
            bytes(m.raw_body) for m in source["t"][0]
        ]


def test_a_body_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    config = SMALL.replace(compress_above=100, max_body_size=1000)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        assert store.at(store.put("t", bytes(1000)).physical_offset).body == bytes(1000)
        before = store.stats()["wrote_position"]
        with pytest.raises(MessageIllegalError, match=r"body has 1001 bytes.*is 1000"):
            store.put("t", bytes(1001))
        with pytest.raises(MessageIllegalError, match="bodies, row 1 has 1001 bytes"):
            store.put_many("t", [b"", bytes(1001)])
        with pytest.raises(MessageIllegalError, match="body has 1001 bytes"):
            asyncio.run(store.aput("t", bytes(1001)))
        assert store.stats()["wrote_position"] == before


def test_the_limit_of_a_record_is_that_of_the_stored_bytes(tmp_path: Path) -> None:
    config = SMALL.replace(compress_above=100, max_message_size=2000)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        assert store.at(store.put("t", bytes(100_000)).physical_offset).body == bytes(100_000)


@pytest.mark.parametrize("body", ["text", 5, None])
def test_what_is_no_body_is_refused_as_ever(tmp_path: Path, body: Any) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL.replace(compress_above=1)) as store:
        with pytest.raises(TypeError, match="body must be bytes"):
            store.put("t", body)
        with pytest.raises(TypeError, match="body must be bytes"):
            asyncio.run(store.aput("t", body))


@pytest.mark.parametrize("value", [0, -1])
def test_a_size_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match="compress_above is"):
        StoreConfig(compress_above=value)


def test_the_settings_of_a_broker_conf(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("compressAbove=4096\nenableLmq=true\nmaxLmqConsumeQueueNum=7\n")
    config = StoreConfig.from_file(path)
    assert (config.compress_above, config.enable_lmq) == (4096, True)
    assert config.max_lmq_consume_queue_num == 7
    assert StoreConfig().compress_above is None
