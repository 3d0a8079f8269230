"""Consume queues and index files made from a commit log by the executors.

Source: ``store/DefaultMessageStore.java ReputMessageService``, done by many processes at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rmqstore import _core, opening, paths
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreLockedError
from rmqstore.locking import locked
from rmqstore.spark.log_ranges import (
    LogPlan,
    RangeReport,
    RangesOverlapError,
    check_meeting,
    plan_log,
)
from rmqstore.spark.mapping import mapped
from rmqstore.spark.options import absolute_path
from rmqstore.spark.queue_files import join_queues
from rmqstore.spark.rebuild_tasks import ENTRIES, ROWS, Task, Work, Written, collect, spread
from rmqstore.syncing import sync_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RebuildResult", "rebuild"]

Mode = Literal["direct", "shuffle"]

_TASKS_BEHIND, _TASK_QUEUES = 16, 200
_JOBS = ".spark"  # below the store, as for all our jobs


@dataclass(frozen=True)
class RebuildResult:
    """What :func:`rebuild` made.

    Attributes
    ----------
    messages : int
        Records of the log.
    units : int
        Those of them that a queue has.
    queues : int
        Queues that were made.
    index_entries, index_files : int
    skipped : int
        Records whose topic or queue cannot be, or whose queue offset cannot be believed.
    bytes : int
        Of the log.
    workers : int
        Processes that read the log.
    seconds : float
        From the call to the return.

    Notes
    -----
    Source: none.
    """

    messages: int
    units: int
    queues: int
    index_entries: int
    index_files: int
    skipped: int
    bytes: int
    workers: int
    seconds: float


def rebuild(
    spark: SparkSession,
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    mode: Mode = "direct",
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    range_bytes: int | None = None,
) -> RebuildResult:
    """Make the consume queues and the index files of a store from its commit log.

    The executors read the log and write the files, which are those that opening the store for
    writing would make, byte for byte. On a failure nothing is left.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect. Its workers need the same file system.
    src : path-like
        Directory of the store. It is only read.
    dst : path-like
        Where ``consumequeue`` and ``index`` are made: a directory that has neither, or that is
        not there yet. The store itself, if both are missing in it: it is locked meanwhile.
    mode : str, optional
        ``"direct"``: each task writes units at their places. ``"shuffle"``: units go through
        Spark, and a queue is written by one task and gets its name when it is whole; for file
        systems on which not every node may write to the same file.
    config : StoreConfig or path of a broker.conf, optional
        For the sizes of the files to be made and the delay levels. Without one sizes are told
        from the queues and the index that ``src`` has, else RocketMQ's defaults hold.
    range_bytes : int, optional
        Bytes of the log for a task to read; by default 8 to 128 MiB, a 32nd of it.

    Returns
    -------
    RebuildResult

    Raises
    ------
    StoreNotFoundError
        There is no store at ``src``.
    StoreCorruptError
        A record does not check, and others lie behind it.
    StoreLockedError
        ``dst`` is the store itself, and it is open for writing.
    IncompatibleStoreError
        There are records of RocketMQ 5.
    FileExistsError
        ``dst`` has consume queues or an index.
    ValueError, TypeError
        An argument is not what it may be.

    Notes
    -----
    A store that is being written to while its log is read is rebuilt up to somewhere behind its
    end as of the call.
    Source: ``store/DefaultMessageStore.java ReputMessageService``, ``CommitLogDispatcher``.
    """
    began = time.monotonic()
    if mode not in ("direct", "shuffle"):
        raise ValueError(f"argument 'mode' is {mode!r}; it may be one of 'direct', 'shuffle'")
    source = absolute_path("argument 'src'", src)
    target = absolute_path("argument 'dst'", dst)
    if target != source and Path(target).is_relative_to(source):
        raise ValueError(f"argument 'dst' is {target!r}, which is within 'src'")
    settings = _sizes_told(source) if config is None else configuration(config)
    plan = plan_log(source, settings, range_bytes=range_bytes)
    for name in (paths.CONSUME_QUEUE, paths.INDEX):
        if os.path.lexists(Path(target, name)):
            raise FileExistsError(errno.EEXIST, "it is there already", str(Path(target, name)))
    with contextlib.ExitStack() as held:
        if Path(target).is_dir() and Path(target).samefile(source):
            _lock(source, held)
        directory = held.enter_context(_job_directory(Path(target)))
        try:
            counts = _run(spark, plan, mode, directory)
        except RangesOverlapError:
            counts = _run(spark, plan.by_files(), mode, directory)
        _put_in_place(directory, Path(target))
    return RebuildResult(**counts, seconds=time.monotonic() - began)


def configuration(config: StoreConfig | str | os.PathLike[str] | None) -> StoreConfig:
    """Return the configuration that a job was given."""
    if config is None or isinstance(config, StoreConfig):
        return config or StoreConfig()
    if not isinstance(config, (str, os.PathLike)):
        raise TypeError(
            f"argument 'config' is {config!r}; it may be a StoreConfig or the path of a broker.conf"
        )
    return StoreConfig.from_file(config)


# ---- the driver


def _sizes_told(source: str) -> StoreConfig:
    """Return the sizes of a store's own queue and index files, if it has some."""
    if not any(Path(source, name).is_dir() for name in (paths.CONSUME_QUEUE, paths.INDEX)):
        return StoreConfig()
    with opening.open(source) as store:
        return store.config


def _lock(path: str, held: contextlib.ExitStack) -> None:
    try:
        held.enter_context(locked(path, 0))
    except StoreLockedError:
        raise StoreLockedError(f"{path}: the store is open for writing elsewhere") from None


@contextlib.contextmanager
def _job_directory(target: Path) -> Iterator[Path]:
    """Make the directory that everything is made in; on failure all of it goes again."""
    missing = [path for path in (target, *target.parents) if not path.exists()]
    directory = target / _JOBS / f"rebuild-{uuid.uuid4().hex}"
    directory.mkdir(parents=True)
    done = False
    try:
        yield directory
        done = True
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for path in [target / _JOBS] if done else [target / _JOBS, *missing]:
            with contextlib.suppress(OSError):  # another job's
                path.rmdir()


def _put_in_place(directory: Path, target: Path) -> None:
    """Give the files the names that a store has."""
    index = target / paths.INDEX
    if any((directory / paths.INDEX).iterdir()):
        (directory / paths.INDEX).rename(index)
    try:
        (directory / paths.CONSUME_QUEUE).rename(target / paths.CONSUME_QUEUE)
    except BaseException:
        shutil.rmtree(index, ignore_errors=True)
        raise
    sync_path(target)


def _run(spark: SparkSession, plan: LogPlan, mode: Mode, directory: Path) -> dict[str, int]:
    """Make all files below ``directory``; what :class:`RebuildResult` has of it."""
    for folder in (paths.CONSUME_QUEUE, paths.INDEX, ENTRIES):
        shutil.rmtree(directory / folder, ignore_errors=True)
        (directory / folder).mkdir()
    work = Work(plan, str(directory))
    scan = work.scan_direct if mode == "direct" else work.scan_blobs
    scanned = spread(spark, plan.count, scan, plan.tasks)
    if mode == "shuffle":
        scanned = scanned.repartition("topic", "queue_id")
        scanned = scanned.sortWithinPartitions("topic", "queue_id", "position")
        scanned = mapped(scanned, work.write_blobs, ROWS)
    found = list(collect(scanned)) if plan.count else []
    reports = sorted((one for one in found if isinstance(one, RangeReport)), key=_number)
    check_meeting(plan, reports)
    written = [one for one in found if isinstance(one, Written)]
    _raise_errors(written)
    index_jobs = work.index_jobs(reports)
    for job in index_jobs:
        work.outline_index(job)
    tasks = [
        Task("index", (job, (which, job.shares)))
        for job in index_jobs
        for which in range(job.shares)
    ]
    queues = {queue for one in written for queue in one.queues}
    if mode == "direct":
        queues, fills, disordered = join_queues((one.queues for one in reports), work.units_a_file)
        for topic, queue_id in disordered:
            shutil.rmtree(Path(directory, paths.CONSUME_QUEUE, topic, str(queue_id)))
        tasks += [Task("in_order", frozenset(disordered))] if disordered else []
        tasks += [Task("fill", some) for some in _parts(fills)]
        tasks += [Task("sync", some) for some in _parts(sorted(queues - disordered))]
    else:
        tasks += [Task("sync", some) for some in _parts(sorted(queues))]
    if tasks:
        behind = min(len(tasks), _TASKS_BEHIND)
        written += collect(spread(spark, len(tasks), partial(work.run_task, tasks), behind))
    _raise_errors(written)
    slots_used: Counter[int] = Counter()
    for one in written:
        slots_used.update(one.slots_used)
    _name_index_files(
        directory / paths.INDEX,
        {job.number: work.outline_index(job, slots_used[job.number]) for job in index_jobs},
    )
    sync_path(directory / paths.INDEX)
    skipped = sum(one.skipped for one in written)
    return {
        "messages": sum(one.records for one in reports),
        "units": sum(one.units for one in reports) - skipped,
        "queues": len(queues),
        "index_entries": sum(one.keys for one in reports),
        "index_files": len(index_jobs),
        "skipped": sum(one.skipped for one in reports) + skipped,
        "bytes": sum(one.bytes for one in reports),
        "workers": len({one.process for one in reports}),
    }


def _raise_errors(written: Iterable[Written]) -> None:
    for one in written:
        if one.error is not None:
            raise one.error


def _parts(work: list[Any]) -> list[list[Any]]:
    """Split what is to be done into tasks that are worth one each."""
    count = min(-(-len(work) // _TASK_QUEUES), _TASKS_BEHIND)
    return [work[at::count] for at in range(count)]


def _number(report: RangeReport) -> int:
    return report.number


def _name_index_files(directory: Path, begin_timestamps: dict[int, int]) -> None:
    """Name them by the time of their first key, as the store does by that of their making."""
    last = None
    for number, begin_timestamp in sorted(begin_timestamps.items()):
        last = _core.next_index_name(last, begin_timestamp)
        (directory / str(number)).rename(directory / last)
