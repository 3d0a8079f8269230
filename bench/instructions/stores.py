"""The stores that the calls run on: the same bytes each time, store times included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import rmqstore
import workloads

SIZE = 128
SMALL, LARGE = 4_000, 24_000  # messages of two stores whose difference is counted
FIRST_TIME = 1_700_000_000_000
STEP_MS = 3  # between messages
COPIES = 5  # of a killed store, each to be recovered once

KILLED = (
    "import os, sys\n"
    "from pathlib import Path\n"
    "from instructions import stores\n"
    "store = stores.dispatched(Path(sys.argv[1]), int(sys.argv[2]))\n"
    "store.flush()\n"
    "os._exit(0)\n"
)


def write_log(path: Path, count: int) -> Path:
    """Write the commit log of a store, without queues and index."""
    keys = workloads.keys(LARGE)
    records = [
        rmqstore.encode_record(
            workloads.TOPIC,
            body,
            queue_id=at % workloads.QUEUES,
            queue_offset=at // workloads.QUEUES,
            born_timestamp=FIRST_TIME,
            store_timestamp=FIRST_TIME + STEP_MS * at,
            properties={"KEYS": keys[at], "TAGS": workloads.TAGS[at % 5], "UNIQ_KEY": f"{at:032X}"},
        )
        for at, body in enumerate(workloads.bodies(SIZE, count))
    ]
    path.mkdir(parents=True)
    with rmqstore.CommitLog(path / "commitlog", mode="a") as log:
        log.append(records)
    return path


def dispatched(path: Path, count: int) -> rmqstore.MessageStore:
    """Open a store and wait until its ``count`` messages are in their queues."""
    store = rmqstore.open(path, "r+")
    while sum(store.queue_bounds(workloads.TOPIC, n)[1] for n in range(workloads.QUEUES)) < count:
        time.sleep(0.2)
    return store


def make(folder: Path) -> None:
    """Make all of them below a folder.

    Copies, in which all zeros are holes: how far a writer has prepared a file is a matter of its
    luck, and opening looks through it.
    """
    made = folder / "made"
    dispatched(write_log(made / "closed", LARGE), LARGE).close()
    for count in (SMALL, LARGE):
        write_log(made / f"log-{count}", count)
        killed = write_log(made / f"killed-{count}", count)
        subprocess.run([sys.executable, "-c", KILLED, str(killed), str(count)], check=True)
    for path in made.iterdir():
        copies = range(COPIES) if path.name.startswith("killed-") else ()
        for to in [f"{path.name}-{number}" for number in copies] or [path.name]:
            workloads.copy(path, folder / to)
    workloads.copy(made / f"killed-{SMALL}", folder / "killed-first")
