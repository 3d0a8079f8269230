"""What a store must show: according to its writer's acknowledgements, or to a good store."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

Place = tuple[str, int, int]  # topic, queue id, queue offset
MANY = 1 << 30  # more messages than any queue has


class MessageLike(Protocol):
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    tags: str | None
    keys: tuple[str, ...]
    uniq_key: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """What a message is, wherever it lies."""

    topic: str
    queue_id: int
    digest: bytes
    tags: str | None
    keys: tuple[str, ...]

    @classmethod
    def of(cls, message: Any) -> Content:
        body = digest(message.raw_body)
        return cls(message.topic, message.queue_id, body, message.tags, tuple(message.keys))


def digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


class Known(Protocol):
    """Tells of any message whether it was ever sent, and as what."""

    def identity(self, message: MessageLike) -> object:
        """What no other message has: equal for two copies of one."""

    def sent(self, message: MessageLike) -> Content | None:
        """The message as it was sent; None if it never was."""


@dataclass
class Model:
    """What is expected of a store.

    ``acked`` must be there; what ``known`` lets pass may be there.  ``flushed`` is the greatest
    flushed position that was told to anybody.  With ``gaps`` a queue may pass over places, as it
    does where a power cut took a record and left one behind it.
    """

    known: Known
    acked: dict[Place, tuple[Content, int]] = field(default_factory=dict)  # physical offset or -1
    flushed: int = 0
    gaps: bool = False
    leaving: dict[str, set[Content]] = field(default_factory=dict)  # of topics being deleted
    dead: set[Content] = field(default_factory=set)  # of topics that were deleted
    deleted_topics: set[str] = field(default_factory=set)  # or were being deleted, once

    def flushed_part(self) -> Model:
        """What of it lies below the flushed position: records are flushed whole."""
        acked = {
            place: (content, at)
            for place, (content, at) in self.acked.items()
            if 0 <= at < self.flushed
        }
        return replace(self, acked=acked, gaps=True)

    def deleting(self, topic: str) -> None:
        """From now on its messages need not be there any more."""
        self.deleted_topics.add(topic)
        for place, (content, _) in list(self.acked.items()):
            if place[0] == topic:
                del self.acked[place]
                self.leaving.setdefault(topic, set()).add(content)

    def deleted(self, topic: str) -> None:
        """From now on they must not be there."""
        self.dead |= self.leaving.pop(topic, set())


@dataclass
class Snapshot:
    """Known messages: those of a store as it was before anything happened to it."""

    by_offset: dict[int, Content] = field(default_factory=dict)

    def identity(self, message: MessageLike) -> object:
        return message.physical_offset

    def sent(self, message: MessageLike) -> Content | None:
        return self.by_offset.get(message.physical_offset)


def messages_of(store: Any) -> Iterable[tuple[str, int, list[Any]]]:
    """Topic, queue id and messages of every queue of an open store."""
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            if queue.max_offset > queue.min_offset:
                yield name, queue_id, store.get(name, queue_id, queue.min_offset, MANY).messages


def model_of(store: Any) -> Model:
    """Expect what an open store, a good one, shows now, each message where it is."""
    known = Snapshot()
    model = Model(known)
    for name, queue_id, messages in messages_of(store):
        for message in messages:
            content = Content.of(message)
            known.by_offset[message.physical_offset] = content
            # A queue may be reached under another topic than its record's: a light one.
            place = (name, queue_id, message.queue_offset)
            model.acked[place] = content, message.physical_offset
    return model


@dataclass
class Named:
    """Known messages: those whose first key is a name that says what they are, see crash.writer."""

    prefixes: set[str] = field(default_factory=set)

    def identity(self, message: MessageLike) -> object:
        return message.keys[0] if message.keys else message.physical_offset

    def sent(self, message: MessageLike) -> Content | None:
        if not message.keys or message.keys[0].split(".")[0] not in self.prefixes:
            return None
        return content_of(message.keys[0])


@functools.lru_cache(maxsize=1 << 17)
def content_of(name: str) -> Content:
    from crash.writer import placed

    m = placed(name)
    body = digest(m["body"])
    return Content(m["topic"], m["queue_id"], body, m["tags"], tuple(m["keys"]))


def learn(model: Model, lines: bytes) -> list[str]:
    """Take what a writer wrote into its pipe; return its words.  A torn last line is nothing.

    A line is ``name topic queue_id queue_offset physical_offset`` of an acknowledged message,
    ``flushed POSITION``, ``deleting TOPIC``, ``deleted TOPIC``, or a
    word.
    """
    words = []
    for line in lines[: lines.rfind(b"\n") + 1].decode().splitlines():
        name, *rest = line.split(" ")
        if name == "flushed":
            model.flushed = max(model.flushed, int(rest[0]))
        elif name == "deleting":
            model.deleting(rest[0])
        elif name == "deleted":
            model.deleted(rest[0])
        elif not rest:
            words.append(name)
        else:
            topic, queue_id, queue_offset, physical_offset = rest
            place = (topic, int(queue_id), int(queue_offset))
            assert place not in model.acked, f"{place} was given away twice"
            model.acked[place] = content_of(name), int(physical_offset)
    return words
