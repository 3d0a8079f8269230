"""Figures of a store on the page, bounded whatever its size.

Source: ``tools/command/consumer/ConsumerProgressSubCommand.java``, for how far groups are behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rmqstore import __version__
from rmqstore.bodies import BODY_MARK, inflate_start
from rmqstore.consume.lag import bounds_by_topic, lag_of
from rmqstore.errors import StoreError, StoreFailedError
from rmqstore.files import paths
from rmqstore.serve.figures.lag import counted_offsets, is_idle_retry

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.serve.figures.lag import OnlineGroup
    from rmqstore.store import MessageStore

__all__ = ["overview", "topic_figures"]

_RETRY, _DEAD = paths.retry_topic(""), paths.dead_letter_topic("")
_ROWS = 500  # topics, and groups
_MESSAGES = 20
_QUEUES = 256  # of a topic, read at most
_TEXT = 2000  # characters of a body or a property
_PROPERTIES = 50
_START = 4 * _TEXT  # bytes of a body decoded for those characters
_FRAMES = 1000  # limit of compression frames read for them
_COMPRESSED = 1  # MessageSysFlag.COMPRESSED_FLAG


def overview(
    store: MessageStore,
    online: Mapping[str, OnlineGroup],
    most: int,
    is_built_in: Callable[[str], bool],
) -> dict[str, Any]:
    """Return a store's figures; ``most`` limits the counted queues without an offset of a group."""
    stats = store.stats()
    topics, bounds = store.topics, bounds_by_topic(store.core)
    ends = {topic: sum(stop for _, stop in of_topic) for topic, of_topic in bounds.items()}
    system = {name for name in topics if name.startswith(_RETRY) or is_built_in(name)}
    # Topics of users come first, the busiest of them at the top: by all messages ever put to them.
    names = sorted(
        topics,
        key=lambda name: (name in system, name.startswith(_DEAD), -ends.get(name, 0), name),
    )
    groups = _groups(store, online, most)
    return {
        "version": __version__,
        "now": store.clock.now(),
        "started": stats["bootTimestamp"],
        "store": store.path,
        "failed": _failure(store),
        "put_rate": _rate(stats["putTps"]),
        "get_rate": _rate(stats["getTransferedTps"]),
        "puts": stats["putMessageTimesTotal"],
        "log_bytes": stats["commitLogMaxOffset"] - stats["commitLogMinOffset"],
        "disk_ratio": stats["commitLogDiskRatio"],
        "topics": [
            {
                "name": name,
                "queues": len(bounds.get(name, ())),
                "messages": sum(stop - start for start, stop in bounds.get(name, ())),
                "end": ends.get(name, 0),
                "system": name in system,
            }
            for name in names[:_ROWS]
        ],
        "topics_left_out": max(0, len(names) - _ROWS),
        "groups": groups[:_ROWS],
        "groups_left_out": max(0, len(groups) - _ROWS),
    }


def _failure(store: MessageStore) -> str | None:
    try:
        store.core.check_writable()
    except StoreFailedError as error:
        return str(error)
    return None


def _rate(spans: Sequence[float]) -> float:
    """Return the rate a second over the shortest span, 10 s."""
    return float(spans[0]) if spans else 0.0


def _groups(
    store: MessageStore, online: Mapping[str, OnlineGroup], most: int
) -> list[dict[str, Any]]:
    """Return groups' progress by topic, largest lag first; broadcast's ``messages`` is ``None``."""
    found: list[dict[str, Any]] = []

    def add(group: str, topic: str, messages: int | None, late: int) -> None:
        consumers = online[group].consumers if group in online else 0
        found.append(
            {"group": group, "topic": topic, "messages": messages, "late": late,
             "consumers": consumers}
        )  # fmt: skip

    counted = counted_offsets(store, online, most)
    sums = {names: [0, 0] for names in counted}  # messages, ms behind
    for lag in lag_of(store.core, counted, None, None, sizes=False):
        of_group = sums[lag.topic, lag.group]
        of_group[0] += lag.messages
        of_group[1] = max(of_group[1], lag.behind // timedelta(milliseconds=1))
    for (topic, group), (messages, late) in sums.items():
        add(group, topic, messages, late)
    queues = store.queue_ids()
    for name, one in online.items():
        for topic in one.topics:
            if (topic, name) not in counted and not is_idle_retry(topic, name, queues):
                add(name, topic, None if one.is_broadcast else 0, 0)
    found.sort(key=lambda one: (-(one["messages"] or 0), one["group"], one["topic"]))
    return found


def topic_figures(store: MessageStore, name: str) -> dict[str, Any] | None:
    """Return a topic's queues and its newest messages; None if there is no such topic."""
    topic = store.topics.get(name)
    if topic is None:
        return None
    queues = [topic[queue_id] for queue_id in sorted(topic)[:_QUEUES]]
    # The newest of each queue; repeatedly the newest of these, replaced by the one before it.
    heap: list[tuple[int, int, int, Message]] = []

    def push(at: int, offset: int) -> None:
        try:
            message = queues[at][offset]
        except (LookupError, StoreError):  # before the first, removed, or damaged
            return
        heapq.heappush(heap, (-message.physical_offset, at, offset, message))

    for at, queue in enumerate(queues):
        if queue.max_offset > 0:
            push(at, queue.max_offset - 1)
    newest: list[dict[str, Any]] = []
    while heap and len(newest) < _MESSAGES:
        _, at, offset, message = heapq.heappop(heap)
        newest.append(_shown(message))
        if offset > 0:
            push(at, offset - 1)
    return {
        "name": name,
        "perm": topic.perm,
        "queues": [
            {"id": queue.queue_id, "min": queue.min_offset, "max": queue.max_offset}
            for queue in queues
        ],
        "queues_left_out": max(0, len(topic) - _QUEUES),
        "messages": newest,
    }


def _shown(message: Message) -> dict[str, Any]:
    """Return the shown part of a message: cut text, never a whole body."""
    raw = message.raw_body
    size = len(raw)
    mark = ""
    part = bytes(raw[:_START])
    whole = size <= len(part)
    if message.sys_flag & _COMPRESSED:
        try:
            part, whole = inflate_start(bytes(raw), message.sys_flag, _START, _FRAMES)
        except StoreError:
            whole, mark = False, BODY_MARK
    text = part.decode("utf-8", "replace")
    readable = "\ufffd" not in text[: _TEXT - 4]
    return {
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "stored": message.store_timestamp,
        "id": _cut(message.uniq_key or message.msg_id),
        "tags": _cut(message.tags or ""),
        "keys": _cut(" ".join(message.keys)),
        "born_host": message.born_host,
        "bytes": size,
        "text": mark + (text[:_TEXT] if readable else part[: _TEXT // 4].hex(" ")),
        "is_text": readable,
        "is_cut": not whole or len(text) > _TEXT or (not readable and size > _TEXT // 4),
        "properties": _properties(message.properties),
    }


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {_cut(name): _cut(value) for name, value in list(properties.items())[:_PROPERTIES]}


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[:_TEXT] + "..."
