"""A small store with ext units: its configuration and its messages."""

from __future__ import annotations

from typing import Any

import rmqstore
from rmqstore import StoreConfig

TAGS = [None, "TagA", "TagB", "a", "b"]
FILE = 1000


def config(**changes: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "mapped_file_size_commit_log": 64 << 10,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": FILE,
    }
    return StoreConfig(**(fields | changes))


def fill(store: rmqstore.MessageStore, first: int, count: int, topic: str = "T") -> None:
    for i in range(first, first + count):
        store.put(topic, b"%d" % i, tags=TAGS[i % 5], queue_id=i % 2)
