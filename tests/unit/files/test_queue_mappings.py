"""How the kernel is asked to treat the mappings of a store that is open for writing."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore


def flags_of(folder: str) -> list[set[str]]:
    """Return the kernel's flags of each mapping of a file below a folder of that name."""
    found = []
    path = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("VmFlags:"):
            if f"/{folder}/" in path:
                found.append(set(line.split()[1:]))
        elif "-" in line.split(":")[0].split(" ")[0]:  # the head of a mapping
            path = line.partition("/")[1] + line.partition("/")[2]
    return found


@pytest.mark.parametrize("again", [False, True], ids=["made", "opened again"])
def test_a_fault_in_a_queue_does_not_fill_its_file(tmp_path: Path, again: bool) -> None:
    """Read-ahead, of which a disk may have 8 MiB, is for the log alone."""
    path = tmp_path / "store"
    if again:
        with rmqstore.open(path, "a") as store:
            store.put("topic", b"body", queue_id=0)
    with rmqstore.open(path, "a") as store:
        store.put("topic", b"body", queue_id=0)
        assert len(store.get("topic", 0, int(again), 1).messages) == 1
        queues, log = flags_of("consumequeue"), flags_of("commitlog")
    assert queues
    assert all("rr" in flags for flags in queues)
    assert log
    assert not any("rr" in flags for flags in log)
