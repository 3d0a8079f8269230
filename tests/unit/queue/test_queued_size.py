"""Number and bytes of the records that units name, for units of any size."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest

import rmqstore
from rmqstore.base.layout import UNIT, UNIT_BLANK_SIZE
from rmqstore.consume import lag

COUNT = 20_000  # of which 6,000 are in a file
SIZES = (0, 1, -1, 91, 1226, UNIT_BLANK_SIZE - 1, UNIT_BLANK_SIZE, -(1 << 31))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put_many("orders", [b""] * COUNT, queue_id=0)
    return tmp_path


def files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "orders" / "0").iterdir())


def spoil(root: Path, seed: int) -> None:
    """Give some units in the middle another size."""
    chosen = random.Random(seed)
    for at in chosen.sample(range(100, COUNT - 100), 500):
        file, unit = divmod(at, 6_000)
        with files(root)[file].open("r+b") as opened:
            opened.seek(unit * UNIT.size + 8)
            opened.write(chosen.choice(SIZES).to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("seed", range(5))
def test_units_of_any_size(root: Path, seed: int) -> None:
    spoil(root, seed)
    chosen = random.Random(seed)
    with rmqstore.open(root) as store:
        low, high = store.queue_bounds("orders", 0)
        assert (low, high) == (0, COUNT)
        parts = [sorted(chosen.choices(range(high), k=2)) for _ in range(3)]
        for start, stop in [(low, high), *parts]:
            units = bytes(memoryview(store.core.units("orders", 0, start, stop)))
            sizes = [size for _, size, _ in UNIT.iter_unpack(units) if 0 < size < UNIT_BLANK_SIZE]
            expected = len(sizes), sum(sizes)
            assert lag.queued_size(store.core, "orders", 0, start, stop) == expected


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_beside_and_in_a_writer(root: Path, mode: Literal["r", "r+"]) -> None:
    with rmqstore.open(root, "r+") as writer:
        writer.put("orders", b"one more", queue_id=0)
        size = sum(message.store_size for message in writer["orders"].messages())
        with rmqstore.open(root, "r") as reader:
            core = (writer if mode == "r+" else reader).core
            assert lag.queued_size(core, "orders", 0, 0, COUNT + 1) == (COUNT + 1, size)


def test_no_queue(root: Path) -> None:
    with rmqstore.open(root) as store:
        assert lag.queued_size(store.core, "orders", 7, 0, COUNT) == (0, 0)
        assert lag.queued_size(store.core, "none", 0, 0, COUNT) == (0, 0)
        assert lag.queued_size(store.core, "orders", 0, 5, 5) == (0, 0)


@pytest.mark.parametrize("name", ["units", "queued_size"])
def test_units_beyond_the_last_file(root: Path, name: str) -> None:
    with rmqstore.open(root) as store, pytest.raises(FileNotFoundError):
        getattr(store.core, name)("orders", 0, COUNT, COUNT + 10_000)
