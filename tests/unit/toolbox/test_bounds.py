"""Memory that ``verify`` and ``repair`` take, whatever a store holds."""

import os
import tracemalloc

from rmqstore.toolbox import repair, verify
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
    assert "rebuild-json" in {one.action for one in planned.actions}
    assert peak < 32 * MIB
