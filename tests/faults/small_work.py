"""A workload over all that a store does, on a store of a few kilobytes, and what it promised.

Files of 1 KiB roll every seven messages, so that a few dozen calls pass every system call that
there is.  What is in a message is derived from its number alone, in our stores and the broker's.
"""

from __future__ import annotations

import builtins
import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import FAST
from faults import reopen, tiny
from faults.framework import Case
from faults.model import Content, MessageLike, Model, digest

FIRST = 100  # number of the first message that the workload puts
OWN_TOPIC, DELETED_TOPIC = "N", "G"


def topic_of(number: int) -> str:
    return [tiny.TOPIC, OWN_TOPIC, DELETED_TOPIC][number // 1000]


def content_of(number: int) -> Content:
    m = tiny.message(number)
    keys = tuple(m["keys"])
    return Content(topic_of(number), m["queue_id"], digest(m["body"]), m["tags"], keys)


class Numbered:
    """Known messages: those whose first key is ``k`` and the number of one that was sent."""

    def __init__(self) -> None:
        self.numbers = set(range(tiny.COUNT))

    def identity(self, message: MessageLike) -> object:
        return message.keys[0] if message.keys else message.physical_offset

    def sent(self, message: MessageLike) -> Content | None:
        key = message.keys[0] if message.keys else ""
        if key[:1] != "k" or not key[1:].isdecimal() or int(key[1:]) not in self.numbers:
            return None
        return content_of(int(key[1:]))


def model_of(image: tiny.Image | None) -> Model:
    """What is to be expected of a store that is opened first."""
    # What a power cut took of the log leaves places in the queues that are passed over.
    model = Model(Numbered(), gaps=image is not None and image.name.startswith("cut"))
    for place, fields in (image.messages if image else {}).items():
        number = next(int(key[1:]) for key in image.keys[place] if key[1:].isdecimal())
        model.acked[place] = content_of(number), fields[3]
    return model


@dataclass(frozen=True)
class Variant:
    """How a store is left and opened."""

    state: str  # new, or one of tiny's, with -broker behind it for the real store's
    flush: str
    configured: bool
    fast: bool  # the activities have a turn every few milliseconds
    mode: str
    deletes: bool  # a topic; the slow codec asks for the units of all records

    def config(self) -> Any:
        # Where no file can be opened to force it, each put waits that long.
        changes = {"sync_flush_timeout": 1000, **(FAST if self.fast else {})}
        return tiny.config(self.flush, **changes) if self.configured else None

    def __str__(self) -> str:
        speed = "fast" if self.fast else "slow"
        sizes = "config" if self.configured else "no config"
        deletes = ", topic deleted" if self.deletes else ""
        return f"{self.state} {self.mode} {self.flush} {sizes} {speed}{deletes}"


def variants(draw: random.Random, states: list[str]) -> list[Variant]:
    """Each state with each way to flush, the rest drawn."""
    found = []
    for state in states:
        for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            configured = state == "new" or flush == "SYNC_FLUSH" or draw.random() < 0.3
            mode = "a" if state == "new" or draw.random() < 0.3 else "r+"
            fast, deletes = draw.random() < 0.7, draw.random() < 0.5
            found.append(Variant(state, flush, configured, fast, mode, deletes))
    return found


class Worker:
    """The workload; what it is told goes into a file, a line at once.

    ``ack NUMBER QUEUE_ID QUEUE_OFFSET PHYSICAL_OFFSET``, ``raised WHERE CLASS ERRNO TEXT``,
    ``flushed POSITION``, ``deleted``, ``late WHERE``: acknowledged though a call had failed long
    before.
    """

    def __init__(self, root: Path, out: Path, variant: Variant, failed: Any) -> None:
        self.root = root
        self.variant = variant
        self.failed = failed  # whether a call was made to fail
        self.out = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.number = FIRST
        self.store: Any = None

    def tell(self, *words: object) -> None:
        os.write(self.out, (" ".join(map(str, words)) + "\n").encode())

    def guarded(self, where: str, call: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except (rmqstore.StoreError, OSError, MemoryError) as error:
            text = str(error).replace("\n", " ")
            number = getattr(error, "errno", None)
            self.tell("raised", where, public_name(type(error)), number, text)
            return None

    def acked(self, numbers: list[int], done: Any, late: bool) -> None:
        if done is None:
            return
        if late:
            self.tell("late", numbers)
        many = isinstance(done, rmqstore.PutManyResult)
        for row, number in enumerate(numbers):
            queue_offset = done.queue_offset[row] if many else done.queue_offset + row
            offset = done.physical_offset[row] if many else done.physical_offset if not row else -1
            self.tell("ack", number, tiny.message(number)["queue_id"], queue_offset, offset)

    def has_failed(self) -> bool:
        if not self.failed():
            return False
        time.sleep(0.02)  # for the thread that met it to say so
        return True

    def put(self, first: int = 0) -> None:
        number = self.take(first)
        late = self.has_failed()
        m = tiny.message(number)
        self.acked([number], self.guarded("put", self.store.put, topic_of(number), **m), late)

    def take(self, first: int = 0) -> int:
        number, self.number = self.number, self.number + 1
        return number + first

    def flush(self) -> None:
        self.guarded("flush", self.store.flush)
        self.tell("flushed", self.store.stats()["flushed_position"])

    def delete_topic(self) -> bool:
        self.store.delete_topic(DELETED_TOPIC)
        return True

    def put_batch(self, count: int) -> None:
        numbers = [self.take()]
        while len(numbers) < count:
            number = self.take()
            if number % 2 == numbers[0] % 2:  # of one queue
                numbers.append(number)
        late = self.has_failed()
        rows = [tiny.message(number) for number in numbers]
        done = self.guarded(
            "put_batch",
            self.store.put_batch,
            tiny.TOPIC,
            [m["body"] for m in rows],
            queue_id=rows[0]["queue_id"],
            tags=[m["tags"] for m in rows],
            keys=[m["keys"] for m in rows],
        )
        self.acked(numbers, done, late)

    def put_many(self, count: int) -> None:
        numbers = [self.take() for _ in range(count)]
        late = self.has_failed()
        rows = [tiny.message(number) for number in numbers]
        done = self.guarded(
            "put_many",
            self.store.put_many,
            tiny.TOPIC,
            [m["body"] for m in rows],
            queue_id=[m["queue_id"] for m in rows],
            tags=[m["tags"] for m in rows],
            keys=[" ".join(m["keys"]) for m in rows],
        )
        self.acked(numbers, done, late)

    def run(self) -> None:
        v = self.variant
        self.store = self.guarded("open", rmqstore.open, self.root, v.mode, config=v.config())
        if self.store is None:
            return
        store = self.store
        for _ in range(4):
            self.put()
        self.guarded("create_topic", store.create_topic, DELETED_TOPIC, 2)
        self.put(2000)
        self.put(2000)
        self.put_batch(3)
        self.flush()
        self.guarded("get", store.get, tiny.TOPIC, 0, 0, 10)
        self.put(1000)  # a topic that is made for it
        self.put_many(8)
        time.sleep(0.012 if v.fast else 0)
        self.guarded("query", store.query, tiny.TOPIC, "k100")
        if v.deletes and self.guarded("delete_topic", self.delete_topic):
            self.tell("deleted")
        for _ in range(5):
            self.put()
        self.guarded("scan", lambda: sum(1 for _ in store.scan()))
        time.sleep(0.012 if v.fast else 0)
        self.put_many(4)
        self.flush()
        self.guarded("close", store.close)
        self.guarded("close-again", store.close)


def public_name(kind: type) -> str:
    """The name of an error's class, or of the nearest above it that users have."""
    public = {*rmqstore.__all__, *dir(builtins)}
    return next(above.__name__ for above in kind.__mro__ if above.__name__ in public)


@dataclass
class Told:
    """What a worker told."""

    raised: list[tuple[str, str, str, str]]  # where, class, errno, text
    late: list[str]
    deleted: bool


def learn(model: Model, out: Path) -> Told:
    told = Told([], [], deleted=False)
    acked = {}
    for line in out.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "ack":
            number, queue_id, queue_offset, physical_offset = map(int, rest.split())
            acked[number] = (queue_id, queue_offset), physical_offset
        elif word == "raised":
            where, kind, number_text, text = [*rest.split(" ", 3), ""][:4]
            told.raised.append((where, kind, number_text, text))
        elif word == "flushed":
            model.flushed = max(model.flushed, int(rest))
        elif word == "late":
            told.late.append(rest)
        elif word == "deleted":
            told.deleted = True
    model.known.numbers |= {base + n for base in (0, 1000, 2000) for n in range(FIRST, FIRST + 200)}
    for number, ((queue_id, queue_offset), physical_offset) in acked.items():
        if number < 2000:  # the others may be deleted, or half deleted
            place = topic_of(number), queue_id, queue_offset
            model.acked[place] = content_of(number), physical_offset
    if told.deleted:
        model.known.numbers -= set(range(2000, 3000))
    return told


def put_more(store: Any, model: Model, draw: random.Random) -> None:
    """The store goes on."""
    for number in range(FIRST + 300, FIRST + 300 + draw.randrange(1, 12)):
        model.known.numbers.add(number)
        done = store.put(tiny.TOPIC, **tiny.message(number))
        place = tiny.TOPIC, tiny.message(number)["queue_id"], done.queue_offset
        model.acked[place] = content_of(number), done.physical_offset


def gone(variant: Variant) -> str:
    """A pattern of the files that the workload deletes."""
    return f"consumequeue/{DELETED_TOPIC}/" if variant.deletes else ""


def check_reopened(case: Case | reopen.Telling, root: Path, variant: Variant, model: Model) -> None:
    """Open what a worker left; that ends what a deletion that failed has begun."""
    reopen.check_reopened(
        case,
        root,
        model,
        config=variant.config(),
        more=put_more,
        slot_num=tiny.SLOTS,
        slow=not variant.deletes,
        gone=gone(variant),
    )


def begin(root: Path, image: tiny.Image | None) -> None:
    shutil.rmtree(root, ignore_errors=True)
    if image is None:
        root.mkdir(parents=True)
    else:
        image.write(root)
