"""put of 1 KiB by one, two and eight threads, each thread its share of the same messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import rmqstore
import workloads
from scale.rows import Line, median, timed

THREADS = {2: 1.0, 8: 0.85}
SIZE = 1024


def rate(count: int, threads: int) -> float:
    """Return messages a second."""
    rows = workloads.bodies(SIZE, count)
    parts = [rows[number::threads] for number in range(threads)]
    with workloads.fresh_store() as store, ThreadPoolExecutor(threads) as writers:
        store.put(workloads.TOPIC, b"warm", queue_id=0)
        list(writers.map(lambda _: None, range(threads)))
        return count / timed(lambda: list(writers.map(lambda p: put(store, p), parts))).wall


def put(store: rmqstore.MessageStore, rows: list[bytes]) -> None:
    """Put one thread's share."""
    workloads.put_each(store, rows)


def lines(count: int, rounds: int) -> list[Line]:
    """Return the rate of each number of threads relative to one, in turn."""
    rate(count // 4 or 1, 1)
    ratios: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(rounds):
        one = rate(count, 1)
        for threads, found in ratios.items():
            found.append(rate(count, threads) / one)
    return [
        Line(
            f"put by {threads} threads, rate over that of one",
            f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})",
            f">= {THREADS[threads]:g}",
            median(found) >= THREADS[threads],
        )
        for threads, found in ratios.items()
    ]
