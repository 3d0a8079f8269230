"""Offsets of consumer groups in a stopped store, shown and changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsIndex

from rmqstore import opening
from rmqstore.base.arguments import did_you_mean, wrong_type, wrong_value
from rmqstore.brokerfiles.offsets import OffsetTable, check_names
from rmqstore.config.store_config import StoreConfig
from rmqstore.consume.progress import offset_file_name
from rmqstore.errors import GroupNotFoundError, MessageNotFoundError
from rmqstore.offline.locking import locked

if TYPE_CHECKING:
    from rmqstore.base.times import TimeLike
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["GroupOffset", "offsets_by_time", "offsets_clone", "offsets_get", "offsets_set"]

Config = StoreConfig | str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Offset of a group in a queue.

    Attributes
    ----------
    group, topic : str
    queue_id : int
    was : int or None
        The next offset that the group takes, as committed; None without one.
    now : int
        The same after the change; ``was`` if nothing changes.
    """

    group: str
    topic: str
    queue_id: int
    was: int | None
    now: int


def offsets_get(
    path: str | os.PathLike[str],
    group: str,
    *,
    topic: str | None = None,
    queue_id: SupportsIndex | None = None,
    config: Config = None,
) -> list[GroupOffset]:
    """Return the committed offsets of a group, by topic and queue.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    group : str
    topic : str, optional
        Only this topic's.
    queue_id : int, optional
        Only of queues with this id.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    list of GroupOffset

    Raises
    ------
    GroupNotFoundError
        The group has no such offset.
    StoreCorruptError
        The file of the offsets is torn, and so is its ``.bak``.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    with opening.open(path, config=config) as store:
        offsets = store.offsets
    found = [
        GroupOffset(group, of_topic, queue, offset, offset)
        for (of_topic, of_group), queues in sorted(offsets.items())
        for queue, offset in sorted(queues.items())
        if of_group == group
        and topic in (None, of_topic)
        and (queue_id is None or queue == queue_id)
    ]
    if not found:
        raise no_offset(str(path), group, topic, offsets, queue_id)
    return found


def offsets_set(
    path: str | os.PathLike[str],
    group: str,
    to: SupportsIndex | Literal["first", "last"],
    *,
    topic: str | None = None,
    queue_id: SupportsIndex | None = None,
    apply: bool = False,
    config: Config = None,
) -> list[GroupOffset]:
    """Set a group's offsets in a stopped store, as ``consumerOffset.json`` has them.

    The file is replaced atomically, and the old one is its ``.bak``. The store's lock is held
    meanwhile; nothing else is changed, and no service runs.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    group : str
        An unknown one gets its first offsets, if ``topic`` is given.
    to : int or {"first", "last"}
        The next offset to take, within the queue; or its first one, or the one after its last.
    topic : str, optional
        Topic whose queues are set; by default all that the group has offsets for, but its retry
        topic.
    queue_id : int, optional
        Only queues with this id.
    apply : bool, optional
        Change the file; by default the change is returned only.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    list of GroupOffset
        Queues whose offset changes, or with ``apply`` has changed, by topic and queue.

    Raises
    ------
    ValueError
        ``to`` is outside a queue; the error names its bounds. A name is not possible in the file.
    GroupNotFoundError
        The group has no offset, and ``topic`` is not given.
    TopicNotFoundError, MessageNotFoundError
        There is no such topic, or no such queue in it.
    StoreLockedError
        The store is open for writing elsewhere; with ``apply``.
    StoreCorruptError, StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`offsets_get`.

    Notes
    -----
    Source: ``broker/offset/ConsumerOffsetManager.java``.
    """
    if isinstance(to, str):
        if to not in ("first", "last"):
            raise wrong_value("to", "an offset, 'first' or 'last'", to)
    elif isinstance(to, bool) or not hasattr(to, "__index__"):
        raise wrong_type("to", "int or str", to)

    def chosen(queue: Queue) -> int:
        low, high = queue.min_offset, queue.max_offset
        if isinstance(to, str):
            return low if to == "first" else high
        offset = to.__index__()
        if not low <= offset <= high:
            where = f"{low} to {high} in {queue.topic}/{queue.queue_id}"
            raise wrong_value("to", where, offset)
        return offset

    def choose() -> dict[tuple[str, int], int]:
        with opening.open(path, config=config) as store:
            return _chosen(store, group, topic, queue_id, chosen)

    return _written(path, group, choose, apply, config)


def offsets_by_time(
    path: str | os.PathLike[str],
    group: str,
    time: TimeLike,
    *,
    topic: str | None = None,
    queue_id: SupportsIndex | None = None,
    apply: bool = False,
    config: Config = None,
) -> list[GroupOffset]:
    """Set a group's offsets to the first messages stored at or after a time.

    Parameters
    ----------
    path, group, topic, queue_id, apply, config
        As for :func:`offsets_set`.
    time : int, datetime or str
        Milliseconds since the epoch, or an aware point in time.

    Returns
    -------
    list of GroupOffset
        As :func:`offsets_set`.

    Raises
    ------
    ValueError, GroupNotFoundError, TopicNotFoundError, MessageNotFoundError, StoreLockedError, \
StoreCorruptError, StoreNotFoundError, IncompatibleStoreError, OSError
        As :func:`offsets_set`.
    """

    def choose() -> dict[tuple[str, int], int]:
        with opening.open(path, config=config) as store:
            return _chosen(store, group, topic, queue_id, lambda queue: queue.offset_at(time))

    return _written(path, group, choose, apply, config)


def offsets_clone(
    path: str | os.PathLike[str],
    group: str,
    from_group: str,
    *,
    topic: str | None = None,
    queue_id: SupportsIndex | None = None,
    apply: bool = False,
    config: Config = None,
) -> list[GroupOffset]:
    """Give a group the offsets of another one.

    Its other offsets stay as they are; the other group's retry topic is not among the copied.

    Parameters
    ----------
    path, group, topic, queue_id, apply, config
        As for :func:`offsets_set`.
    from_group : str
        The group whose offsets are copied.

    Returns
    -------
    list of GroupOffset
        As :func:`offsets_set`.

    Raises
    ------
    GroupNotFoundError
        ``from_group`` has no offset, or none for the topic.
    ValueError, StoreLockedError, StoreCorruptError, StoreNotFoundError, \
IncompatibleStoreError, OSError
        As :func:`offsets_set`.
    """

    def choose() -> dict[tuple[str, int], int]:
        found = offsets_get(path, from_group, topic=topic, queue_id=queue_id, config=config)
        source = [one for one in found if one.topic != f"%RETRY%{from_group}"]
        return {(one.topic, one.queue_id): one.now for one in source}

    return _written(path, group, choose, apply, config)


def _chosen(
    store: MessageStore,
    group: str,
    topic: str | None,
    queue_id: SupportsIndex | None,
    chosen: Callable[[Queue], int],
) -> dict[tuple[str, int], int]:
    """Return the new offsets of some queues, each by ``chosen``."""
    offsets = store.offsets
    names = sorted(of_topic for of_topic, of_group in offsets if of_group == group)
    names = [name for name in names if name != f"%RETRY%{group}"]
    if topic is not None:
        names = [topic]
    elif not names:
        raise no_offset(store.path, group, None, offsets)
    found = []
    for name in names:
        found += [queue for number, queue in store[name].items() if queue_id in (None, number)]
    if not found:
        raise MessageNotFoundError(f"{store.path}: no queue {queue_id} in {', '.join(names)}")
    return {(queue.topic, queue.queue_id): chosen(queue) for queue in found}


def _written(
    path: str | os.PathLike[str],
    group: str,
    choose: Callable[[], Mapping[tuple[str, int], int]],
    apply: bool,
    config: Config,
) -> list[GroupOffset]:
    """Return the changes of a group's offsets; with ``apply`` choose and write under the lock."""
    with opening.open(path, config=config) as store:
        root = store.path
        light = None if config is None else store.config.enable_lmq
    name = offset_file_name(root, light)
    with locked(root, 0.0) if apply else contextlib.nullcontext():
        wanted = choose()
        for topic, _ in wanted:
            check_names(topic, group)
        if not apply:
            return _differing(OffsetTable.load(root, name), group, wanted)
        table = OffsetTable.load(root, name)
        found = _differing(table, group, wanted)
        for one in found:
            table.offsets.setdefault((one.topic, group), {})[one.queue_id] = one.now
        if found:
            table.save()
    return found


def _differing(
    table: OffsetTable, group: str, wanted: Mapping[tuple[str, int], int]
) -> list[GroupOffset]:
    found = []
    for (topic, queue_id), offset in sorted(wanted.items()):
        was = table.offsets.get((topic, group), {}).get(queue_id)
        if was != offset:
            found.append(GroupOffset(group, topic, queue_id, was, offset))
    return found


def no_offset(
    path: str,
    group: str,
    topic: str | None,
    offsets: Mapping[tuple[str, str], object],
    queue_id: SupportsIndex | None = None,
) -> GroupNotFoundError:
    """Return the error for a group without such an offset; it names the nearest."""
    topics = {of_topic for of_topic, of_group in offsets if of_group == group}
    where = hint = ""
    if not topics:
        hint = did_you_mean(group, {of_group for _, of_group in offsets})
    else:
        where = "" if topic is None else f" for topic {topic!r}"
        where += "" if queue_id is None else f" in queue {queue_id}"
        hint = "" if topic is None or topic in topics else did_you_mean(topic, topics)
    return GroupNotFoundError(
        f"{path}: group {group!r} has no offset{where}{'; ' if hint else ''}{hint}"
    )
