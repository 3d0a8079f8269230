"""The broker's files of an extract: entries of its topics and groups, with translated offsets.

Source: ``broker/offset/ConsumerOffsetManager.java``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.brokerfiles.fields import file_object
from rmqstore.brokerfiles.groups import GroupTable
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.consume.progress import offset_file_name
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.offline import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["QueueSpan", "Spans", "copy_config"]

_T = TypeVar("_T")
_OWN = "RMQ_SYS_"  # topics of the broker, which has no entries for some of them


@dataclass(slots=True)
class QueueSpan:
    """Queue offsets taken of one queue.

    Attributes
    ----------
    first, stop : int
        The least, and the one after the greatest.
    base : int
        Subtracted from each in the new store.
    """

    first: int
    stop: int
    base: int = 0

    def translated(self, offset: int) -> int:
        """Return an offset in the new store; the nearest one for an offset outside."""
        return min(max(offset, self.first), self.stop) - self.base


Spans = Mapping[tuple[str, int], QueueSpan]
"""By topic and queue id."""


def copy_config(
    store: MessageStore, making: Path, topics: Collection[str], spans: Spans, *, skips: bool
) -> int:
    """Copy entries of topics, and of groups with offsets for them, to a new store.

    Returns the number of files that are torn, with their ``.bak``: with ``skips`` they count as
    empty.
    """
    torn = _Torn(skips)
    (making / paths.CONFIG).mkdir(exist_ok=True)
    _copy_topics(torn, store.path, making, topics, spans)
    name = offset_file_name(store.path, store.config.enable_lmq or None)
    made = OffsetTable(making, name)
    offsets = torn.read(lambda: OffsetTable.load(store.path, name), OffsetTable(making, name))
    for (topic, group), queues in offsets.offsets.items():
        if topic in topics:
            made.offsets[topic, group] = {
                queue_id: _translated(spans, topic, queue_id, offset)
                for queue_id, offset in queues.items()
            }
    if made.offsets:
        made.save()
    _copy_groups(torn, store.path, making, {group for _, group in made.offsets})
    _copy_filters(torn, store.path, making, topics)
    if SCHEDULE_TOPIC in topics:
        delays = torn.read(lambda: DelayTable.load(store.path), DelayTable(making))
        delivered = DelayTable(making)
        for level, offset in delays.offsets.items():
            delivered.offsets[level] = _translated(spans, SCHEDULE_TOPIC, level - 1, offset)
        delivered.save()
    return torn.count


class _Torn:
    """Reader of configuration files of which some may be torn."""

    def __init__(self, skips: bool) -> None:
        self._skips = skips
        self.count = 0

    def read(self, load: Callable[[], _T], empty: _T) -> _T:
        """Return a file's table; ``empty`` for a torn one to be skipped."""
        try:
            return load()
        except StoreCorruptError as error:
            if not self._skips:
                raise
            log_warning("%s: what it had is not in the extract", error)
            self.count += 1
            return empty


def _translated(spans: Spans, topic: str, queue_id: int, offset: int) -> int:
    span = spans.get((topic, queue_id))
    return 0 if span is None else span.translated(offset)


def _copy_topics(
    torn: _Torn, root: str, making: Path, topics: Collection[str], spans: Spans
) -> None:
    known, kept = torn.read(lambda: TopicTable.load(root), TopicTable(making)), TopicTable(making)
    for topic in sorted(topics):
        entry = known.get(topic)
        used = max((number + 1 for name, number in spans if name == topic), default=0)
        if entry is not None:
            kept.put(entry)
        elif used and not topic.startswith(_OWN):
            kept.put(TopicConfig(topic, read_queue_nums=used, write_queue_nums=used))
    kept.version = known.version
    kept.save()


def _copy_groups(torn: _Torn, root: str, making: Path, groups: Collection[str]) -> None:
    known, kept = torn.read(lambda: GroupTable.load(root), GroupTable(making)), GroupTable(making)
    for entry in known:
        if entry.group_name in groups:
            kept.put(entry)
    if len(kept):
        kept.version = known.version
        kept.save()


def _copy_filters(torn: _Torn, root: str, making: Path, topics: Collection[str]) -> None:
    name = f"{paths.CONFIG}/{paths.CONSUMER_FILTER_JSON}"
    file = ConfigFile(Path(root, name))
    data: dict[str, Any] | None = torn.read(lambda: file.load(file_object), None)
    entries = None if data is None else data.get("filterDataByTopic")
    if data is None or not isinstance(entries, dict):
        return
    kept = {topic: entry for topic, entry in entries.items() if str(topic) in topics}
    if kept:
        ConfigFile(making / name).save({**data, "filterDataByTopic": kept})
