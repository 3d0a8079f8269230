"""A reader beside an owner whose recovery is interrupted within a unit that it writes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import rmqstore
from support.restoring import read_while_restored

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
    with ExitStack() as opened:
        readers = []

        def tear() -> Callable[[], object]:
            readers.append(opened.enter_context(rmqstore.open(owner.path, config=config)))
            assert len(readers[-1].get("orders", 0, 0, 9).messages) == 5
            return partial(poke, owner, at, poke(owner, at, data))

        def read() -> list[bytes]:
            return [m.body for m in readers[-1].get("orders", 0, 1, 9).messages]

        read_while_restored(tear, read, [b"1", b"2", b"3", b"4"])


def test_a_damaged_unit_is_reported(owner):
    with rmqstore.open(owner.path) as reader:
        assert len(reader.get("orders", 0, 0, 9).messages) == 5
        poke(owner, 0, struct.pack(">q", 0))
        with pytest.raises(rmqstore.StoreCorruptError, match="offset 40"):
            reader.get("orders", 0, 2, 9)
