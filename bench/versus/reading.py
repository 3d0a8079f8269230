"""Reading: a store that the real one wrote, by ours in "r" and in "r+", each side its own copy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import rmqstore
import workloads
from versus.limits import Limits
from versus.real import RealStore
from versus.rounds import Round, measured, timed
from versus.rows import Goal, Row, Work

BODY = 1024
BATCH = 32
HEATED = 256 << 20  # for columns; reading writes no file
MODES = ("r", "r+")
SIX = ("topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys")


@dataclass
class Asked:
    """The store for ours, its messages, the keys and times that are looked up."""

    path: Path
    messages: int
    keys: list[str]
    times: list[int]


def query(store: rmqstore.MessageStore, asked: Asked) -> int:
    """Look each key up by a call."""
    workloads.query_each(store, asked.keys)
    return len(asked.keys)


def query_decoded(store: rmqstore.MessageStore, asked: Asked) -> int:
    """Look each key up by a call, and use the fields that their side decodes."""
    for key in asked.keys:
        (message,) = store.query(workloads.TOPIC, key)
        use(message)
    return len(asked.keys)


def query_many_decoded(store: rmqstore.MessageStore, asked: Asked) -> int:
    """Look all keys up by one call, and use the fields that their side decodes."""
    for (message,) in store.query_many(workloads.TOPIC, asked.keys):
        use(message)
    return len(asked.keys)


def use(message: rmqstore.Message) -> None:
    """Use the fields that their side does."""
    _ = message.body, message.queue_offset, message.store_timestamp, message.properties


def locate_many(store: rmqstore.MessageStore, asked: Asked) -> int:
    """Look up where the messages of all keys are."""
    assert len(store.locate_many(workloads.TOPIC, asked.keys)[0]) == len(asked.keys)
    return len(asked.keys)


def offset_at(store: rmqstore.MessageStore, asked: Asked) -> int:
    """Look up the queue offset at each time."""
    queue = store[workloads.TOPIC][0]
    for each in asked.times:
        queue.offset_at(each)
    return len(asked.times)


def get(store: rmqstore.MessageStore, _asked: Asked) -> int:
    """Get all messages of each queue, and use their fields."""
    lengths = [len(queue) for queue in store[workloads.TOPIC].values()]
    for queue_id, length in enumerate(lengths):
        workloads.get_all(store, length, queue_id=queue_id, batch=BATCH)
    return sum(lengths)


def scan(store: rmqstore.MessageStore, asked: Asked, **given: Any) -> int:
    """Scan the topic along the log, to batches of columns."""
    rows = 0
    for batch in store.scan(workloads.TOPIC, **given).to_batches():
        rows += batch.num_rows
    assert rows == asked.messages
    return rows


QUERY = {"op": "query", "keys": "wanted"}
GET = {"op": "get", "queues": workloads.QUEUES, "batch": BATCH, "count": 1 << 40}
# Goal, their request, ours.
READS: dict[str, tuple[Goal, dict[str, Any], Callable[..., int]]] = {
    "query": (Goal(1.3), QUERY, query),
    "query, decoded": (Goal(1.2), {**QUERY, "decode": True}, query_decoded),
    "query_many, decoded": (Goal(1.3), {**QUERY, "decode": True}, query_many_decoded),
    "locate_many": (Goal(5), QUERY, locate_many),
    "offset_at": (Goal(4), {"op": "offset_at", "queue_id": 0}, offset_at),
    "get of 32, fields used": (Goal(1.3, 1.3), {**GET, "body": True}, get),
    "scan, six columns": (Goal(6, 5), GET, partial(scan, columns=SIX)),
    "scan, body and six columns": (
        Goal(4, 3),
        {**GET, "body": True},
        partial(scan, columns=("body", *SIX)),
    ),
    "scan, all columns, 2 threads": (
        Goal(3, 2.5),
        {**GET, "body": True},
        partial(scan, threads=2),
    ),
}
NAMES = {name: [f'{name}, "{mode}"' for mode in MODES] for name in READS}
GOALS = {line: READS[name][0] for name, both in NAMES.items() for line in both}


def works(folder: Path, messages: int, limits: Limits) -> list[Work]:
    """Write the store by the real one, copy it for ours, and return the workloads on both."""
    theirs, ours = folder / "theirs", folder / "ours"
    keys = workloads.keys(messages)
    wanted = random.Random(3).sample(keys, max(1, messages // 4))
    for name, some in (("all", keys), ("wanted", wanted)):
        (folder / f"keys-{name}").write_text("\n".join(some))
    with RealStore() as real:
        real.ask("keys", name="all", file=folder / "keys-all")
        real.ask("open", dir=theirs)
        fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": BODY}
        real.ask("put", count=messages, keys="all", **fields)
        real.ask("close")
    workloads.copy(theirs, ours)
    with rmqstore.open(ours) as store:
        queue = store[workloads.TOPIC][0]
        first, last = queue[0].store_timestamp, queue[-1].store_timestamp
    times = random.Random(6).choices(range(first, last + 1), k=max(1, messages // 20))
    asked = Asked(ours, messages, wanted, times)
    log_file = min((ours / "commitlog").iterdir())

    def row(name: str) -> Row:
        read = partial(limits.read, log_file, body=not name.startswith("scan, six"))
        return Row(name, GOALS[name], read if name.startswith("scan") else list)

    return [
        Work(
            [row(line) for line in NAMES[name]],
            partial(their_reading, theirs, folder / "keys-wanted", {"times": times, **request}),
            [partial(our_reading, asked, name, mode) for mode in MODES],
        )
        for name, (_goal, request, _read) in READS.items()
    ]


def their_reading(path: Path, keys: Path, request: dict[str, Any]) -> list[Round]:
    """Read by the real store."""
    with RealStore() as real:
        real.ask("keys", name="wanted", file=keys)
        real.ask("open", dir=path)
        ask = partial(real.round, topic=workloads.TOPIC, **request)
        done = measured(lambda: [ask()], warm=lambda: real.warm_up(ask, 2), heated=HEATED)
        real.ask("close")
        return done


def our_reading(asked: Asked, name: str, mode: str) -> list[Round]:
    """Read by ours, in one mode."""
    with rmqstore.open(asked.path, mode) as store:
        read = READS[name][2]
        return measured(lambda: [timed(lambda: read(store, asked))], heated=HEATED)
