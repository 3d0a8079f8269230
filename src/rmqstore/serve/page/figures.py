"""Figures of a store on the page, bounded whatever its size."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqstore import __version__
from rmqstore.consume.lag import bounds_by_topic
from rmqstore.errors import StoreError, StoreFailedError
from rmqstore.files import paths
from rmqstore.serve.figures.rates import TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from rmqstore.serve.page.groups import group_figures

if TYPE_CHECKING:
    from rmqstore.consume.lag import QueueBounds
    from rmqstore.serve.figures.lag import OnlineGroup
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.page.sizes import RecordSizes
    from rmqstore.store import MessageStore

__all__ = ["Overview", "topic_traffic"]

_RETRY, _DEAD = paths.retry_topic(""), paths.dead_letter_topic("")
_ROWS = 500  # topics, and groups
_DEAD_ROWS = 20  # topics with dead letters
_STEP = 128  # rates read between two steps

# By topic: messages and bytes put a second, over the last minute.
Traffic = dict[str, tuple[float, float]]


def topic_traffic(rates: Rates) -> Generator[None, None, Traffic]:
    """Return the traffic of topics, in steps of the loop."""
    sizes = dict(rates.rates(TOPIC_PUT_SIZE))
    found = {}
    for number, (topic, messages) in enumerate(rates.rates(TOPIC_PUT_NUMS)):
        found[topic] = messages, sizes.get(topic, 0.0)
        if number % _STEP == _STEP - 1:
            yield
    return found


class Overview:
    """The page's figures of a store; ``most`` limits the counted queues without an offset."""

    def __init__(
        self,
        store: MessageStore,
        sizes: RecordSizes,
        most: int,
        is_built_in: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._sizes = sizes
        self._most = most
        self._is_built_in = is_built_in

    def figures(self, online: Mapping[str, OnlineGroup], traffic: Traffic) -> dict[str, Any]:
        """Return the current figures."""
        store = self._store
        stats = store.stats()
        bounds = bounds_by_topic(store.core)
        groups, groups_left_out = group_figures(store, online, self._most, _ROWS)
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
            "delayed": _delayed(store),
            "dead": _dead_letters(bounds),
            "in_doubt": _in_doubt(store),
            **self._topics(bounds, traffic),
            "groups": groups,
            "groups_left_out": groups_left_out,
        }

    def _topics(
        self, bounds: Mapping[str, Sequence[QueueBounds]], traffic: Traffic
    ) -> dict[str, Any]:
        """Return the rows of topics: of users by traffic, dead letters, then of the system."""
        topics = list(self._store.topics)
        system = {name for name in topics if name.startswith(_RETRY) or self._is_built_in(name)}
        ends = {name: sum(one.stop for one in queues) for name, queues in bounds.items()}

        def order(name: str) -> tuple[bool, bool, float, int, str]:
            a_second = traffic.get(name, (0.0, 0.0))[0]
            return name in system, name.startswith(_DEAD), -a_second, -ends.get(name, 0), name

        shown = sorted(topics, key=order)[:_ROWS]
        self._sizes.begin(frozenset(shown))
        rows = []
        for name in shown:
            queues = bounds.get(name, ())
            rows.append(
                {
                    "name": name,
                    "queues": len(queues),
                    "messages": sum(one.messages for one in queues),
                    "end": ends.get(name, 0),
                    "bytes": self._sizes.total(name, queues),
                    "growth": round(traffic.get(name, (0.0, 0.0))[1]),
                    "system": name in system,
                }
            )
        return {"topics": rows, "topics_left_out": len(topics) - len(rows)}


def _delayed(store: MessageStore) -> list[dict[str, Any]]:
    """Return the number of delayed messages that wait, by level; ``delay`` in ms, if known."""
    levels = store.schedule.levels or {}
    return [
        {"delay": levels[number].millis if number in levels else None, "messages": stop - offset}
        for number, (offset, stop) in sorted(store.schedule.progress().items())
        if offset < stop
    ]


def _dead_letters(bounds: Mapping[str, Sequence[QueueBounds]]) -> dict[str, Any]:
    """Return the number of dead letters, and the topics with most of them."""
    counts = {
        topic: sum(one.messages for one in queues)
        for topic, queues in bounds.items()
        if topic.startswith(_DEAD)
    }
    most = sorted((-count, topic) for topic, count in counts.items() if count)
    return {
        "messages": sum(counts.values()),
        "topics": [{"name": topic, "messages": -count} for count, topic in most[:_DEAD_ROWS]],
        "topics_left_out": max(0, len(most) - _DEAD_ROWS),
    }


def _in_doubt(store: MessageStore) -> int | None:
    """Return the number of half messages without an end; ``None`` if they cannot be read."""
    try:
        with store.transactions.lock:  # reads those stored since the last time
            return sum(len(queue.pending) for queue in store.transactions.readable())
    except (StoreError, OSError):
        return None


def _failure(store: MessageStore) -> str | None:
    try:
        store.core.check_writable()
    except StoreFailedError as error:
        return str(error)
    return None


def _rate(spans: Sequence[float]) -> float:
    """Return the rate a second over the shortest span, 10 s."""
    return float(spans[0]) if spans else 0.0
