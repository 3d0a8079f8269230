"""A queue file named far behind its queue's end, of which no unit is good."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore

CONFIG = rmqstore.StoreConfig.small()
READ = """
import sys, rmqstore
with rmqstore.open(sys.argv[1]) as store:
    print(len(store["t"][0]), store.scan("t").count(), store.scan("t", start=900).count())
"""


@pytest.mark.parametrize("owned", [True, False])
def test_it_is_passed_over(tmp_path: Path, owned: bool) -> None:
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=CONFIG)
    store.put_many(["t"] * 10, [b"x" * 100] * 10, queue_id=0)
    assert store.scan("t").count() == 10
    if not owned:
        store.close()
    size = CONFIG.mapped_file_size_consume_queue
    far = root / "consumequeue/t/0" / f"{(4 * 10**11) // size * size:020}"
    far.write_bytes(struct.pack(">qiq", 1 << 40, 100, 7) * (size // 20))
    try:
        # In a process of its own: it must not hang this one if the search goes unit by unit.
        done = subprocess.run(
            [sys.executable, "-c", READ, root], capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    finally:
        if owned:
            store.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["10", "10"]
