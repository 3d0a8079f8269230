"""File sizes that a configuration leaves open: they are inferred from the files of the store.

Source: ``store/config/MessageStoreConfig.java``, whose defaults a broker takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore.config import StoreConfig

__all__ = ["EVERY_SIZE", "note_open", "open_sizes"]

# Fields of a size, and the bit of each kind of file as the core has it; an index file has two.
_KINDS = (
    (("mapped_file_size_commit_log",), 1),
    (("mapped_file_size_consume_queue",), 2),
    (("max_hash_slot_num", "max_index_num"), 4),
)
EVERY_SIZE = 7
_NOTED = "_open_sizes"  # no field: configurations are equal or not without it


def open_sizes(config: StoreConfig) -> int:
    """Return the bits of the kinds of files whose size a configuration leaves open.

    None of those that a program made: it has said every size, if only by a default.
    """
    found = vars(config).get(_NOTED, 0)
    assert isinstance(found, int)
    return found


def note_open(
    config: StoreConfig, named: Iterable[str], like: StoreConfig | None = None
) -> StoreConfig:
    """Note which sizes are left open, and return the configuration.

    Parameters
    ----------
    config : StoreConfig
        Of a file, or changed.
    named : iterable of str
        The fields that the file has, or that were changed: these are not open.
    like : StoreConfig, optional
        What was changed: of it only those are open that were.
    """
    said = set(named)
    bits = EVERY_SIZE if like is None else open_sizes(like)
    for fields, bit in _KINDS:
        if not said.isdisjoint(fields):
            bits &= ~bit
    object.__setattr__(config, _NOTED, bits)  # it is frozen
    return config
