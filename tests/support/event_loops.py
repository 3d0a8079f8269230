"""Helpers of the asyncio tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import rmqstore

LIMIT = 60  # seconds after which something counts as hung


# A wait that nobody ends ends the test: the store's own limit is beyond LIMIT.
def config(flush="SYNC_FLUSH", **changes):
    values = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    values |= {"max_hash_slot_num": 50, "max_index_num": 200, "sync_flush_timeout": 600_000}
    return rmqstore.StoreConfig(flush_disk_type=flush, **(values | changes))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


def threads():
    """Return the process's threads: one that was joined may be there for a moment more."""
    return {entry.name for entry in Path("/proc/self/task").iterdir()}


def eventfds():
    """Count the process's eventfds."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:  # the listing's own
            continue
    return links.count("anon_inode:[eventfd]")
