"""File sizes of a configuration: sizes left to the files, and contradictions with them.

Source: ``store/config/MessageStoreConfig.java``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from rmqstore.config.fields import DefaultSize, specs_of
from rmqstore.config.store_config import StoreConfig

__all__ = [
    "SIZE_FIELDS",
    "inferred_bits",
    "java_keys",
    "size_notes",
    "sizes_left_open",
    "with_found_sizes",
    "with_sizes_of",
]

_INDEX = ("max_hash_slot_num", "max_index_num")
_KEYS = {
    name: spec.java
    for name, spec in specs_of(StoreConfig).items()
    if isinstance(getattr(StoreConfig, name), DefaultSize)
}
_PATHS = ("store_path_root_dir", "store_path_commit_log", "read_only_commit_log_store_paths")
# A size field of each kind of file, and the core's bit for inferring it.
_BITS = {
    "mapped_file_size_commit_log": 1,
    "mapped_file_size_consume_queue": 2,
    "max_hash_slot_num": 4,
    "mapped_file_size_consume_queue_ext": 64,
}
SIZE_FIELDS = frozenset(_BITS)
"""A size field of each kind of file."""

_JAVA = _KEYS | {name: specs_of(StoreConfig)[name].java for name in _PATHS}


def sizes_left_open(config: StoreConfig) -> frozenset[str]:
    """Return the size fields that a configuration leaves to the files of a store."""
    unset = {name for name in _KEYS if isinstance(getattr(config, name), DefaultSize)}
    return frozenset(unset if unset.issuperset(_INDEX) else unset.difference(_INDEX))


def inferred_bits(left_open: Collection[str]) -> int:
    """Return ``infer_sizes`` of ``Core.open`` for size fields left to the files."""
    return sum(bit for name, bit in _BITS.items() if name in left_open)


def with_found_sizes(config: StoreConfig, found: tuple[int, int, int, int, int]) -> StoreConfig:
    """Return a configuration with the sizes of an open store, as ``Core.sizes`` returns them."""
    log_size, queue_size, slots, entries, ext_size = found
    return config.replace(
        mapped_file_size_commit_log=log_size,
        mapped_file_size_consume_queue=queue_size,
        mapped_file_size_consume_queue_ext=ext_size,
        max_hash_slot_num=slots or config.max_hash_slot_num,
        max_index_num=entries or config.max_index_num,
    )


def with_sizes_of(config: StoreConfig, in_force: StoreConfig) -> StoreConfig:
    """Return a configuration with its open sizes set to another's."""
    return config.replace(**{name: getattr(in_force, name) for name in sizes_left_open(config)})


def size_notes(
    config: StoreConfig, in_force: StoreConfig, found: Mapping[str, Any], left_open: Collection[str]
) -> list[str]:
    """Return notes on sizes contradicted by the files, and on sizes that no file shows.

    ``in_force`` has the sizes of the open store, ``found`` is ``Engine._recovery``'s.
    """
    notes = [
        f"{name} is {getattr(config, name)}, and the files have {getattr(in_force, name)}: "
        "read by theirs"
        for name in _KEYS
        if name not in left_open
        and (name != "max_index_num" or "max_hash_slot_num" not in left_open)
        and getattr(config, name) != getattr(in_force, name)
    ]
    if found["queue_size_taken"] and found["queues_rebuilt"]:
        notes.append(
            "no file of a queue shows its size: made with "
            f"{in_force.mapped_file_size_consume_queue} bytes; a broker with another "
            "mapped_file_size_consume_queue does not load them"
        )
    if found["index_size_taken"] and found["index_files_rebuilt"]:
        notes.append(
            f"no index file shows its sizes: made with {in_force.max_hash_slot_num} slots "
            f"(max_hash_slot_num) and {in_force.max_index_num} entries (max_index_num); a "
            "broker with others does not load them"
        )
    return notes


def java_keys(text: str) -> str:
    """Return a text with file sizes and log paths named as in ``broker.conf``."""
    return re.sub(r"\b[a-z]+(_[a-z]+)+\b", lambda found: _JAVA.get(found[0], found[0]), text)
