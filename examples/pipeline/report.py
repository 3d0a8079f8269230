"""Each order of the pipeline, looked for without Spark: in the topics, and in the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from job import CLEAN, LATE, LATENESS, QUARANTINE, TOPICS, Places
from orders import CLOSING, MINUTE
from pyarrow import parquet

import rmqstore

Totals = Counter[tuple[int, str, str]]  # by minute, region and "orders" or "cents"


@dataclass(frozen=True, slots=True)
class Order:
    """An order as it was put; ``topic`` is where it has to be found."""

    number: int
    topic: str
    minute: int
    region: str
    cents: int | None


def read_orders(store: rmqstore.MessageStore) -> dict[int, Order]:
    """Return the orders of a store by number."""
    found = {}
    for batch in store.scan(
        "orders", columns=["keys", "tags", "body", "born_timestamp", "store_timestamp"]
    ).to_batches():
        for row in batch.to_pylist():
            if row["tags"] != CLOSING:
                order = _order(row)
                found[order.number] = order
    return found


def _order(row: dict) -> Order:
    try:
        cents = json.loads(row["body"].decode())["amount"]
    except (ValueError, KeyError):
        cents = None
    late = row["store_timestamp"] - row["born_timestamp"] > LATENESS
    return Order(
        int(row["keys"][0].removeprefix("order-")),
        QUARANTINE if cents is None else LATE if late else CLEAN,
        int(row["born_timestamp"].timestamp() * 1000) // MINUTE,
        row["tags"],
        cents,
    )


def totals_of(orders: Iterable[Order]) -> Totals:
    """Sum up orders by minute and region."""
    totals: Totals = Counter()
    for one in orders:
        totals[one.minute, one.region, "orders"] += 1
        totals[one.minute, one.region, "cents"] += one.cents
    return totals


def totals_of_table(path: Path) -> Totals:
    """Sum up the rows of the table."""
    totals: Totals = Counter()
    for minute, file in _files(path):
        at = int(datetime.fromisoformat(minute).replace(tzinfo=UTC).timestamp()) // 60
        for row in parquet.ParquetFile(file).read().to_pylist():
            for name in ("orders", "cents"):
                totals[at, row["region"], name] += row[name]
    return totals


def _files(path: Path) -> list[tuple[str, Path]]:
    """Return minute and path of each file of the table."""
    if not (path / "_delta_log").exists():
        files = path.glob("minute=*/*.parquet")
        return [(unquote(file.parent.name.removeprefix("minute=")), file) for file in files]
    present = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "remove" in action:
                present.pop(action["remove"]["path"], None)
            if "add" in action:
                present[action["add"]["path"]] = action["add"]["partitionValues"]["minute"]
    return [(minute, path / unquote(name)) for name, minute in present.items()]


def read_topics(path: str) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Return the keys of each topic, and why orders are in quarantine."""
    keys: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    with rmqstore.open(path) as store:
        for topic in TOPICS:
            for message in store.scan(topic):
                keys.update((topic, key) for key in message.keys)
                if topic == QUARANTINE:
                    reasons[message.properties["reason"]] += 1
    return keys, reasons


def print_report(places: Places, put: Mapping[int, Order], lost: set[int], again: range) -> bool:
    """Print what became of the orders; whether each is where it has to be, and once.

    Parameters
    ----------
    places : Places
    put : dict of int to Order
        All orders by number.
    lost : set of int
        Numbers of those that retention removed before they were read.
    again : range
        Minutes that were computed again, with their late orders.
    """
    kept = [one for number, one in put.items() if number not in lost]
    keys, reasons = read_topics(places.routed)
    keys.pop((CLEAN, CLOSING), None)
    routed = keys == Counter((one.topic, f"order-{one.number}") for one in kept)
    counted = [
        one for one in kept if one.topic == CLEAN or (one.topic == LATE and one.minute in again)
    ]
    totals = totals_of_table(Path(places.table))
    summed = totals == totals_of(counted)
    sizes = Counter(topic for topic, _ in keys.elements())
    print(f"{len(put):>9,} orders put")
    print(f"{len(lost):>9,} lost: removed by retention before they were read")
    for topic in TOPICS:
        print(f"{sizes[topic]:>9,} in {topic}")
    print(f"{'':>9} {', '.join(f'{each}: {reasons[each]:,}' for each in sorted(reasons))}")
    recovered = sum(one.topic == LATE for one in counted)
    print(f"{recovered:>9,} late orders added by the backfill of {len(again)} minutes")
    print(f"{sum(totals[each] for each in totals if each[2] == 'orders'):>9,} orders in the totals")
    print("each order once, totals exact" if routed and summed else "NOT EXACT")
    return routed and summed
