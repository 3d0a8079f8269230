"""Plan of a batch query: pieces of stores, divided among tasks.

The end is fixed here, to the last message: tasks read no further. Together the pieces give the rows
of :meth:`MessageStore.scan`, or, along queues, of consumers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import rmqstore
from rmqstore.spark.read.cutting import WORTH, at_least, merged, warn_of_many
from rmqstore.spark.read.options import Selection, check_names
from rmqstore.spark.read.partitions import StorePartition
from rmqstore.spark.read.query import Query
from rmqstore.spark.read.store_plan import StorePlan

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["plan"]


def plan(query: Query) -> list[StorePartition]:
    """Return a query's partitions, none empty, each within the selection's bytes and messages.

    Raises ``OptionError``, ``FilterError``, ``TopicNotFoundError``, ``StoreNotFoundError``,
    ``OSError``; ``MessagesRemovedError`` if retention removed an option's position.
    """
    with ExitStack() as stack:
        # Opened afresh: a store kept open checks for new queues only now and then.
        stores = [stack.enter_context(rmqstore.open(path, "r")) for path in query.selection.stores]
        _check(query, stores)
        return _planned([StorePlan(store, query) for store in stores], query.selection)


def _check(query: Query, stores: Iterable[MessageStore]) -> None:
    """Refuse names that no store has."""
    selection = query.selection
    positions: dict[str, set[int]] = {}
    for each in (query.begin, query.until):
        for name, queue_ids in each.topics.items() if each else ():
            positions.setdefault(name, set()).update(queue_ids)
    if not positions and selection.topics is None and selection.queues is None:
        return
    known: dict[str, set[int]] = {}
    for store in stores:
        for name, topic in store.topics.items():
            known.setdefault(name, set()).update(topic)
    check_names(selection, known, positions=positions)


def _planned(plans: list[StorePlan], selection: Selection) -> list[StorePartition]:
    wanted = selection.min_partitions
    total = sum(piece.size for each in plans for piece in each.pieces)
    if wanted is None:
        wanted = max(1, min(os.cpu_count() or 1, total // WORTH))
    found = _shared_out(plans, selection, total, wanted)
    if len(found) < wanted:  # as sizes were estimates
        total = sum(piece.size for partition in found for piece in partition.pieces)
        found = _shared_out(plans, selection, total, wanted)
    warn_of_many(len(found), total)
    return found


def _shared_out(
    plans: list[StorePlan], selection: Selection, total: int, wanted: int
) -> list[StorePartition]:
    limit = min(at_least(selection.max_partition_bytes, total), max(1, -(-total // wanted)))
    most = selection.max_messages_per_partition
    return [
        StorePartition(
            each.store.path,
            group,
            each.filters,
            selection.on_corrupt,
            selection.on_removed,
            each.known_record,
        )
        for each in plans
        for group in merged(each.split(limit, most), limit, most)
    ]
