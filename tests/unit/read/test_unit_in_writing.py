"""A reader beside an owner whose recovery is interrupted within a unit that it writes."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

import rmqstore

CONFIG = rmqstore.StoreConfig.small()
TORN = {
    "offset emptied, size not": (0, struct.pack(">q", 0)),
    "offset written, size not": (8, struct.pack(">i", 91)),
}


@pytest.fixture
def owner(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(5):
            store.put("orders", b"%d" % number, queue_id=0)
        store.flush()
        yield store


def poke(store, at: int, data: bytes) -> bytes:
    """Write bytes of unit 2, and return those that were there."""
    with (Path(store.path) / "consumequeue/orders/0" / f"{0:020d}").open("r+b") as file:
        file.seek(2 * 20 + at)
        was = file.read(len(data))
        file.seek(2 * 20 + at)
        file.write(data)
    return was


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("torn", TORN)
def test_its_end_is_waited_for(owner, torn, config):
    at, data = TORN[torn]
    with rmqstore.open(owner.path, config=config) as reader:
        assert len(reader.get("orders", 0, 0, 9).messages) == 5
        was = poke(owner, at, data)
        end = threading.Timer(0.02, poke, (owner, at, was))
        end.start()
        found = [m.body for m in reader.get("orders", 0, 1, 9).messages]
        end.join()
        assert found == [b"1", b"2", b"3", b"4"]


def test_a_damaged_unit_is_reported(owner):
    with rmqstore.open(owner.path) as reader:
        assert len(reader.get("orders", 0, 0, 9).messages) == 5
        poke(owner, 0, struct.pack(">q", 0))
        with pytest.raises(rmqstore.StoreCorruptError, match="offset 40"):
            reader.get("orders", 0, 2, 9)
