"""Readers at full speed beside an owner that rolls, deletes, dies, is torn and recovers.

What is in a message follows from its place alone, so each one that a reader is shown is checked,
whenever it was put: ``compared`` below the table counts them.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rmqstore
from crash.checks import environment
from crash.writer import FAST
from faults.framework import Case, Run, campaign

LIVES = 12  # of the owner
LIFE = (0.1, 0.6)  # seconds
LIMIT = 120  # seconds
TOPICS, QUEUES = ["orders", "payments"], 2
KEPT_FILES = [2, 6, 30]  # of the log, before it is opened: older ones are deleted
SIZES = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
KILLS = ["mid-copy", "before-unit", "mid-record", "after-append", "index-entry", "before-link"]
RECOVERY_KILLS = ["recover-after-log", "recover-in-force", "recover-after-queues", "before-erase"]
REMOVED = (rmqstore.MessagesRemovedError, LookupError)  # what a reader may meet: it is documented
TORN = b"torn" * 200
LISTED = 2  # seconds after which a reader knows of new files: ten times what is promised
CAT_SHARE = 0.02  # of the rounds of a reader: a program takes longer to start
NAMES = ["topic", "queue_id", "queue_offset", "keys", "body"]
Place = tuple[str, int, int]


def body_of(topic: str, queue_id: int, queue_offset: int) -> bytes:
    seed = zlib.crc32(f"{topic}/{queue_id}/{queue_offset}".encode())
    return seed.to_bytes(4, "big") * (1 + seed % (600 if seed % 16 == 0 else 60))


def key_of(topic: str, queue_id: int, queue_offset: int) -> str:
    return f"{topic}-{queue_id}-{queue_offset}"


# The owner


def own(case: Case, root: Path, config: Any, life: int) -> None:
    """Put in every way, and delete the oldest files, until it is killed or its time is over."""
    draw = random.Random(f"{case.name} {life}")
    last = life == LIVES - 1
    if not last and draw.random() < 0.6:
        point = draw.choice(RECOVERY_KILLS) if draw.random() < 0.3 else draw.choice(KILLS)
        count = 1 if point in RECOVERY_KILLS else draw.randint(1, 400)
        os.environ["RMQ_KILL_AT"] = f"{point}:{count}"  # nothing in a release build
    until = time.monotonic() + draw.uniform(*LIFE)
    _delete_oldest(root, draw.choice(KEPT_FILES))
    store = rmqstore.open(root, "a", config=config)
    following = {(topic, q): store.queue_bounds(topic, q)[1] for topic in TOPICS for q in (0, 1)}
    while time.monotonic() < until:
        for _ in range(10):
            _put(store, following, draw)
    if not last and draw.random() < 0.7:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def _put(store: Any, following: dict[tuple[str, int], int], draw: random.Random) -> None:
    topic, queue_id = draw.choice(list(following))
    count = draw.choice([1, 1, 1, 2, 20])
    start = following[topic, queue_id]
    places = [(topic, queue_id, start + number) for number in range(count)]
    following[topic, queue_id] += count
    bodies, keys = [body_of(*place) for place in places], [key_of(*place) for place in places]
    if count == 1:
        put = store.put(topic, bodies[0], queue_id=queue_id, keys=keys[0])
        offsets = [put.queue_offset]
    else:
        put = store.put_many(topic, bodies, queue_id=queue_id, keys=keys)
        offsets = put.queue_offset.tolist()
    assert offsets == [place[2] for place in places], (places[0], offsets)


def _delete_oldest(root: Path, kept: int) -> None:
    """As retention does: files of the log, then those of queues whose messages all were in them.

    Nobody may remove files under an owner, so it does so itself before it opens the store.
    """
    logs = sorted((root / "commitlog").glob("*"))
    for path in logs[:-kept]:
        path.unlink()
    least = int(logs[-kept].name) if len(logs) > kept else 0
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            last = path.read_bytes()[-20:]
            if not any(last) or int.from_bytes(last[:8], "big") >= least:
                break  # an owner that died may have left units out that are to be written
            path.unlink()


def _tear(root: Path, draw: random.Random) -> bool:
    """Put the beginning of a record behind the log's end, as a writer that died in it leaves it."""
    file_size = SIZES["mapped_file_size_commit_log"]
    with rmqstore.CommitLog(root / "commitlog", mode="r", file_size=file_size) as log:
        end = log.max_offset
    record = rmqstore.encode_record("orders", TORN, physical_offset=end, store_timestamp=1)
    path = root / "commitlog" / f"{end // file_size * file_size:020d}"
    if not path.exists() or file_size - end % file_size < len(record) + 8:
        return False
    with path.open("r+b") as file:
        if any(os.pread(file.fileno(), len(record), end % file_size)):
            return False
        os.pwrite(file.fileno(), record[: draw.randrange(8, len(record) - 20)], end % file_size)
    return True


# The readers


class Looker:
    """Each way of reading, with every message compared; what it may not raise is not caught."""

    def __init__(self, case: Case, root: Path, config: Any) -> None:
        self.case = case
        self.root = root
        self.store = rmqstore.open(root, "r", config=config)
        self.draw = random.Random(f"{case.name} {os.getpid()}")
        self.counts: Counter[str] = Counter()

    def same(self, name: str, place: Place, keys: Any, body: Any) -> None:
        self.counts["compared"] += 1
        if body != body_of(*place) or list(keys) != [key_of(*place)]:
            self.case.violation("I2", f"{name}: {place} shows {keys!r} and {bytes(body)[:40]!r}")

    def message(self, name: str, message: Any, *wanted: Any) -> None:
        place = message.topic, message.queue_id, message.queue_offset
        if wanted and place != wanted:
            self.case.violation("I3", f"{name}: {wanted} shows {place}")
        self.same(name, place, message.keys, message.body)

    def queues(self) -> Iterator[tuple[str, int, int, int]]:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                low, high = self.store.queue_bounds(topic, queue_id)
                self.counts["bounds"] += 1
                if low > high:
                    self.case.violation("I3", f"{topic}/{queue_id} has bounds {low} and {high}")
                if low < high:
                    yield topic, queue_id, low, high

    def get(self) -> None:
        for topic, queue_id, low, high in self.queues():
            start = self.draw.randrange(low, high)
            for step, message in enumerate(self.store.get(topic, queue_id, start, 64).messages):
                self.message("get", message, topic, queue_id, start + step)

    def at(self) -> None:
        for topic, queue_id, low, high in self.queues():
            start = self.draw.randrange(low, high)
            try:
                units = self.store[topic][queue_id].units(start, min(start + 8, high))
            except FileNotFoundError:
                self.counts["removed under a reader"] += 1
                continue
            for step, offset in enumerate(units["physical_offset"].tolist()):
                self.message("at", self.store.at(offset), topic, queue_id, start + step)

    def query(self) -> None:
        for topic, queue_id, low, high in self.queues():
            wanted = topic, queue_id, self.draw.randrange(low, high)
            found = self.store.query(topic, key_of(*wanted))
            for message in found:
                self.message("query", message, *wanted)
            if not found:
                self.found_soon(wanted)

    def found_soon(self, wanted: Place) -> None:
        """Its file may have gone a moment ago, or others have come: they are listed at times."""
        deadline = time.monotonic() + LISTED
        while self.store.get(*wanted, 1).messages:
            if self.store.query(wanted[0], key_of(*wanted)):
                return
            if time.monotonic() > deadline:
                self.case.violation("I4", f"query: {wanted} is not found, and can be read")
                return
            time.sleep(0.01)

    def locate_many(self) -> None:
        for topic, queue_id, low, high in self.queues():
            some = sorted({self.draw.randrange(low, high) for _ in range(20)})
            keys = [key_of(topic, queue_id, number) for number in some]
            found, starts = self.store.locate_many(topic, keys)
            for number, start, stop in zip(some, starts, starts[1:], strict=False):
                if stop - start > 1:
                    self.case.violation("I4", f"{topic}/{queue_id}/{number}: {found[start:stop]}")
                for offset in found[start:stop].tolist():
                    message = self.store.at(offset)
                    self.message("locate_many", message, topic, queue_id, number)

    def query_many(self) -> None:
        for topic, queue_id, low, high in self.queues():
            some = [self.draw.randrange(low, high) for _ in range(20)]
            keys = [key_of(topic, queue_id, number) for number in some]
            for number, found in zip(some, self.store.query_many(topic, keys), strict=True):
                for message in found:
                    self.message("query_many", message, topic, queue_id, number)

    def iteration(self) -> None:
        for topic, queue_id, low, high in self.queues():
            queue = self.store[topic][queue_id]
            for message in queue[max(low, high - 100) :]:
                self.message("slice", message)
            for message in itertools.islice(queue, 100):
                self.message("iteration", message)

    def rows(self, name: str, batches: Any) -> None:
        for batch in batches:
            for row in zip(*(batch[column].to_pylist() for column in NAMES), strict=True):
                self.same(name, row[:3], row[3], row[4])

    def log_scan(self) -> None:
        scan = self.store.scan(columns=NAMES, on_removed="skip", batch_rows=200)
        self.rows("scan of the log", scan.to_batches())

    def queue_scan(self) -> None:
        for topic, queue_id, _, _ in self.queues():
            scan = self.store.scan(topic, queue_id, columns=NAMES, on_removed="skip")
            self.rows("scan of a queue", scan.to_batches())

    def stream(self) -> None:
        import pyarrow as pa

        scan = self.store.scan(self.draw.choice(TOPICS), columns=NAMES, on_removed="skip")
        self.rows("stream", pa.RecordBatchReader.from_stream(scan))

    def piece(self) -> None:
        """As a task of Spark's reads its piece of the log: from any byte to any other."""
        extent = self.store.scan().extent()
        low, high = extent.start, extent.stop
        if low < high:
            start = self.draw.randrange(low, high)
            stop = self.draw.randrange(start, high) + 1
            scan = self.store.scan(start=start, stop=stop, columns=NAMES, on_removed="skip")
            self.rows("piece", scan.to_batches())

    def command_line(self) -> None:
        command = [sys.executable, "-m", "rmqstore", "cat", str(self.root), "-o", "jsonl"]
        with subprocess.Popen(
            [*command, "--body", "hex", "-n", "500", "-t", self.draw.choice(TOPICS)],
            env=environment(RMQ_KILL_AT=""),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            said, errors = child.communicate(timeout=LIMIT)
        if child.returncode and "removed" not in errors:
            self.case.violation("died", f"rmqstore cat: {child.returncode}, {errors}")
        self.counts["runs of rmqstore cat"] += 1
        for line in said.splitlines():
            row = json.loads(line)
            place = row["topic"], row["queue_id"], row["queue_offset"]
            self.same("cat", place, row["keys"], bytes.fromhex(row["body_hex"]))

    def ways(self) -> list[Callable[[], None]]:
        each = [self.get, self.at, self.query, self.locate_many, self.query_many, self.iteration]
        each += [self.log_scan, self.queue_scan, self.stream, self.piece]
        return each + [self.command_line] * (self.draw.random() < CAT_SHARE)

    def look(self) -> None:
        for way in self.ways():
            self.counts["calls"] += 1
            try:
                way()
            except REMOVED:
                self.counts["removed under a reader"] += 1


def read(case: Case, root: Path, config: Any, done: Path) -> None:
    while not list((root / "consumequeue").glob("*/*/*")):
        time.sleep(0.005)
    looker = Looker(case, root, config)
    last = False
    while not last:
        last = done.exists()
        looker.look()
    for name, count in looker.counts.items():
        case.note(name, count)


def _fork(case: Case, work: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT)
            work(case, *arguments)
            os._exit(0)
        except BaseException as error:
            case.violation("error", f"{work.__name__}: {error!r}\n{traceback.format_exc()}")
        finally:
            os._exit(1)
    return child


def one_readers(case: Case, number: int) -> None:
    root, done = case.scratch / "store", case.scratch / "done"
    flush = case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    config = rmqstore.StoreConfig(**SIZES, **FAST, flush_disk_type=flush)
    count = case.draw.randint(2, 4)
    readers = [
        _fork(case, read, root, case.draw.choice([config, None]), done) for _ in range(count)
    ]
    for life in range(LIVES):
        owner = _fork(case, own, root, config, life)
        _, status = os.waitpid(owner, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in {0, -signal.SIGKILL}:
            case.violation("died", f"the owner in life {life}: {code}")
        if code == -signal.SIGKILL:
            case.note("owners killed")
            if case.draw.random() < 0.7 and _tear(root, case.draw):
                case.note("tails torn")
    done.touch()
    for reader in readers:
        _, status = os.waitpid(reader, 0)
        if code := os.waitstatus_to_exitcode(status):
            case.violation("hung" if code == -signal.SIGALRM else "died", f"a reader: {code}")
    looker = Looker(case, root, config)
    looker.command_line()
    case.note("compared", looker.counts["compared"])


@campaign("readers", cases=40, slice=2)
def readers(run: Run) -> None:
    """An owner of many short lives that deletes, and two to four readers all the time."""
    logging.disable(logging.CRITICAL)
    run.fork(one_readers, range(run.cases), seconds=2 * LIMIT)
