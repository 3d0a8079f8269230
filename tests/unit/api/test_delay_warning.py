"""Delayed messages wait for a broker: a writer is told so, once for each store."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config import RmqStoreWarning, StoreConfig

MESSAGE = r"waits in SCHEDULE_TOPIC_XXXX until a broker has the store"


def test_once_a_store(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with rmqstore.open(tmp_path / name, "a", config=StoreConfig.small()) as store:
            store.put("t", b"x", delay_level=0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    store.put("t", b"x", delay_level=3)
            [warning] = caught
            assert warning.category is RmqStoreWarning
            assert MESSAGE in str(warning.message)
            assert warning.filename == __file__
            assert len(store["SCHEDULE_TOPIC_XXXX"][2]) == 3


def test_for_aput_too(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        with pytest.warns(RmqStoreWarning, match=MESSAGE):
            asyncio.run(store.aput("t", b"x", delay_level=1))
        assert len(store["SCHEDULE_TOPIC_XXXX"][0]) == 1


def test_nothing_is_said_without_a_delay(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        store.put("t", b"x")
        store.put_batch("t", [b"x"])
        store.put_many("t", [b"x"])
        with pytest.raises(ValueError, match="delay_level"):
            store.put("t", b"x", delay_level=19)


def test_as_an_error_it_comes_before_anything_is_stored(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RmqStoreWarning):
                store.put("t", b"x", delay_level=1)
        assert store.scan().count() == 0
        assert "t" not in store
        store.put("t", b"x", delay_level=1)  # said already
        assert store.scan().count() == 1
