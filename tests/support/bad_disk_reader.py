"""A program that reads a store by every call in several threads, while pages of a file are bad.

``python -m support.bad_disk_reader JSON``: see :func:`main`.  It prints what it counted, and ends
itself by SIGBUS: the handler of faulthandler, installed before the store was opened, still sees it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import rmqstore

THREADS = 3
COLUMNS = ["queue_offset", "body"]
MAP_FIXED = 0x10


def body_of(number: int) -> bytes:
    return b"%04d" % number * 250


class Reader:
    """Compares the result of each call with the messages put."""

    def __init__(self, store: Any, places: list[int]) -> None:
        self.store = store
        self.places = places
        self.keys = [f"k{number}" for number in range(len(places))]

    def right(self, number: int, message: Any) -> int:
        assert (message.topic, message.queue_id, message.queue_offset) == ("T", 0, number)
        assert message.body == body_of(number)
        assert message.keys == (self.keys[number],)
        return 1

    def rows(self, batches: Iterable[Any]) -> int:
        count = 0
        for batch in batches:
            for number, body in zip(*(batch[name].to_pylist() for name in COLUMNS), strict=True):
                assert body == body_of(number)
                count += 1
        return count

    def get(self, number: int) -> int:
        return self.right(number, self.store.get("T", 0, number, 1)[0])

    def at(self, number: int) -> int:
        return self.right(number, self.store.at(self.places[number]))

    def item(self, number: int) -> int:
        return self.right(number, self.store["T"][0][number])

    def query(self, number: int) -> int:
        [message] = self.store.query("T", self.keys[number])
        return self.right(number, message)

    def locate_many(self, number: int) -> int:
        found, _ = self.store.locate_many("T", [self.keys[number]])
        assert found.tolist() == [self.places[number]]
        return 1

    def query_many(self) -> int:
        found = self.store.query_many("T", self.keys)
        return sum(self.right(number, message) for number, [message] in enumerate(found))

    def iteration(self) -> int:
        return sum(self.right(number, m) for number, m in enumerate(self.store["T"][0]))

    def messages(self) -> int:
        return sum(self.right(message.queue_offset, message) for message in self.store.scan())

    def batches(self) -> int:
        return self.rows(self.store.scan("T", columns=COLUMNS).to_batches())

    def stream(self) -> int:
        scan = self.store.scan(columns=COLUMNS, batch_rows=100)
        return self.rows(pa.RecordBatchReader.from_stream(scan))


class Sweeps:
    """Threads that call everything everywhere, and their results."""

    def __init__(self, reader: Reader, step: int) -> None:
        self.reader = reader
        self.step = step
        self.counts: Counter[str] = Counter()
        self.errors: set[str] = set()
        self.failed: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def try_one(self, call: Callable[..., int], *number: int) -> None:
        name = call.__name__
        try:
            count = call(*number)
        except (OSError, rmqstore.StoreCorruptError) as error:
            with self.lock:
                self.counts[f"{name} failed"] += 1
                self.errors.add(f"{type(error).__name__}: {error}")
                self.failed.add((name, *(number or (-1,))))
        except Exception as error:
            self.wrong.append(f"{name}{number}: {error!r}")
        else:
            with self.lock:
                self.counts[name] += count

    def sweep(self, part: int) -> None:
        reader = self.reader
        for number in range(part * self.step, len(reader.places), THREADS * self.step):
            for call in (reader.get, reader.at, reader.item, reader.query, reader.locate_many):
                self.try_one(call, number)
        for whole in (
            reader.batches,
            reader.stream,
            reader.messages,
            reader.iteration,
            reader.query_many,
        ):
            self.try_one(whole)

    def run(self) -> None:
        threads = [threading.Thread(target=self.sweep, args=(part,)) for part in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def report(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "errors": sorted(self.errors),
            "failed": sorted(self.failed),
            "wrong": self.wrong,
        }


def replace_pages(file: Path, begin: int, end: int) -> int:
    """Map a file without a byte over these pages of each mapping of ``file``; their count.

    The kernel raises SIGBUS for them as it does for a page that the disk cannot read.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    empty = os.memfd_create("empty")
    flags = mmap.MAP_SHARED | MAP_FIXED
    replaced = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(file)):
            at = int(line.partition("-")[0], 16) + begin
            assert libc.mmap(at, end - begin, mmap.PROT_READ, flags, empty, 0) == at
            replaced += 1
    return replaced


def main(given: str) -> None:
    """``root`` and ``places`` of a store; ``file`` of it, of which bytes from ``begin`` are bad.

    With ``bad``, a path, they are so as ``bad_disk`` makes them; else by replaced pages, and with
    ``fail`` each read of a file by its descriptor fails as well.  Single calls are for each
    ``step``-th message.
    """
    chosen = json.loads(given)
    begin, end = chosen["begin"], chosen["end"]
    file = Path(chosen["root"], chosen["file"])
    faulthandler.enable()
    with rmqstore.open(chosen["root"]) as store:
        reader = Reader(store, chosen["places"])
        sweeps = Sweeps(reader, chosen["step"])
        for number in range(0, len(reader.places), 10):  # all files are mapped
            assert reader.get(number) == reader.query(number) == 1
        if chosen["bad"]:
            Path(chosen["bad"]).write_text(f"{chosen['file']} {begin} {end}\n")
            with file.open("rb") as cached:  # so that it is read again
                os.posix_fadvise(cached.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            sweeps.counts["pages replaced"] = replace_pages(file, begin, end)
            if chosen["fail"]:
                os.environ["RMQ_FAIL_AT"] = "file_read:1:5+"
        sweeps.run()
        os.environ.pop("RMQ_FAIL_AT", None)
        print(json.dumps(sweeps.report()), flush=True)
        os.kill(os.getpid(), signal.SIGBUS)


if __name__ == "__main__":
    main(*sys.argv[1:])
