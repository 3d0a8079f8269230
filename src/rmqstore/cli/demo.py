"""``demo``: writing, reading and finding in a few seconds, with order events."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.common import open_store, refuse_foreign, store_command, zone_option
from rmqstore.cli.demo_report import DemoReport, Line, print_report
from rmqstore.cli.failures import CliError, say
from rmqstore.cli.inspect import disk_use
from rmqstore.cli.progress import Progress
from rmqstore.cli.text import human_bytes

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["demo"]

_DEFAULT_MESSAGES = 200_000
_LEAST_MESSAGES = 100
_BATCH = 512  # rows of one put_many
_LOOKUPS = 2000
_SEED_TOPIC = "Topic1"
_SEED_QUEUE = 2
_ORDERS, _PAYMENTS, _SHIPMENTS = "orders", "payments", "shipments"
_QUEUES = {_ORDERS: 8, _PAYMENTS: 4, _SHIPMENTS: 4, _SEED_TOPIC: 4}

# Events of an order: topic and tag of each, in this order.
_LIFE = (
    (_ORDERS, "created"),
    (_PAYMENTS, "paid"),
    (_SHIPMENTS, "shipped"),
    (_SHIPMENTS, "delivered"),
    (_ORDERS, "closed"),
)


@store_command(
    store_name="DIR",
    examples=(
        "demo data/demo",
        "demo data/demo -n 5000 --local",
    ),
)
@click.option(
    "-n",
    "--messages",
    type=click.IntRange(_LEAST_MESSAGES),
    default=_DEFAULT_MESSAGES,
    show_default=True,
    help="How many messages to write.",
)
@zone_option
def demo(*, store: str, config: str | None, messages: int, local: bool) -> None:
    """Make a store of order events in DIR, read it, find orders, sum it up.

    Threads put while log, queues and index are written and flushed beside them.  A store that is
    there already is added to; any other directory must be empty.
    """
    root = Path(store)
    refuse_foreign(root)
    report = DemoReport(title=f"rmqstore demo: {root}")
    with open_store(store, "a", config) as opened:
        _write(opened, messages, report)
        with Progress("reading"):
            _read_queue(opened, report)
            _find(opened, report)
            _filter(opened, report)
            _time_seed(opened, report)
    report.disk = disk_use(root)
    report.root = root
    print_report(report, local)


@dataclass
class _Work:
    """Puts of one thread, and their result."""

    name: str
    run: Callable[[MessageStore], Iterator[int]]
    stored: int = 0
    seconds: float = 0.0
    error: BaseException | None = None

    def __call__(self, store: MessageStore, start: threading.Barrier) -> None:
        """Wait for the others, then put."""
        start.wait()
        begin = time.perf_counter()
        try:
            for count in self.run(store):
                self.stored += count
        except BaseException as error:  # raised by the waiting thread
            self.error = error
        self.seconds = time.perf_counter() - begin


@dataclass
class _Columns:
    """Rows for one ``put_many``."""

    bodies: list[bytes] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)

    def add(self, order: int, tag: str) -> None:
        """Add an event of an order."""
        name = _order_name(order)
        self.bodies.append(_body(order, tag))
        self.tags.append(tag)
        self.keys.append(f"{name} customer-{order % 9973}")
        self.orders.append(name)


def _order_name(order: int) -> str:
    """Return the key of an order."""
    return f"order-{order:07d}"


def _body(order: int, event: str) -> bytes:
    """Return the JSON of an event, always the same for an order."""
    cents = 500 + order * 7919 % 250_000
    return (
        f'{{"order":"{_order_name(order)}","event":"{event}","customer":{order % 9973},'
        f'"items":[{{"sku":"SKU-{order * 31 % 4096:04d}","count":{1 + order % 5}}}],'
        f'"amount":{cents // 100}.{cents % 100:02d},"currency":"EUR"}}'
    ).encode()


def _plan(messages: int, first: int) -> list[_Work]:
    """Return the work of four threads that put ``messages`` in all.

    Two put columns, one puts single events, one the seed: ``Hello RocketMQ`` with tag and
    property, its queue chosen by the argument 2.
    """
    seeds = max(1, messages // 100)
    singles = max(1, messages // 5)
    bulk = messages - seeds - singles
    halves = (bulk // 2, bulk - bulk // 2)
    stride = messages  # orders of different threads do not mix
    works = [
        _Work("put_many", partial(_put_columns, first=first + number * stride, count=count))
        for number, count in enumerate(halves)
    ]
    works.append(_Work("put", partial(_put_singles, first=first + 2 * stride, count=singles)))
    works.append(_Work("put", partial(_put_seeds, count=seeds)))
    return works


def _events(first: int, count: int) -> Iterator[tuple[int, str, str]]:
    """Iterate over ``count`` events: order, topic, tag; the orders of a block advance together."""
    done = 0
    size = _block_orders(count)
    for block in itertools.count(first, size):
        for topic, tag in _LIFE:
            for order in range(block, block + size):
                if done == count:
                    return
                yield order, topic, tag
                done += 1


def _block_orders(count: int) -> int:
    """Return the number of orders in a block, for ``count`` events."""
    return max(1, min(_BATCH, count // len(_LIFE)))


def _put_columns(store: MessageStore, first: int, count: int) -> Iterator[int]:
    """Put events with ``put_many``, a block of orders at a time; yield the number of each call."""
    for topic, group in itertools.groupby(_events(first, count), key=lambda event: event[1]):
        events = iter(group)
        while rows := list(itertools.islice(events, _BATCH)):
            columns = _Columns()
            for order, _, tag in rows:
                columns.add(order, tag)
            yield store.put_many(
                topic,
                columns.bodies,
                queue_key=columns.orders,
                tags=columns.tags,
                keys=columns.keys,
            ).count


def _put_singles(store: MessageStore, first: int, count: int) -> Iterator[int]:
    """Put events one by one; yield 1 for each."""
    for order, topic, tag in _events(first, count):
        name = _order_name(order)
        store.put(
            topic,
            _body(order, tag),
            queue_key=name,
            tags=tag,
            keys=(name, f"customer-{order % 9973}"),
        )
        yield 1


def _put_seeds(store: MessageStore, count: int) -> Iterator[int]:
    """Put the seed scenario's message ``count`` times; yield 1 for each."""
    for number in range(count):
        store.put(
            _SEED_TOPIC,
            b"Hello RocketMQ",
            queue_key=_SEED_QUEUE,
            tags="TagA",
            keys=(f"seed-{number}",),
            properties={"psly": "psly"},
        )
        yield 1


def _write(store: MessageStore, messages: int, report: DemoReport) -> None:
    """Put all messages from four threads, then wait until they are on disk."""
    for name, queues in _QUEUES.items():
        if name not in store.topics:
            store.create_topic(name, queues)
    before = sum(len(queue) for topic in store.topics.values() for queue in topic.values())
    # A run names at most 3 * messages orders: names of different runs differ.
    report.first_order = before * 3
    works = _plan(messages, report.first_order)
    report.orders = _block_orders(messages // 4)  # the first thread puts more events than that
    start = threading.Barrier(len(works) + 1)
    threads = [
        threading.Thread(target=work, args=(store, start), name=f"demo-{number}")
        for number, work in enumerate(works)
    ]
    say(f"writing {messages:,} messages")
    for thread in threads:
        thread.start()
    with Progress(
        "writing", "messages", total=messages, count=lambda: sum(work.stored for work in works)
    ):
        start.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
    for work in works:
        if work.error is not None:
            raise work.error
    begin = time.perf_counter()
    with Progress("flushing"):
        store.flush()
    flushed = time.perf_counter() - begin
    after = sum(len(queue) for topic in store.topics.values() for queue in topic.values())
    if after - before != messages:
        raise CliError(f"{messages:,} messages put, {after - before:,} in the queues", 1)
    report.lines.append(Line("put", f"{len(works)} threads together", messages, seconds))
    many = [work for work in works if work.name == "put_many"]
    report.lines.append(
        Line(
            "",
            f"of which put_many, {_BATCH} a call",
            sum(work.stored for work in many),
            max(work.seconds for work in many),
        )
    )
    report.lines.append(Line("", "of which put, one by one", works[2].stored, works[2].seconds))
    report.lines.append(Line("flush", "log, queues, index, checkpoint", 1, flushed, rate=False))


def _read_queue(store: MessageStore, report: DemoReport) -> None:
    """Read one whole queue, bodies included."""
    topic = store[_ORDERS]
    queue = max(topic.values(), key=len)
    begin = time.perf_counter()
    count = size = 0
    for message in queue:
        count += 1
        size += len(message.body)
    seconds = time.perf_counter() - begin
    what = f"queue {_ORDERS}/{queue.queue_id}, {human_bytes(size)} of bodies"
    report.lines.append(Line("read", what, count, seconds))


def _find(store: MessageStore, report: DemoReport) -> None:
    """Find orders by their keys through the index."""
    step = 7  # arbitrary: keys from all over the first block
    orders = [report.first_order + number * step % report.orders for number in range(_LOOKUPS)]
    begin = time.perf_counter()
    hits = sum(len(store.query(_ORDERS, _order_name(order))) for order in orders)
    seconds = time.perf_counter() - begin
    report.lines.append(Line("find", f"orders by key, {hits:,} messages found", _LOOKUPS, seconds))
    name = _order_name(report.first_order)
    found = [
        message
        for topic in (_ORDERS, _PAYMENTS, _SHIPMENTS)
        for message in store.query(topic, name)
    ]
    report.example = (name, sorted(found, key=lambda message: message.physical_offset))


def _filter(store: MessageStore, report: DemoReport) -> None:
    """Read a topic with a tag expression."""
    begin = time.perf_counter()
    passed = seen = 0
    for queue_id, queue in store[_SHIPMENTS].items():
        offset, end = queue.min_offset, queue.max_offset
        seen += end - offset
        while offset < end:
            result = store.get(_SHIPMENTS, queue_id, offset, 1024, tags="delivered")
            passed += len(result.messages)
            if result.next_offset <= offset:
                break
            offset = result.next_offset
    seconds = time.perf_counter() - begin
    what = f"{_SHIPMENTS} with tag delivered, {passed:,} pass"
    report.lines.append(Line("filter", what, seen, seconds))


def _time_seed(store: MessageStore, report: DemoReport) -> None:
    """Report the newest message of the seed scenario."""
    queue = store[_SEED_TOPIC][_SEED_QUEUE]
    report.seed = (f"{_SEED_TOPIC}/{_SEED_QUEUE}", queue[-1])
