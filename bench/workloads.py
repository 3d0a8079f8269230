"""Data and work of the named workloads; ``workloads.md`` defines the names.

Data is fixed (seeded), bodies differ, keys are distinct, tags vary.  Everything but the one call
that a workload measures is made beforehand.
"""

import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import rmqstore

TOPIC = "bench"
QUEUES = 4
COUNT = 500_000  # messages of a store that several workloads read
POOL = 4096  # distinct bodies; more messages take them in turn
PAUSE = 0.0002  # seconds between looks at a dispatch
TAGS = ("TagA", "TagB", "TagC", "TagD", "TagE")

THREE_COLUMNS = ("topic", "queue_id", "store_timestamp")


def root() -> Path:
    """Return the folder for stores: ``RMQSTORE_BENCH_DIR``, or the one for temporary files."""
    return Path(os.environ.get("RMQSTORE_BENCH_DIR") or tempfile.gettempdir())


@lru_cache(maxsize=4)
def bodies(size: int, count: int) -> list[bytes]:
    """Return ``count`` bodies of ``size`` bytes."""
    data = random.Random(size).randbytes(min(POOL, count) * size)
    pool = [data[at : at + size] for at in range(0, len(data), size)]
    return list(itertools.islice(itertools.cycle(pool), count))


WORDS = (
    'order shipped from warehouse, arrives soon: note 30 EUR payment of 129.99 with "care"; '
    "returned \u017c\u00f3\u0142te \u0142\u00f3\u017cko caf\u00e9 \u8ba2\u5355 customer\n fragile"
)


@lru_cache(maxsize=4)
def texts(size: int, count: int) -> list[bytes]:
    """Return ``count`` bodies of ``size`` bytes of text: words, quotes, some beyond ASCII."""
    random_words = random.Random(size)
    words = WORDS.split(" ")
    pool = []
    for _ in range(min(POOL, count)):
        text = " ".join(random_words.choices(words, k=size // 4)).encode()[:size]
        pool.append(text.decode(errors="ignore").encode().ljust(size, b"."))
    return list(itertools.islice(itertools.cycle(pool), count))


@lru_cache(maxsize=4)
def keys(count: int) -> list[str]:
    """Return ``count`` distinct keys in no order."""
    numbers = random.Random(1).sample(range(10**10), count)
    return [f"order-{number:010d}" for number in numbers]


@lru_cache(maxsize=4)
def tags(count: int) -> list[str]:
    """Return ``count`` tags, one of five each."""
    return random.Random(2).choices(TAGS, k=count)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a temporary folder."""
    path = Path(tempfile.mkdtemp(prefix="rmqstore-bench-", dir=root()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def fresh_store(
    config: rmqstore.StoreConfig | None = None,
) -> Iterator[rmqstore.MessageStore]:
    """Give an empty store of default file sizes whose topic exists."""
    with scratch() as path, rmqstore.open(path / "store", "a", config=config) as store:
        store.create_topic(TOPIC, QUEUES)
        yield store


def put_each(store: rmqstore.MessageStore, rows: list[bytes]) -> None:
    """Put each row by a call of its own."""
    put = store.put
    for body in rows:
        put(TOPIC, body, queue_id=0)


def fill(store: rmqstore.MessageStore, size: int, count: int, *, with_keys: bool = False) -> None:
    """Write ``count`` messages over all queues, with keys and tags if asked for."""
    columns = {"keys": keys(count), "tags": tags(count)} if with_keys else {}
    store.put_many(TOPIC, bodies(size, count), **columns)


def written(path: Path, size: int, count: int, *, with_keys: bool = False) -> Path:
    """Make a closed store of ``count`` messages in ``path``."""
    with rmqstore.open(path, "a") as store:
        store.create_topic(TOPIC, QUEUES)
        fill(store, size, count, with_keys=with_keys)
    return path


def written_texts(path: Path, size: int, count: int) -> Path:
    """Make a closed store of ``count`` messages of text in ``path``, with keys and tags."""
    with rmqstore.open(path, "a") as store:
        store.create_topic(TOPIC, QUEUES)
        store.put_many(TOPIC, texts(size, count), keys=keys(count), tags=tags(count))
    return path


def killed(path: Path, size: int, count: int) -> Path:
    """Make a store of ``count`` messages whose process ended without closing it."""
    program = (
        "import os, sys, workloads, rmqstore\n"
        "store = rmqstore.open(sys.argv[1], 'a')\n"
        "store.create_topic(workloads.TOPIC, workloads.QUEUES)\n"
        "workloads.fill(store, int(sys.argv[2]), int(sys.argv[3]))\n"
        "store.flush()\n"
        "os._exit(0)\n"
    )
    command = [sys.executable, "-c", program, str(path), str(size), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent)])}
    inherited = os.environ.get("PYTHONPATH")
    if inherited:
        environment["PYTHONPATH"] += os.pathsep + inherited
    subprocess.run(command, env=environment, check=True)
    return path


def copy(source: Path, to: Path) -> Path:
    """Copy a store; the holes of its sparse files stay holes."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(to)], check=True)
    return to


def forget_dispatch(path: Path) -> None:
    """Delete what dispatch writes, so that the next opening has to dispatch the whole log."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name, ignore_errors=True)


def open_and_dispatch(path: Path, count: int) -> rmqstore.MessageStore:
    """Open a store and return it once all of its ``count`` messages are dispatched."""
    store = rmqstore.open(path, "r+")
    wait_dispatched(store, count)
    return store


def wait_dispatched(store: rmqstore.MessageStore, count: int) -> None:
    """Wait until so many messages are in their queues, without keeping a core from the dispatch."""
    while sum(queue.max_offset for queue in store[TOPIC].values()) < count:
        time.sleep(PAUSE)


def get_all(store: rmqstore.MessageStore, count: int, *, queue_id: int = 0, batch: int = 32) -> int:
    """Read one queue from its beginning, ``batch`` a call, using fields and body; return bytes."""
    total = offset = 0
    while offset < count:
        result = store.get(TOPIC, queue_id, offset, batch)
        for message in result.messages:
            total += len(message.body) + message.queue_offset + message.store_timestamp
            total += len(message.properties)
        offset = result.next_offset
    return total


def scan_all(store: rmqstore.MessageStore, columns: tuple[str, ...] | None = None) -> int:
    """Scan the store to Arrow batches, each dropped before the next; return the rows."""
    rows = 0
    for batch in store.scan(columns=columns).to_batches():
        rows += batch.num_rows
    return rows


def query_each(store: rmqstore.MessageStore, wanted: list[str]) -> None:
    """Look each key up by a call of its own; each is found once."""
    query = store.query
    for key in wanted:
        (_message,) = query(TOPIC, key)


def record_size(size: int) -> int:
    """Return the bytes of one stored record of the workloads without keys, body of ``size``."""
    with scratch() as path:
        config = rmqstore.StoreConfig.small()
        with rmqstore.open(path / "store", "a", config=config) as store:
            store.create_topic(TOPIC, QUEUES)
            done = store.put(TOPIC, bodies(size, 1)[0], queue_id=0)
            return int(store.at(done.physical_offset).store_size)
