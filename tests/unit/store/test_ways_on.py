"""Refusals name the way on."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import rmqstore
from rmqstore import bodies, offline
from rmqstore.brokerfiles import configfile
from rmqstore.files import paths
from rmqstore.services import snapshot

CONFIG = rmqstore.StoreConfig.small()


def test_a_group_with_consumers(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("T", b"x", queue_id=0)
        with (
            store.consumer("T", group="g"),
            pytest.raises(rmqstore.StoreError, match="are open: close them first"),
        ):
            store.delete_group("g")


def test_a_checkpoint_without_a_watermark(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    with pytest.raises(rmqstore.StoreCorruptError, match="no watermark; flush or close the store"):
        snapshot._watermark(tmp_path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configfile, "MAX_BYTES", 10)
    (tmp_path / "topics.json").write_bytes(b"x" * 11)
    with pytest.raises(rmqstore.StoreCorruptError, match="at most 10 are read; move it away"):
        configfile._read(tmp_path / "topics.json")


def test_the_log_of_a_dledger_group(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    for mode in ("r", "r+", "a"):
        with pytest.raises(rmqstore.IncompatibleStoreError, match="have its brokers run, and take"):
            rmqstore.open(tmp_path, mode)


def test_a_group_without_retry_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("T", b"x", queue_id=0)
        store.create_group("g")
    file = root / "config" / paths.SUBSCRIPTION_GROUP_JSON
    file.write_text(file.read_text().replace('"retryQueueNums":1', '"retryQueueNums":0'))
    with (
        rmqstore.open(root, "r+") as store,
        store.consumer("T", group="g") as consumer,
        pytest.raises(rmqstore.StoreError, match="give it a retryQueueNums of 1 or more in config"),
    ):
        consumer.retry(next(iter(consumer)))


def test_transactions(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        with pytest.raises(rmqstore.MessageIllegalError, match="must be that to commit to"):
            store.begin("RMQ_SYS_TRANS_HALF_TOPIC", b"x")
        transaction = store.begin("T", b"x")
        [found] = store.in_doubt()
        transaction.commit()
        with pytest.raises(rmqstore.StoreError, match="each ends once; begin another"):
            transaction.commit()
        with pytest.raises(rmqstore.StoreError, match=r"has ended: in_doubt\(\) lists"):
            found.rollback()


@pytest.mark.parametrize(
    ("stored", "sys_flag", "way"),
    [
        (b"none", 1, "raw_body has it as stored"),
        (zlib.compress(b"x"), 1 | 5 << 8, "raw_body has it as stored"),
        (zlib.compress(bytes(2000)), 1, "max_body_size, 1000: raise it, or take raw_body"),
    ],
)
def test_bodies(stored: bytes, sys_flag: int, way: str) -> None:
    with pytest.raises(rmqstore.StoreCorruptError, match=way):
        bodies.inflate(stored, sys_flag, 1000)


def test_a_store_that_is_only_read(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("T", b"x", queue_id=0)
    with (
        rmqstore.open(tmp_path / "store") as store,
        pytest.raises(rmqstore.ReadOnlyStoreError, match=r"mode 'r'; 'r\+' writes"),
    ):
        store.put("T", b"x")


def test_a_log_that_changes_while_it_is_copied(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        size = store.at(store.put("T", b"x", queue_id=0).physical_offset).store_size
    file_size = CONFIG.mapped_file_size_commit_log
    source = offline.LogSource(str(tmp_path / "store" / "commitlog"), file_size)
    piece = offline.LogPiece(0, 0, size, size + 1, 0)
    (tmp_path / "copy").mkdir()
    with pytest.raises(rmqstore.StoreError, match="copy again while nothing writes to it"):
        offline.copy_pieces([piece], {0: source}, tmp_path / "copy", file_size)


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_messages_that_retention_took(queue_id: int) -> None:
    assert str(rmqstore.MessagesRemovedError("T", queue_id, 10, 300)).endswith(
        "begins at 300 now; go on from there"
    )
