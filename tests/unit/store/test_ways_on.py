"""Refusals name the way on."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.brokerfiles import configfile
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
