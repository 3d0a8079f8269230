"""The jobs with their goals: on a sparse store, on a whole log, and on a part of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import rmqstore
import workloads
from scale import growth, sparse
from scale.rows import Took
from verbs.rows import Goal, Job
from verbs.running import Run, run, verb, work
from verbs.work import ABSENT, used_bytes
from versus.real import RealStore

BODY = 1024
RECORD = 1226  # bytes of such a message with a key and its unique key
PARTS = 5  # of the log: where there have to be two stores, or all columns in memory
PYTHON = "an empty Python"
XXH3, FIND = "xxh3 of the files, 2 processes", "find in the files, 2 processes"

VERIFY, INFO = "verify, sparse", "info, sparse"
FULL, GREP, DU, INFO_WHOLE, REBUILD = "verify --full", "grep -F", "du --by topic", "info", "rebuild"
DIFF, EXPORT = "diff --full of equal stores", "export to Parquet"

OF_SUMS = Goal("0.8 of it", ratio=0.8)
INFO_GOAL = Goal("<= 150 ms", most=150)
GOALS = {
    VERIFY: Goal("<= 1 s", most=1),
    INFO: INFO_GOAL,
    FULL: OF_SUMS,
    GREP: OF_SUMS,
    DU: Goal(">= 100 M a second of a core", least=100),
    INFO_WHOLE: INFO_GOAL,
    REBUILD: Goal("5 times it", ratio=5),
    DIFF: OF_SUMS,
    EXPORT: OF_SUMS,
}
SPARSE, WHOLE, PART = (VERIFY, INFO), (FULL, GREP, DU, INFO_WHOLE, REBUILD), (DIFF, EXPORT)


def python() -> Run:
    """Start and end the interpreter."""
    return run([sys.executable, "-c", "pass"])


def seconds(wall: float, cpu: float) -> float:
    """Return the seconds by the clock."""
    return wall


def millis(wall: float, cpu: float) -> float:
    """Return the milliseconds by the clock."""
    return wall * 1000


def per_second(amount: float) -> Callable[[float, float], float]:
    """Return the function of how many were done in a second."""
    return lambda wall, cpu: amount / wall


def on_sparse(folder: Path, gib: int) -> Iterator[Job]:
    """Yield the jobs whose time is not to grow with the store."""
    store = sparse.write(folder / "sparse", gib)
    with rmqstore.open(store, "r+") as opened:  # else a broker does not know the topic
        opened.create_topic(workloads.TOPIC, workloads.QUEUES)
    for name, word, figure, unit in (
        (VERIFY, "verify", seconds, "s"),
        (INFO, "info", millis, "ms"),
    ):
        yield Job(name, GOALS[name], partial(verb, word, store), PYTHON, python, figure, unit)
    shutil.rmtree(store)


def on_whole(folder: Path, gib: float) -> Iterator[Job]:
    """Yield the jobs that read all of a log."""
    count = int(gib * (1 << 30)) // RECORD
    store = folder / "store"
    growth.write(store, count, BODY)
    log, queues, index = (files(store, name) for name in ("commitlog", "consumequeue", "index"))
    every = [*log, *queues, *index]
    yield Job(
        FULL,
        GOALS[FULL],
        partial(verb, "verify", store, "--full"),
        XXH3,
        partial(work, "read", "xxh3", 2, *every),
        per_second(gigabytes(every)),
        "GB/s",
    )
    yield Job(
        GREP,
        GOALS[GREP],
        partial(verb, "grep", store, "-F", ABSENT, codes=(1,)),
        FIND,
        partial(work, "read", "find", 2, *log),
        per_second(gigabytes(log)),
        "GB/s",
    )
    yield Job(
        DU,
        GOALS[DU],
        partial(work, "du", store),
        "xxh3 of the queues, 1 process",
        partial(work, "read", "xxh3", 1, *queues),
        lambda wall, cpu: count / cpu / 1e6,
        "M a second of a core",
    )
    yield Job(
        INFO_WHOLE, GOALS[INFO_WHOLE], partial(verb, "info", store), PYTHON, python, millis, "ms"
    )
    yield Job(
        REBUILD,
        GOALS[REBUILD],
        partial(rebuild, store),
        "start of the real store",
        partial(real_start, store),
        per_second(count / 1e6),
        "M messages a second",
    )
    shutil.rmtree(store)


def on_part(folder: Path, gib: float) -> Iterator[Job]:
    """Yield the jobs for which a second store or the columns must have room as well."""
    count = int(gib * (1 << 30)) // RECORD // PARTS
    store = folder / "part"
    growth.write(store, count, BODY)
    other, file = workloads.copy(store, folder / "copy"), folder / "messages.parquet"
    logs = [*files(store, "commitlog"), *files(other, "commitlog")]
    yield Job(
        DIFF,
        GOALS[DIFF],
        partial(verb, "diff", store, other, "--full"),
        XXH3,
        partial(work, "read", "xxh3", 2, *logs),
        per_second(gigabytes(logs)),
        "GB/s",
    )

    def written(what: str) -> Run:
        file.unlink(missing_ok=True)
        return work(what, store, file)

    yield Job(
        EXPORT,
        GOALS[EXPORT],
        partial(written, "export"),
        "write_table of pyarrow",
        partial(written, "parquet"),
        per_second(count / 1e6),
        "M messages a second",
    )


def files(store: Path, name: str) -> list[Path]:
    """Return the files of a part of a store."""
    return sorted(one for one in (store / name).rglob("*") if one.is_file())


def gigabytes(paths: list[Path]) -> float:
    """Return the bytes in use of files, 10^9 a unit."""
    return sum(map(used_bytes, paths)) / 1e9


def forget(store: Path) -> None:
    """Leave of a store what a rebuild and a start of the real store begin with: its log, closed."""
    workloads.forget_dispatch(store)
    (store / "abort").unlink(missing_ok=True)
    for journal in store.glob("rmqstore-repair-*"):
        shutil.rmtree(journal)


def rebuild(store: Path) -> Run:
    """Build the queues and the index from the log."""
    forget(store)
    return verb("rebuild", store, "--apply")


def real_start(store: Path) -> Took:
    """Have the real store build them, in a JVM that is up; it is killed, so it writes no more."""
    forget(store)
    with RealStore() as real:
        done = real.round("open", dir=store)
    assert done.cpu_ns is not None
    return Took(done.ns / 1e9, done.cpu_ns / 1e9)
