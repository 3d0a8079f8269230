"""A log of topics with names that brokers once let be made."""

from __future__ import annotations

from pathlib import Path

import rmqstore
from rmqstore._core import encode_record

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=32 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
COUNT = 7
NAMES = [
    "a.b", "..a", "...", "a b", " ", "a:b", "*", "\u00e9", "\u20acuro", "a+b", "me@here", "~", "#",
    "a&b", "a\\b", "a\nb", "a\x1b[31mb", "'\"", "\U0001f600", "\u00e9" * 63, ".hidden", "a,b",
    "x" * 127, "plain",
]  # fmt: skip


def write_log(root: Path, names: list[str]) -> None:
    """Write a log of records of each topic in turn, and nothing else, as after a lost disk."""
    (root / "commitlog").mkdir(parents=True)
    log = bytearray()
    for number in range(COUNT):
        for name in names:
            log += encode_record(
                name,
                b"%d" % number,
                queue_id=1,
                queue_offset=number,
                physical_offset=len(log),
                born_timestamp=1_700_000_000_000,
                store_timestamp=1_700_000_000_000 + 1000 * number,
                born_host="127.0.0.1:1",
                store_host="127.0.0.1:10911",
                properties={"KEYS": f"k{number}", "TAGS": "A"},
            )
    size = 32 << 10
    assert len(log) < size
    (root / "commitlog" / f"{0:020}").write_bytes(log.ljust(size, b"\0"))
