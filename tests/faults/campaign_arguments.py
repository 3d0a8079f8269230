"""Hostile arguments, handlers, finalizers, threads: every call ends, and all is there later."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import rmqstore
from crash.checks import environment
from faults.campaign_fuzz import sanitized
from faults.framework import Case, Run, campaign
from faults.hostile_calls import CONFIG, DELETED, LIMIT

SECONDS = 6  # of calls, at SCALE=1
SHOWN = 8000  # of what a program said


@campaign("arguments", cases=150, slice=6, memory=True)
def arguments(run: Run) -> None:
    """A program a case, under the sanitizers where there is a build with them."""
    if not run.slice and "RMQSTORE_ASAN_PATH" not in os.environ:
        run.not_run("the sanitizers: RMQSTORE_ASAN_PATH names no build with them")
    unlimited = resource.RLIM_INFINITY  # the sanitizer's own memory is terabytes of addresses
    run.fork(one_program, range(run.cases), seconds=3 * LIMIT, memory=unlimited)


def one_program(case: Case, number: int) -> None:
    root, told = case.scratch / "store", case.scratch / "told"
    seconds = 2 if case.run.slice else SECONDS
    # Every other program is the build itself: it is faster, and has no asserts.
    asan = None if case.run.slice or number % 2 else os.environ.get("RMQSTORE_ASAN_PATH")
    done = subprocess.run(
        [sys.executable, "-m", "faults.hostile_calls",
         str(root), str(told), f"{case.run.seed}-{number}", str(seconds)],
        env=os.environ | sanitized(asan) if asan else environment(),
        capture_output=True,
        check=False,
        text=True,
    )  # fmt: skip
    if "Timeout (" in done.stderr:
        case.violation("hung", done.stderr[-SHOWN:])
    elif done.returncode:
        case.violation("died", f"{done.returncode}: {done.stderr[-SHOWN:]}")
    elif wrong := re.search(r"^(WRONG|.*(runtime error|Sanitizer)).*", done.stderr, re.M | re.S):
        case.violation("error", wrong[0][:SHOWN])
    counted = r"^(calls|closes|signals|acknowledged): (\d+)$"
    for name, count in re.findall(counted, done.stdout, re.M):
        case.note(name, int(count))
    check(case, root, told)


def check(case: Case, root: Path, told: Path) -> None:
    """Each acknowledged message is in the log, and in its queue unless that was deleted."""
    config = rmqstore.StoreConfig(**CONFIG)
    with rmqstore.open(root, "a", config=config, verify="full") as store:
        for line in told.read_text(encoding="utf-8").splitlines():
            topic, queue_id, queue_offset, physical_offset, name = line.split(" ")
            place = topic, int(queue_id), int(queue_offset)
            message: Any = store.at(int(physical_offset))
            if (message.topic, message.queue_id, message.queue_offset) != place:
                case.violation("I1", f"{line}: {message!r}")
            if name not in {"-", message.body.decode(errors="replace")}:
                case.violation("I2", f"{line}: {message.body!r}")
            if topic != DELETED and not store.get(*place, 1).messages:
                case.violation("I3", f"{line} is not in its queue")
