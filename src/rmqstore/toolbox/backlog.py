"""Messages that a consumer group has not consumed."""

from __future__ import annotations

import heapq
import operator
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from rmqstore import opening
from rmqstore.base.arguments import one_of
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.files import paths
from rmqstore.toolbox.offsets import no_offset
from rmqstore.topic import read_queue

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.consume.lag import Lag
    from rmqstore.store import MessageStore

__all__ = ["unconsumed", "unconsumed_of"]


def unconsumed(
    path: str | os.PathLike[str],
    group: str,
    topic: str | None = None,
    *,
    on_corruption: Literal["raise", "skip"] = "raise",
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Iterator[Message]:
    """Iterate over the messages that a group has not consumed, in log order.

    Those from the committed offset, or the first that exists, to the head, in each queue of the
    topics that the group has offsets for; retries are among them, also those whose delay is not
    over yet.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    group : str
    topic : str, optional
        Only this topic's.
    on_corruption : {"raise", "skip"}, optional
        At an invalid record: raise an error, or go on behind it.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Yields
    ------
    Message

    Raises
    ------
    GroupNotFoundError
        The group has no offset in the store, or none for the topic.
    StoreCorruptError
        A record is invalid, and ``on_corruption`` is ``"raise"``; or ``consumerOffset.json`` is
        torn, and so is its ``.bak``.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    one_of("on_corruption", on_corruption, ("raise", "skip"))
    return _opened(path, group, topic, on_corruption, config)


def _opened(
    path: str | os.PathLike[str],
    group: str,
    topic: str | None,
    on_corruption: Literal["raise", "skip"],
    config: StoreConfig | str | os.PathLike[str] | None,
) -> Iterator[Message]:
    with opening.open(path, config=config) as store:
        yield from unconsumed_of(store, group, topic, on_corruption)


def unconsumed_of(
    store: MessageStore,
    group: str,
    topic: str | None = None,
    on_corruption: Literal["raise", "skip"] = "raise",
) -> Iterator[Message]:
    """Return :func:`unconsumed` of an open store."""
    behind = store.lag(group, topic)
    if not behind:
        raise no_offset(store.path, group, topic, store.offsets)
    parts = [_of_queue(store, one, on_corruption) for one in behind if one.messages]
    retries = paths.retry_topic(group)
    if topic in (None, retries):
        waiting = [one.message for one in store.delayed()]
        found = [one for one in waiting if one is not None and one.topic == retries]
        parts.append(iter(sorted(found, key=operator.attrgetter("physical_offset"))))
    return heapq.merge(*parts, key=operator.attrgetter("physical_offset"))


def _of_queue(
    store: MessageStore, one: Lag, on_corruption: Literal["raise", "skip"]
) -> Iterator[Message]:
    start = max(one.committed, one.min_offset)
    if one.topic.startswith(LIGHT_PREFIX):  # its records are of other topics
        queue = store[one.topic][one.queue_id]
        skip = on_corruption == "skip"
        return read_queue(store, queue, start, one.max_offset, skip_damaged=skip)
    return iter(
        store.scan(
            one.topic,
            one.queue_id,
            start=start,
            stop=one.max_offset,
            on_corruption=on_corruption,
            on_removed="skip",
        )
    )
