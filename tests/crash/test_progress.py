"""Offsets of groups when their process is killed: what was committed with sync is there, always."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import rmqstore

KILLS = 4
WRITER = """
import sys, time, rmqstore
root, seed, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = rmqstore.open(root, "a", config=rmqstore.StoreConfig.small())
store.create_topic("orders", 2)
orders = store.consumer("orders", group="billing")
print("ready", flush=True)
number = 0
while True:
    store.put("orders", b"%d" % number, queue_id=number % 2)
    number += 1
    for message in orders:
        pass
    if how == "sync":
        orders.commit(sync=number % 3 == 0)
    else:
        orders.commit()
        store.clock.advance(6)
        store.housekeeper.run_due()
    if how == "rhythm" or number % 3 == 0:
        print(sum(store.offsets["orders", "billing"].values()), flush=True)
"""


def killed(root: Path, seed: int, how: str) -> int:
    """Return what the writer had committed, and said so, before it was killed."""
    draw = random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(seed), how],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    said = 0
    for _ in range(draw.randrange(1, 60)):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split("\n")[:-1]  # a line that was not ended counts not
    process.wait(30)
    process.stdout.close()
    return max([said, *map(int, rest)])


def test_what_was_committed_is_there(tmp_path: Path) -> None:
    for seed in range(KILLS):
        how = "sync" if seed % 2 else "rhythm"
        root = tmp_path / str(seed)
        for life in range(1 + seed % 2):
            said = killed(root, seed * 7 + life, how)
            with rmqstore.open(root) as reader:
                kept = reader.offsets["orders", "billing"]
                assert sum(kept.values()) >= said
            with rmqstore.open(root, "r+", config=rmqstore.StoreConfig.small()) as store:
                assert store.offsets["orders", "billing"] == kept  # no end was lost
                with store.consumer("orders", group="billing") as orders:
                    left = sum(len(queue) for queue in store["orders"].values())
                    assert len(list(orders)) == left - sum(kept.values())
                    orders.commit(sync=True)
