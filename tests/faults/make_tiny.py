"""Make ``tests/data/stores/tiny.tar.xz``: stores of a few kilobytes that the real 4.9.3 left.

``python -m faults.make_tiny``.  ``closed`` was shut down, ``killed`` was not; ``synced`` is what
``killed`` was when it was last flushed.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from faults import tiny
from interop.driver import Driver

SIZES = {
    "mappedFileSizeCommitLog": tiny.LOG_SIZE,
    "mappedFileSizeConsumeQueue": tiny.QUEUE_SIZE,
    "maxHashSlotNum": tiny.SLOTS,
    "maxIndexNum": tiny.ENTRIES,
}


def messages(first: int, stop: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": tiny.TOPIC,
            "queue_id": m["queue_id"],
            "body": m["body"],
            "properties": ({"TAGS": m["tags"]} if m["tags"] else {})
            | {"KEYS": " ".join(m["keys"])},
        }
        for m in map(tiny.message, range(first, stop))
    ]


def main() -> None:
    half = tiny.COUNT // 2
    with tempfile.TemporaryDirectory() as scratch, Driver() as real:
        top = Path(scratch)
        real.open(top / "closed", SIZES)
        real.append(messages(0, tiny.COUNT))
        assert real.shutdown()
        real.open(top / "killed", SIZES)
        real.append(messages(0, half))
        real.flush()
        shutil.copytree(top / "killed", top / "synced")
        real.append(messages(half, tiny.COUNT))
        real.halt()
        with tarfile.open(tiny.BROKERS, "w:xz") as archive:
            for name in ("closed", "killed", "synced"):
                archive.add(top / name, name)


if __name__ == "__main__":
    main()
