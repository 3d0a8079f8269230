"""Consume queues and index files, made from a commit log by the executors.

Source: ``store/DefaultMessageStore.java ReputMessageService``, done by many processes at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqstore import opening
from rmqstore.base.arguments import wrong_type, wrong_value
from rmqstore.base.syncing import sync_path
from rmqstore.config.file_sizes import sizes_left_open, with_sizes_of
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import surroundings, without_paths
from rmqstore.errors import StoreLockedError
from rmqstore.files import paths
from rmqstore.offline import (
    Build,
    BuildTotals,
    LogPlan,
    RangeReport,
    RangesOverlapError,
    StepReport,
    check_contiguous,
    plan_log,
)
from rmqstore.offline.locking import locked
from rmqstore.spark.common.options import absolute_path
from rmqstore.spark.common.side_files import IN_STORE, new_name
from rmqstore.spark.common.sight import SeenStore, seen
from rmqstore.spark.jobs.arrow_map import mapped
from rmqstore.spark.jobs.rebuild_tasks import ROWS, RebuildTasks, collect, spread
from rmqstore.spark.jobs.tasks import task_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RebuildResult", "rebuild"]

Mode = Literal["direct", "shuffle"]

_TASKS_BEHIND = 16


@dataclass(frozen=True)
class RebuildResult:
    """Result of :func:`rebuild`.

    Attributes
    ----------
    messages : int
        Records in the log.
    units : int
        Records with a unit in a queue.
    queues : int
        Queues made.
    index_entries, index_files : int
    skipped : int
        Records with an impossible topic or queue, or an implausible queue offset.
    bytes : int
        Size of the log.
    workers : int
        Processes that read the log.
    seconds : float
        Duration of the call.
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

    The executors read the log and write the files, with the same bytes as opening the store for
    writing would. After a failure nothing is left.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect. Its workers need the same file system.
    src : path-like
        Directory of the store, which is only read.
    dst : path-like
        Parent of the new ``consumequeue`` and ``index``: a directory without either, or a new
        path. If both are missing there, the store itself, which is locked meanwhile.
    mode : str, optional
        ``"direct"``: each task writes units at their positions. ``"shuffle"``: units go through
        Spark, and one task writes a queue, which is renamed when complete; for file systems where
        not every node may write to the same file.
    config : StoreConfig or path of a broker.conf, optional
        Sizes of the files to make, and delay levels. Unset sizes are inferred from the queues and
        the index of ``src``, else RocketMQ's defaults apply.
    range_bytes : int, optional
        Bytes of the log per task; by default a 32nd of it, within 8 to 128 MiB.

    Returns
    -------
    RebuildResult

    Raises
    ------
    StoreNotFoundError
        No store at ``src``.
    StoreCorruptError
        A record is invalid, and others follow it.
    StoreLockedError
        ``dst`` is the store itself, and it is open for writing.
    IncompatibleStoreError
        The log has records of RocketMQ 5.
    FileExistsError
        ``dst`` has consume queues or an index.
    ValueError, TypeError
        An argument has a wrong type or value.

    Notes
    -----
    If the store is written to meanwhile, it is rebuilt up to some point after its end at the
    time of the call.
    Source: ``store/DefaultMessageStore.java ReputMessageService``, ``CommitLogDispatcher``.
    """
    began = time.monotonic()
    if mode not in ("direct", "shuffle"):
        raise wrong_value("mode", "one of 'direct', 'shuffle'", mode)
    source = absolute_path("src", src)
    target = absolute_path("dst", dst)
    if target != source and Path(target).is_relative_to(source):
        raise ValueError(f"dst must not be within src, got {target!r}")
    if target != source and (around := surroundings(target)) is not None:
        raise ValueError(f"dst must not be within {around}, got {target!r}")
    settings = settings_of(config, source)
    plan = plan_log(source, settings, range_bytes=range_bytes)
    for name in (paths.CONSUME_QUEUE, paths.INDEX):
        if os.path.lexists(Path(target, name)):
            raise FileExistsError(errno.EEXIST, "it is there already", str(Path(target, name)))
    with contextlib.ExitStack() as held:
        if Path(target).is_dir() and Path(target).samefile(source):
            _lock(source, held)
        directory = held.enter_context(_job_directory(Path(target)))
        try:
            made = _run(spark, plan, mode, directory)
        except RangesOverlapError:
            made = _run(spark, plan.by_files(), mode, directory)
        _put_in_place(directory, Path(target))
    return RebuildResult(
        messages=made.messages,
        units=made.units,
        queues=made.queues,
        index_entries=made.index_entries,
        index_files=made.index_files,
        skipped=made.skipped,
        bytes=made.bytes,
        workers=made.processes,
        seconds=time.monotonic() - began,
    )


def configuration(config: StoreConfig | str | os.PathLike[str] | None) -> StoreConfig:
    """Return a job's configuration; tasks read the log in the store's own directory."""
    if config is None or isinstance(config, StoreConfig):
        return without_paths(config or StoreConfig())
    if not isinstance(config, (str, os.PathLike)):
        raise wrong_type("config", "StoreConfig or the path of a broker.conf", config)
    return without_paths(StoreConfig.from_file(config))


def settings_of(config: StoreConfig | str | os.PathLike[str] | None, source: str) -> StoreConfig:
    """Return a configuration, with unset sizes inferred from the queue and index files."""
    chosen = configuration(config)
    derived = (paths.CONSUME_QUEUE, paths.INDEX)
    if not sizes_left_open(chosen) or not any(Path(source, name).is_dir() for name in derived):
        return chosen
    return with_sizes_of(chosen, opening.config_in_force(source, None))


# ---- the driver


def _lock(path: str, held: contextlib.ExitStack) -> None:
    try:
        held.enter_context(locked(path, 0))
    except StoreLockedError:
        raise StoreLockedError(
            f"{path}: the store is open for writing elsewhere: close it there first"
        ) from None


@contextlib.contextmanager
def _job_directory(target: Path) -> Iterator[Path]:
    """Make a directory for all files; removed at the end, with its new parents on failure."""
    missing = [path for path in (target, *target.parents) if not path.exists()]
    directory = target / IN_STORE / f"rebuild-{new_name()}"
    directory.mkdir(parents=True)
    done = False
    try:
        yield directory
        done = True
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for path in [target / IN_STORE] if done else [target / IN_STORE, *missing]:
            with contextlib.suppress(OSError):  # another job's
                path.rmdir()


def _put_in_place(directory: Path, target: Path) -> None:
    index = target / paths.INDEX
    if any((directory / paths.INDEX).iterdir()):
        (directory / paths.INDEX).rename(index)
    try:
        (directory / paths.CONSUME_QUEUE).rename(target / paths.CONSUME_QUEUE)
    except BaseException:
        shutil.rmtree(index, ignore_errors=True)
        raise
    sync_path(target)


def _run(spark: SparkSession, plan: LogPlan, mode: Mode, directory: Path) -> BuildTotals:
    build = Build(plan, str(directory))
    build.create()
    work = RebuildTasks(build, (seen(plan.path), SeenStore(str(directory))))
    scan = work.scan_direct if mode == "direct" else work.scan_rows
    scanned = spread(spark, plan.count, scan, task_count(plan))
    if mode == "shuffle":
        scanned = scanned.repartition("topic", "queue_id")
        scanned = scanned.sortWithinPartitions("topic", "queue_id", "position")
        scanned = mapped(scanned, work.write_rows, ROWS)
    found = collect(scanned) if plan.count else []
    reports = sorted((one for one in found if isinstance(one, RangeReport)), key=_number)
    done = [one for one in found if isinstance(one, StepReport)]
    if mode == "direct":
        steps = build.steps(reports)
    else:
        check_contiguous(plan, reports)
        queues = [queue for one in done for queue in one.queues]
        steps = build.index_steps(reports) + build.sync_steps(queues)
    if steps:
        behind = min(len(steps), _TASKS_BEHIND)
        done += collect(spread(spark, len(steps), partial(work.run_step, steps), behind))
    return build.finish(reports, done)


def _number(report: RangeReport) -> int:
    return report.number
