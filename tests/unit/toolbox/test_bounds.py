"""Memory that ``verify`` and ``repair`` take, whatever a store holds."""

import os
import tracemalloc

import numpy as np
import pytest

from rmqstore.base.layout import UNIT_FIELDS
from rmqstore.toolbox import repair, verify
from rmqstore.toolbox.repairs.repair_lost import lost_records
from support import repairs

MIB = 1 << 20


def peak_of(work):
    tracemalloc.start()
    try:
        found = work()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_json_file_that_is_too_large_is_not_read(tmp_path):
    root = tmp_path / "store"
    repairs.make(root, count=30)
    for name in ("topics.json", "topics.json.bak"):
        with (root / "config" / name).open("wb") as file:
            os.truncate(file.fileno(), 65 * MIB)
    report, peak = peak_of(lambda: verify(root))
    [found] = [one for one in report.problems if one.kind == "json"]
    assert found.file == "config/topics.json"
    assert "68,157,440 bytes, of at most 67,108,864" in found.message
    assert peak < 32 * MIB
    planned, peak = peak_of(lambda: repair(root))
    (action,) = [one for one in planned.actions if one.file == "config/topics.json"]
    assert action.action == "none"  # a broker may read it, and know more than the log shows
    assert "make it readable, or move it away" in action.message
    assert peak < 32 * MIB


@pytest.mark.parametrize("name", ["consumerOffset.json", "topics.json"])
def test_a_json_file_that_is_too_large_is_not_replaced(tmp_path, name):
    """Not by a backup that is whole either, which is older."""
    root = tmp_path / "store"
    repairs.make(root, count=30)
    path = root / "config" / name
    path.with_name(f"{name}.bak").write_bytes(path.read_bytes())
    with path.open("r+b") as file:
        os.truncate(file.fileno(), 65 * MIB)
    done = repair(root, apply=True)
    assert [one.action for one in done.actions if one.file == f"config/{name}"] == ["none"]
    assert path.stat().st_size == 65 * MIB


def test_the_lost_records_of_a_large_part_are_found_piece_by_piece(tmp_path):
    size, count = 128, 1 << 19
    units = np.zeros(count, UNIT_FIELDS)
    units["physical_offset"] = np.arange(count) * size
    units["size"] = size
    for number, part in enumerate(np.split(units, 4)):
        directory = tmp_path / "consumequeue/orders/0"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number * part.nbytes:020d}").write_bytes(part.tobytes())

    def ends():
        found = lost_records(tmp_path, size, count * size)
        return [
            sum(1 for one in found if (one.offset, one.size) == (one.queue_offset * size, size))
        ]

    [found], peak = peak_of(ends)
    assert found == count - 1
    assert peak < 64 * MIB  # half of what their objects take
