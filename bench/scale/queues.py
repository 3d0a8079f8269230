"""Ten thousand queues: opening them, and get and query in "r" beside a store of four."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa

import rmqstore
import workloads
from scale.rows import Line, best, median

OPENED_S = 2
PER_TOPIC = 100
MESSAGES = 20  # of each queue
ASKED = 2_000
SLOWER = 1.0


def write(path: Path, topics: int, queues: int, count: int) -> Path:
    """Write a closed store with messages in all queues in turn."""
    topic_names = [f"topic-{number}" for number in range(topics)]
    with rmqstore.open(path, "a") as store:
        for name in topic_names:
            store.create_topic(name, queues)
        store.put_many(
            pa.array([topic_names[at % topics] for at in range(count)]),
            pa.array(workloads.bodies(128, count)),
            queue_id=pa.array([at // topics % queues for at in range(count)]),
            keys=pa.array(workloads.keys(count)),
        )
    return path


def asked(topics: int, queues: int, count: int) -> list[tuple[str, int, int, str]]:
    """Return topic, queue, queue offset and key of some messages of it."""
    found = []
    for at in random.Random(7).choices(range(count), k=min(ASKED, count)):
        place = (f"topic-{at % topics}", at // topics % queues, at // (topics * queues))
        found.append((*place, workloads.keys(count)[at]))
    return found


def get_each(store: rmqstore.MessageStore, places: list[tuple[str, int, int, str]]) -> None:
    """Get one message of each queue."""
    for topic, queue_id, offset, _key in places:
        assert len(store.get(topic, queue_id, offset, 1).messages) == 1


def query_each(store: rmqstore.MessageStore, places: list[tuple[str, int, int, str]]) -> None:
    """Find each message by its key."""
    for topic, _queue_id, _offset, key in places:
        assert len(store.query(topic, key)) == 1


def lines(folder: Path, queues: int, rounds: int) -> list[Line]:
    """Return figures of opening many queues, and of get and query beside four."""
    topics = max(1, queues // PER_TOPIC)
    each = queues // topics
    count = queues * MESSAGES
    shapes = {"many": (topics, each, count), "four": (1, 4, count)}
    paths = {name: write(folder / f"queues-{name}", *shape) for name, shape in shapes.items()}
    places = {name: asked(*shape) for name, shape in shapes.items()}
    found = []
    for mode in ("r", "r+"):
        took = best(lambda m=mode: rmqstore.open(paths["many"], m).close(), rounds)
        what = f'opening and closing {queues:,} queues, "{mode}"'
        found.append(Line(what, f"{took.wall:.2f} s", f"<= {OPENED_S} s", took.wall <= OPENED_S))
    with rmqstore.open(paths["many"]) as many, rmqstore.open(paths["four"]) as four:
        for name, work in (("get of 1", get_each), ("query", query_each)):
            work(many, places["many"])
            work(four, places["four"])
            ratios, ours = [], []
            for _ in range(max(rounds, 5)):
                beside = best(lambda w=work: w(four, places["four"]), 1).cpu
                ours.append(best(lambda w=work: w(many, places["many"]), 1).cpu)
                ratios.append(ours[-1] / beside)
            ns = min(ours) / len(places["many"]) * 1e9
            slower = median(ratios)
            found.append(
                Line(
                    f'{name}, "r", {queues:,} queues beside four',
                    f"{slower:.2f} ({ns:,.0f} ns cpu)",
                    f"<= {SLOWER:g}",
                    slower <= SLOWER,
                )
            )
    for path in paths.values():
        shutil.rmtree(path)
    return found
