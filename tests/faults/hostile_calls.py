"""A program that calls a store with hostile arguments, and tells what was acknowledged.

``python -m faults.hostile_calls ROOT TOLD SEED SECONDS``; all threads' stacks go to standard error
if it does not end in time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import rmqstore
from faults.hostile import Evil, Garbage, Mood

LIMIT = 120  # seconds after which it hangs
LONGEST = 30  # seconds of one call
# A false `__len__` can make a put of a million rows, and a unit may be put far behind the last:
# each file is one of a process's 65,530 mappings, which the sanitizer needs as well.  With queue
# files of 2,000 bytes a put made thousands.
CONFIG = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 40_000,
    "max_hash_slot_num": 1000,
    "max_index_num": 8000,
}
KEPT, DELETED = "kept", "deleted"  # topics; the queues of the second are deleted at times
# What a call may raise: what arguments raise themselves, and what the manual has.
DOCUMENTED = (
    Evil, KeyError, StopIteration, MemoryError, rmqstore.StoreError, TypeError, ValueError,
    OverflowError, RuntimeError, OSError, LookupError, AttributeError, BufferError,
)  # fmt: skip
NEVER = (UnboundLocalError, NotImplementedError, RecursionError)


class Caller:
    """The store, whoever has it open at present, and every way to call it."""

    def __init__(self, root: Path, told: Path, seed: str) -> None:
        self.root = root
        self.draw = random.Random(seed)
        self.told = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.numbers = itertools.count()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = (0.0, "")
        self.mood = Mood(random.Random(seed + "mood"), [])
        flush = self.draw.choice(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"])
        above = self.draw.choice([None, 40])
        self.config = rmqstore.StoreConfig(**CONFIG, flush_disk_type=flush, compress_above=above)
        self.store = rmqstore.open(root, "a", config=self.config)
        self.streams: list[Any] = []
        self.parts = self._parts()
        reading = [
            self.get, self.query, self.query_many, self.locate_many, self.at, self.scan,
            self.batches, self.more, self.walk, self.look, self.consume,
        ]  # fmt: skip
        writing = [
            self.put, self.put, self.put_many, self.put_batch, self.put_table, self.create,
            self.delete, self.transaction, self.delayed, self.flush, self.advance, self.part,
            self.expire,
        ]  # fmt: skip
        self.ways = [*reading, *writing]
        self.mood.acts += [*self.ways, *writing, self.put, self.close]

    def _parts(self) -> list[Any]:
        top = self.root.with_name("parts")
        for name in ("queue", "log"):
            (top / name).mkdir(parents=True, exist_ok=True)
        return [
            rmqstore.IndexFile(top / "20260101000000000", hash_slot_num=20, index_num=80, mode="a"),
            rmqstore.ConsumeQueue(top / "queue", file_size=40_000, mode="a"),
            rmqstore.CommitLog(top / "log", file_size=4096, mode="a"),
        ]

    # What is acknowledged

    def name(self) -> str:
        return f"m{next(self.numbers)}"

    def tell(self, topic: Any, name: str, *places: tuple[int, int, int]) -> None:
        for queue_id, queue_offset, physical_offset in places:
            line = f"{topic} {queue_id} {queue_offset} {physical_offset} {name}\n"
            os.write(self.told, line.encode())
            self.counts["acknowledged"] += 1

    def topic(self) -> str:
        return self.draw.choice([KEPT, KEPT, DELETED, f"new{self.draw.randrange(40)}"])

    # Calls that write

    def put(self) -> None:
        mood, topic, name = self.mood, self.topic(), self.name()
        plain = name.encode()
        body = self.draw.choice([plain, mood.body(plain * 9)])
        chosen = {
            "queue_id": lambda: mood.number(self.draw.randrange(4)),
            "queue_key": lambda: self.draw.choice([mood.text("k"), mood.number(7)]),
            "tags": lambda: mood.text("tag"),
            "keys": lambda: self.draw.choice([mood.text(name), mood.rows([name, "k"])]),
            "properties": lambda: mood.mapping({"a": "1", "b": mood.text("2")}),
            "flag": lambda: mood.number(3),
            "born_timestamp": mood.time,
            "born_host": lambda: mood.text("1.2.3.4:5"),
            "uniq_key": lambda: self.draw.choice([True, False, mood.text(f"u{name}")]),
            "wait": mood.wrong,
        }
        some = self.draw.sample(list(chosen), self.draw.choice([0, 1, 2, 5]))
        options = {key: chosen[key]() for key in some}
        done = self.store.put(self.draw.choice([topic, mood.text(topic)]), body, **options)
        self.tell(
            topic,
            name if body is plain else "-",
            (done.queue_id, done.queue_offset, done.physical_offset),
        )

    def _columns(self, count: int) -> dict[str, Any]:
        mood = self.mood
        chosen = {
            "queue_id": lambda: self.draw.choice(
                [mood.number(1), mood.rows([mood.number(n % 3) for n in range(count)])]
            ),
            "tags": lambda: mood.rows([mood.text("tag")] * count),
            "keys": lambda: mood.rows([mood.rows(["a", f"k{n}"]) for n in range(count)]),
            "properties": lambda: mood.rows([mood.mapping({"p": "x"}) for _ in range(count)]),
            "uniq_key": lambda: mood.rows([mood.text(f"u{n}") for n in range(count)]),
        }
        some = self.draw.sample(list(chosen), self.draw.choice([0, 1, 2]))
        return {key: chosen[key]() for key in some}

    def put_many(self) -> None:
        count, topic, name = self.draw.choice([1, 3, 20, 600]), self.topic(), self.name()
        bodies = self.mood.rows([self.mood.body(name.encode()) for _ in range(min(count, 20))])
        if count == 600:
            bodies = self.mood.rows([name.encode()] * count)
        done = self.store.put_many(topic, bodies, **self._columns(min(count, 20)))
        places = zip(done.queue_id, done.queue_offset, done.physical_offset, strict=True)
        self.tell(topic, "-", *places)

    def put_batch(self) -> None:
        topic, name = self.topic(), self.name()
        bodies = self.mood.rows([self.mood.body(name.encode()) for _ in range(3)])
        done = self.store.put_batch(topic, bodies, **self._columns(3))
        self.tell(topic, "-", (done.queue_id, done.queue_offset, done.physical_offset))

    def put_table(self) -> None:
        name = self.name()
        table = pa.table({"topic": [KEPT] * 3, "body": [name.encode()] * 3})
        stream = self.mood.draw.choice([table, _Table(self.mood, table), self.store.scan(DELETED)])
        done = self.store.put_table(stream)
        if stream is not table and not isinstance(stream, _Table):
            return
        places = zip(done.queue_id, done.queue_offset, done.physical_offset, strict=True)
        self.tell(KEPT, name, *places)

    def delayed(self) -> None:
        mood = self.mood
        self.store.put(KEPT, mood.body(b"later"), delay_level=mood.number(self.draw.choice([1, 2])))

    def transaction(self) -> None:
        name = self.name()
        begun = self.store.begin(KEPT, name.encode(), properties=self.mood.mapping({"a": "b"}))
        if self.draw.random() < 0.7:
            done = begun.commit()
            self.tell(KEPT, name, (done.queue_id, done.queue_offset, done.physical_offset))
        elif self.draw.random() < 0.5:
            begun.rollback()

    def create(self) -> None:
        number = self.mood.number(self.draw.choice([1, 4]))
        self.store.create_topic(self.mood.text(self.topic()), number, perm=self.mood.number(6))

    def delete(self) -> None:
        self.store.delete_topic(self.mood.text(DELETED))

    def flush(self) -> None:
        self.draw.choice([self.store.flush, lambda: self.store.wait_durable(timeout=2)])()

    def advance(self) -> None:
        self.store.clock.advance(self.draw.choice([1, 5, self.mood.text("x"), float("nan")]))

    def expire(self) -> None:
        self.store.delete_expired(before=self.mood.number(0), dry_run=self.draw.random() < 0.5)

    def part(self) -> None:
        mood, (index, queue, log) = self.mood, self.parts
        number = self.draw.randrange(1, 60)
        self.draw.choice([
            lambda: index.put_key(mood.text("k"), mood.number(number), mood.time()),
            lambda: index.put_keys(
                mood.rows([mood.text("k")] * 2), mood.rows([mood.number(1)] * 2), mood.rows([1, 2])
            ),
            lambda: index.select_phy_offset(mood.text("k"), mood.number(5)),
            lambda: index.select_many(mood.rows([mood.text("k")] * 3)),
            lambda: queue.put_unit(
                mood.number(number), mood.number(1), mood.number(-1), mood.number(number)
            ),
            lambda: queue.units(mood.number(0), mood.number(9)),
            lambda: log.append(mood.rows([mood.body(RECORD), RECORD])),
            lambda: list(log.records(mood.number(0))),
            lambda: self.draw.choice([index, queue, log]).flush(),
            lambda: rmqstore.encode_record(mood.text("t"), mood.body(b"x"), flag=mood.number(1)),
        ])()  # fmt: skip

    # Calls that read

    def get(self) -> None:
        mood = self.mood
        options = {
            "tags": mood.text("tag || x"), "sql": mood.text("a > 0"),
            "max_bytes": mood.number(1 << 20),
        }  # fmt: skip
        some = self.draw.sample(list(options), self.draw.choice([0, 0, 1]))
        found = self.store.get(
            mood.text(self.topic()), mood.number(self.draw.randrange(4)), mood.number(0),
            mood.number(self.draw.choice([1, 32, 500])), **{key: options[key] for key in some},
        )  # fmt: skip
        for message in found.messages[:9]:
            assert len(message.body) >= 0

    def _times(self) -> dict[str, Any]:
        chosen = {"begin": self.mood.time, "end": self.mood.time}
        chosen["max_num"] = lambda: self.mood.number(5)
        return {key: chosen[key]() for key in self.draw.sample(list(chosen), 1)}

    def query(self) -> None:
        self.store.query(self.mood.text(KEPT), self.mood.text("k"), **self._times())

    def _keys(self) -> Any:
        return self.mood.rows([self.mood.text(f"k{n}") for n in range(5)])

    def query_many(self) -> None:
        self.store.query_many(self.mood.text(KEPT), self._keys(), **self._times())

    def locate_many(self) -> None:
        self.store.locate_many(self.mood.text(KEPT), self._keys(), **self._times())

    def at(self) -> None:
        with contextlib.suppress(rmqstore.StoreCorruptError):  # no record begins there
            self.store.at(self.mood.number(self.draw.randrange(1 << 14)))

    def _scan(self) -> Any:
        mood = self.mood
        chosen = {
            "columns": lambda: mood.rows(["body", "keys", "queue_offset"]),
            "start": lambda: mood.number(0), "stop": lambda: mood.number(1 << 16),
            "since": mood.time, "keys": lambda: mood.rows(["k1", "k2"]),
            "batch_rows": lambda: mood.number(self.draw.choice([1, 50])),
            "sql": lambda: mood.text("a IS NULL"),
        }  # fmt: skip
        some = self.draw.sample(list(chosen), self.draw.choice([0, 1, 1, 2]))
        options: dict[str, Any] = {"on_removed": "skip", "on_corruption": "skip"}
        options |= {key: chosen[key]() for key in some}
        return self.store.scan(self.draw.choice([None, KEPT, mood.text(KEPT)]), **options)

    def scan(self) -> None:
        scan = self._scan()
        self.draw.choice([scan.count, lambda: list(itertools.islice(scan, 50)), scan.extent])()

    def batches(self) -> None:
        for batch in itertools.islice(self._scan().to_batches(), 5):
            self.mood.act()
            assert batch.num_rows > 0

    def more(self) -> None:
        """A stream that is read by whoever comes next, from within whatever he reads."""
        if len(self.streams) < 3:
            self.streams.append(pa.RecordBatchReader.from_stream(self._scan()))
        stream = self.draw.choice(self.streams)
        try:
            stream.read_next_batch()
        except (StopIteration, OSError):
            with contextlib.suppress(ValueError):
                self.streams.remove(stream)

    def walk(self) -> None:
        queue = self.store[self.topic()][self.mood.number(0)]
        self.draw.choice([
            lambda: list(itertools.islice(queue, 20)), lambda: queue[self.mood.number(0)],
            lambda: queue[self.mood.number(0) : self.mood.number(9)], lambda: len(queue),
            lambda: queue.offset_at(self.mood.time()), lambda: queue.units(self.mood.number(0)),
        ])()  # fmt: skip

    def look(self) -> None:
        store = self.store
        self.draw.choice([
            store.stats, lambda: store.offsets, store.lag, lambda: list(store.topics),
            store.in_doubt, lambda: self.mood.text("x") in store, lambda: store.groups,
            store.index_coverage, lambda: store.queue_bounds(KEPT, self.mood.number(0)),
        ])()  # fmt: skip

    def consume(self) -> None:
        group = f"g{self.draw.randrange(3)}"
        with self.store.consumer(KEPT, group=group) as consumer:
            for message in itertools.islice(consumer, 3):
                self.mood.act()
                assert message.topic == KEPT
            consumer.commit(sync=self.draw.random() < 0.3)

    # Open and close

    def close(self) -> None:
        self.counts["closes"] += 1
        self.store.close()

    def opened(self) -> None:
        if self.store.closed:
            self.store = rmqstore.open(self.root, "a", config=self.config)
            self.counts["openings"] += 1

    def import_all(self) -> None:
        """First uses import modules, and Python has no good end for those that are interrupted."""
        self.mood.share, share = 0, self.mood.share
        for way in self.ways * 2:
            with contextlib.suppress(*DOCUMENTED):
                way()
        self.mood.share = share

    def call(self) -> None:
        """Call something; note what should not be raised."""
        way = self.draw.choice(self.ways)
        begun = time.monotonic()
        try:
            self.opened()
            way()
        except NEVER as error:
            self.note(way.__name__, error)
        except DOCUMENTED as error:
            self.counts[type(error).__name__] += 1
            if isinstance(error, rmqstore.StoreCorruptError):
                self.note(way.__name__, error)
        except BaseException as error:
            if not interpreters_own(error):
                self.note(way.__name__, error)
        took = time.monotonic() - begun
        self.slowest = max(self.slowest, (took, way.__name__))
        self.counts["calls"] += 1

    def note(self, name: str, error: BaseException) -> None:
        self.wrong.append(f"{name}: {''.join(traceback.format_exception(error))}")


def interpreters_own(error: BaseException) -> bool:
    """Whether the interpreter, not the store, went on with an exception set.

    CPython 3.11.2 does when two handlers come while `Path.is_symlink` calls `os.stat`, and the
    first raises: 4 times in 6 million calls, with nothing but the standard library loaded; 3.11.7
    does not.
    """
    if sys.version_info >= (3, 11, 7) or not isinstance(error, SystemError):
        return False
    frames = traceback.extract_tb(error.__traceback__)[-2:]
    return (
        "returned a result with an exception set" in str(error)
        and [frame.name for frame in frames] == ["stat", "handle"]
        and Path(frames[0].filename).name == "pathlib.py"
    )


class _Table:
    """A table whose stream does something else first, and between its batches."""

    def __init__(self, mood: Mood, table: Any) -> None:
        self.mood, self.table = mood, table

    def _batches(self) -> Any:
        for batch in self.table.to_batches(max_chunksize=1):
            self.mood.act()
            yield batch

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.mood.act()
        reader = pa.RecordBatchReader.from_batches(self.table.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)


RECORD = rmqstore.encode_record("T", b"x", physical_offset=0, store_timestamp=1)


def interrupting(caller: Caller, interval: float) -> None:
    """Have signals come all the time; their handler does as arguments do."""

    def handle(*_: object) -> None:
        caller.counts["signals"] += 1
        caller.mood.act()

    signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, interval, interval)


def quiet() -> None:
    for number in (signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def main(root: str, told: str, seed: str, seconds: str) -> int:
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None  # what finalizers raise
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is a handler
    caller = Caller(Path(root), Path(told), seed)
    caller.import_all()
    draw = random.Random(seed + "main")
    until = time.monotonic() + float(seconds)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set() and time.monotonic() < until:
            if draw.random() < 0.3:
                Garbage(caller.mood)
            caller.call()

    threads = [threading.Thread(target=work) for _ in range(draw.choice([0, 0, 1, 2]))]
    for thread in threads:
        thread.start()
    gc.set_threshold(draw.choice([700, 20]))
    interval = draw.choice([0, 0.02, 0.002])
    for step in (lambda: interrupting(caller, interval), work, quiet):
        while True:
            try:
                step()
                break
            except DOCUMENTED:
                pass  # of a handler, between two calls
    ended.set()
    for thread in threads:
        thread.join()
    caller.mood.share = 0
    if draw.random() < 0.7:
        caller.store.close()
    for text in caller.wrong[:3]:
        print(f"WRONG {text}", file=sys.stderr)
    if caller.slowest[0] > LONGEST:
        print(f"WRONG {caller.slowest[1]} took {caller.slowest[0]:.0f} s", file=sys.stderr)
    for name, count in sorted(caller.counts.items()):
        print(f"{name}: {count}")
    print(f"slowest: {caller.slowest}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
