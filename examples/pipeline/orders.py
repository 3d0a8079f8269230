"""Orders for the pipeline: most are good, some late, some poison.

The store's clock is moved along with the orders' own, which runs faster than ours: store time less
born time is then the lateness of an order, and retention has hours to choose from.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import rmqstore
from rmqstore.config.store_config import StoreConfig

REGIONS = ("africa", "america", "asia", "europe", "oceania")
MINUTE = 60_000  # ms
FIRST_MINUTE = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTES_A_SECOND = 1.0  # of the orders' clock
CHUNK = 500  # orders a put
CONFIG = StoreConfig.small(mapped_file_size_commit_log=1 << 18)  # retention removes whole files
CLOSING = "closing"  # the region of the message that closes all minutes


@dataclass(frozen=True)
class Run:
    """Orders of consecutive numbers, spread over consecutive minutes."""

    first: int
    orders: int
    first_minute: int
    minutes: int

    def chunks(self) -> Iterator[tuple[range, int]]:
        """Return the numbers of each put, and the store's time after it."""
        for first in range(0, self.orders, CHUNK):
            stop = min(first + CHUNK, self.orders)
            passed = self.minutes * MINUTE * stop // self.orders
            yield (
                range(self.first + first, self.first + stop),
                FIRST_MINUTE + self.first_minute * MINUTE + passed,
            )


def put_run(store: rmqstore.MessageStore, run: Run, *, paced: bool = False) -> None:
    """Put the orders of a run, at the pace of their clock if ``paced``."""
    chance = random.Random(run.first)
    began = time.monotonic()
    start = FIRST_MINUTE + run.first_minute * MINUTE
    for numbers, now in run.chunks():
        store.clock.advance((now - store.clock.now()) / 1000)
        table = {
            "topic": ["orders"] * len(numbers),
            "body": [body(number, chance) for number in numbers],
            "tags": chance.choices(REGIONS, (1, 4, 6, 5, 1), k=len(numbers)),
            "keys": [[f"order-{number}"] for number in numbers],
            "born_timestamp": pa.array(
                [now - delay(chance) for _ in numbers], pa.timestamp("ms", "UTC")
            ),
        }
        store.put_table(pa.table(table))
        due = (now - start) / MINUTE / MINUTES_A_SECOND
        if paced and (ahead := due - (time.monotonic() - began)) > 0:
            time.sleep(ahead)


def body(number: int, chance: random.Random) -> bytes:
    """Return the body of an order; one in a hundred is poison."""
    text = json.dumps({"order": number, "amount": chance.randint(100, 50_000)})
    if chance.random() >= 0.01:
        return text.encode()
    return chance.choice((text[:-5].encode(), b"\xff\xfe" + text.encode(), b'{"order": 0}'))


def delay(chance: random.Random) -> int:
    """Return ms from birth to store: seconds, minutes within the lateness, or too many."""
    kind = chance.random()
    if kind < 0.02:
        return chance.randint(11 * MINUTE, 60 * MINUTE)
    return chance.randint(0, 9 * MINUTE if kind < 0.05 else MINUTE // 2)


def put_closing(store: rmqstore.MessageStore) -> float:
    """Put a message of a later hour; return the watermark, in seconds, of all minutes closed.

    Its own minute stays open, so that no total has to leave it out.
    """
    at = store.clock.now() + 120 * MINUTE
    closing = json.dumps({"order": -1, "amount": 0}).encode()
    store.put("orders", closing, tags=CLOSING, keys=CLOSING, born_timestamp=at)
    return at / 1000 - 3600


if __name__ == "__main__":  # the process beside Spark
    with rmqstore.open(Path(sys.argv[1]), "a", config=CONFIG) as opened:
        put_run(opened, Run(*map(int, sys.argv[2:6])), paced=True)
