"""Topics of an open store: listing, creation, also by puts, and deletion.

Source: ``broker/topic/TopicConfigManager.java``, ``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqstore._core import Core
from rmqstore.base.arguments import did_you_mean, integer_within, shown, wrong_type, wrong_value
from rmqstore.base.syncing import SyncError
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.consume.progress import GroupProgress
from rmqstore.directory.registry import TopicRegistry
from rmqstore.errors import MessageIllegalError, TopicNotFoundError
from rmqstore.files import paths
from rmqstore.services.stored import is_system_topic, made_queue_nums
from rmqstore.types import PutStatus

__all__ = ["TopicCatalog", "topic_entry"]

_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))


class TopicCatalog:
    """Topics in ``topics.json``, and topics with a queue directory."""

    def __init__(
        self,
        core: Core,
        registry: TopicRegistry,
        progress: GroupProgress,
        forget_topic: Callable[[str], object],
    ) -> None:
        self._core = core
        self._registry = registry
        self._progress = progress
        self._forget_topic = forget_topic  # resets the consumers of a deleted topic
        self._exceeded: set[str] = set()  # topics whose entry has too few queues, once logged

    def queue_ids(self) -> dict[str, list[int]]:
        """Return the ids of the queues with files by topic, in the order of the names."""
        self._registry.refresh()
        found = self._core.queue_files()
        names = found.keys() | {entry.topic_name for entry in self._registry}
        return {name: found.get(name, []) for name in sorted(names)}

    def has(self, topic: str) -> bool:
        """Whether a topic has an entry or queues."""
        self._registry.refresh()
        known = self._registry.get(topic) is not None and paths.is_stored_topic_name(topic)
        return known or topic in self._core.queue_files()

    def not_found(self, name: object) -> TopicNotFoundError:
        """Return the error for a missing topic; it names the nearest."""
        near = did_you_mean(name, self.queue_ids()) if isinstance(name, str) else ""
        hint = f"; {near}" if near else ""
        return TopicNotFoundError(f"{self._core.path}: no topic {name!r}{hint}")

    def spelling_hint(self, topic: str) -> str:
        """Return a question naming the nearest topic, empty if ``topic`` exists or may be meant.

        It may be a topic deleted, of the broker itself, or the next of a numbered series. Reads no
        queue: a name costs no more than a look at the directory.
        """
        registry = self._registry
        if registry.get(topic) is not None or topic[:1] in ("", "%") or is_system_topic(topic):
            return ""
        try:
            registry.refresh()
            stored = [one.name for one in Path(self._core.path, paths.CONSUME_QUEUE).iterdir()]
        except OSError:  # reading reports it, if it needs the file
            return ""
        names = {*filter(paths.is_stored_topic_name, stored)}
        names |= {entry.topic_name for entry in registry}
        if topic in names or topic in registry.deleted:
            return ""
        letters = topic.translate(_NO_DIGITS)
        return did_you_mean(topic, (one for one in names if one.translate(_NO_DIGITS) != letters))

    def enter(self) -> None:
        """Pass the topics to the core, now and whenever they change or a put needs a new one."""
        for entry in self._registry:
            self._changed(entry.topic_name, entry)
        self._registry.watchers.append(self._changed)
        self._core.make_topic = self._make
        self._core.remake_topic = self._remake
        self._core.note_queue = self._note_queue

    def _changed(self, name: str, entry: TopicConfig | None) -> None:
        """Pass a topic's new or changed entry to the core.

        A put to a known topic does not check its name, so a topic that no client may name gets no
        queues to write.
        """
        self._exceeded.discard(name)
        if entry is not None and not self._core.closed and paths.is_stored_topic_name(name):
            writable = entry.write_queue_nums if paths.is_topic_name(name) else 0
            self._core.set_topic(name, writable)

    def _make(self, topic: str) -> None:
        """Create the topic of a put message."""
        queue_nums = made_queue_nums(topic, self._core.config.default_topic_queue_nums)
        self._registry.make(
            TopicConfig(topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
        )
        entry = self._registry.get(topic)
        if entry is not None and entry.write_queue_nums < 1:  # clients may not send to it; we may
            self._core.set_topic(topic, 1)

    def _remake(self, topic: str, physical_offset: int) -> None:
        """Create a topic that was deleted before a message at a log offset."""
        with self._registry.lock:  # waits for a deletion under way
            deleted = physical_offset < self._registry.deleted.get(topic, 0)
        if not deleted:
            self._make(topic)

    def _note_queue(self, topic: str, queue_id: int) -> None:
        """Log the first queue of a topic that a put adds to those of its entry."""
        entry = self._registry.get(topic)
        if entry is None or topic in self._exceeded:
            return
        queue_nums = max(entry.read_queue_nums, entry.write_queue_nums)
        if queue_id >= queue_nums:
            self._exceeded.add(topic)
            log_warning(
                "%s: topic %r: queue %s created beyond its %s; RocketMQ's clients do not read it",
                self._core.path,
                topic,
                queue_id,
                queue_nums,
            )

    def create(self, name: str, queue_nums: int, *, order: bool, perm: int) -> str:
        """Create a topic, or change its entry; return its name."""
        self._core.check_writable()
        entry = topic_entry(name, queue_nums, order=order, perm=perm)
        self._registry.change({entry.topic_name: lambda _there: entry})
        return entry.topic_name

    def delete_topic(self, name: str) -> None:
        """Remove a topic's queues and its entry in ``topics.json``.

        Its records stay in the log until retention removes them, and can be found by key and
        offset until then. The groups' offsets in it are removed: created again, it begins anew.

        Parameters
        ----------
        name : str

        Raises
        ------
        TopicNotFoundError
            No topic has that name.
        ValueError
            It is a topic of the broker itself, such as ``SCHEDULE_TOPIC_XXXX``: messages of other
            topics wait in some of them.
        OSError
            A file cannot be written, and the topic stays; or one of its queues' files cannot be
            removed.
        ReadOnlyStoreError, StoreClosedError, StoreFailedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java cleanUnusedTopic``,
        ``broker/processor/AdminBrokerProcessor.java deleteTopic``.
        """
        self._core.check_writable()
        if isinstance(name, str):
            name = str.__str__(name)
            if is_system_topic(name):
                raise wrong_value(
                    "name", "no topic of the broker itself, in which messages of others wait", name
                )
        if name not in self.queue_ids():
            raise self.not_found(name)
        with self._registry.lock:
            log_end = self._core.flush_log()
            # The note is on the disk before the first file is removed: otherwise a recovery from
            # the log would bring the queues back. It never exceeds the log's durable end: messages
            # put after a power cut would lie below it.
            self._registry.remove(name, log_end)
            self._core.set_topic(name, 0)
            self._progress.forget(topic=name)
            try:
                self._progress.save()
            except SyncError:
                raise
            except OSError as error:  # opening lowers offsets beyond their queue's end
                log_warning(
                    "%s: offsets of groups will be written later: %s", self._core.path, error
                )
            log_end = self._core.delete_queues(name)
            self._forget_topic(name)
            self._core.flush_log()
            self._registry.note_deleted(name, log_end)


def topic_entry(name: str, queue_nums: int, *, order: bool = False, perm: int = 6) -> TopicConfig:
    """Return the entry of a new topic; raise as :meth:`MessageStore.create_topic` does."""
    queue_nums = integer_within("queue_nums", queue_nums, 1, 65536)
    perm = integer_within("perm", perm, 0, 15)
    if not isinstance(name, str):
        raise wrong_type("name", "str", name)
    name = str.__str__(name)  # the kept name runs no code of a subclass
    if not paths.is_topic_name(name):
        raise MessageIllegalError(
            f"name must be 1 to 127 of [%|a-zA-Z0-9_-], got {shown(name)}",
            status=PutStatus.MESSAGE_ILLEGAL,
        )
    return TopicConfig(
        topic_name=name,
        order=bool(order),
        perm=perm,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
    )
