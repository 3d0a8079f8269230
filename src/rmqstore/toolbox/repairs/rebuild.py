"""Queues and index of a store made anew from its log."""

from __future__ import annotations

import errno
import operator
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, SupportsIndex

from rmqstore import _core, opening
from rmqstore.base import layout
from rmqstore.base.arguments import wrong_type, wrong_value
from rmqstore.base.syncing import sync_file, sync_path
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import find_directory, log_file
from rmqstore.errors import StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import absolute
from rmqstore.files.regular import open_regular
from rmqstore.offline.locking import locked
from rmqstore.offline.log_writer import seal_store
from rmqstore.offline.queues import join_queues, sync_queues
from rmqstore.offline.ranges import LogPlan, plan_log
from rmqstore.offline.start_files import listed, relative
from rmqstore.store import MessageStore
from rmqstore.toolbox.checks.file_checks import known_of_checkpoint, tree_of
from rmqstore.toolbox.repairs.access import refuse, unreadable, unwritable_files
from rmqstore.toolbox.repairs.derived import (
    Derived,
    build_into,
    check_derived,
    keep_old_units,
    missing_derived,
    without_unclean,
)
from rmqstore.toolbox.repairs.journal import Journal, undo_unfinished
from rmqstore.toolbox.repairs.repair_lost import lost_records
from rmqstore.toolbox.repairs.repair_places import LogPlaces

__all__ = ["Rebuilt", "make_derived", "read_config", "rebuild", "seal", "threads", "whole_plan"]

Config = StoreConfig | str | os.PathLike[str] | None

_JOBS_MOST = 256
_TAIL_MOST = 64 << 20
_DERIVED = (f"{paths.CONSUME_QUEUE}/", f"{paths.INDEX}/")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """File of a queue or of the index.

    Attributes
    ----------
    rebuilt : {"queue", "index"}
    file : str
        Relative to the store.
    count : int
        Units or entries that the log gives it.
    same : bool
        It is as the log has it, and stays.
    """

    rebuilt: Literal["queue", "index"]
    file: str
    count: int
    same: bool


def rebuild(
    path: str | os.PathLike[str],
    *,
    queues: bool = True,
    index: bool = True,
    jobs: SupportsIndex | None = None,
    apply: bool = False,
    config: Config = None,
) -> list[Rebuilt]:
    """Make the consume queues and the index of a stopped store anew, where they are wrong.

    Every file is compared with the log. With ``apply``, those that differ are replaced by what a
    4.9.3 broker would build; the old ones are in a journal, see :func:`repair`. Units of records
    that retention removed stay, and so do queues that are right; the index is replaced whole.
    Queues of deleted topics are not brought back; that a broker deleted one is known after a clean
    exit, while any queue has a file. ``consumequeue_ext`` stays: units of replaced files have the
    tags code itself, not an address in it.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    queues, index : bool, optional
        The parts to compare.
    jobs : int, optional
        Threads; by default one a core.
    apply : bool, optional
        Replace the files; by default they are only compared. No service runs meanwhile.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`. Sizes are those of the files.

    Returns
    -------
    list of Rebuilt
        Every file, also a missing one; ``same`` as it was before.

    Raises
    ------
    StoreCorruptError
        A record of the log is damaged, and others follow: :func:`repair` fills it.
    StoreLockedError
        The store is open for writing elsewhere; with ``apply``.
    StoreNotFoundError
        No store.
    IncompatibleStoreError
        The log has records of RocketMQ 5; a DLedger store.
    OSError
        Reading or writing fails; the store is as it was.
    ValueError, TypeError
        An argument has a wrong type or value.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java ReputMessageService``.
    """
    count = threads(jobs)
    root = Path(absolute(path))
    find_directory(str(root))
    config = read_config(config)
    with ExitStack() as held:
        log = LogPlaces.of(root, config).paths
        if apply:
            held.enter_context(locked(str(root), 0.0))
            undo_unfinished(root, log)
        tree = tree_of(root, log)
        refuse(root, unreadable(root, tree))
        plan = whole_plan(root, config)
        of_log = tuple(f"{relative(root, one)}/" for one in log)
        for name, reason in tree.broken:
            if f"{name}/".startswith((*of_log, *_DERIVED)):
                message = f"{reason}: mount its disk, or remove the link"
                raise FileNotFoundError(errno.ENOENT, message, name)
        found = None
        if not (apply and queues and index and _has_none(plan)):
            found = check_derived(plan, count, index=index)
            rows = list(_rows(root, plan, found, queues=queues, index=index))
        if found is None or (apply and not all(one.same for one in rows)):
            changed = [] if found is None else [one.file for one in rows if not one.same]
            refuse(root, unwritable_files(root, [paths.CHECKPOINT, *changed]))
            journal = Journal.create(root, log)
            try:
                if found is None:
                    found = _make_missing(journal, plan, count)
                    rows = list(_rows(root, plan, found, queues=queues, index=index))
                    if not rows:  # a log without a record
                        journal.undo()
                        return rows
                else:
                    make_derived(journal, plan, found, count, queues=queues, index=index)
                seal(journal, root, config)
                journal.finish()
            except BaseException:
                journal.undo()
                raise
    return rows


def threads(jobs: SupportsIndex | None) -> int:
    """Return the number of threads, by default one a core."""
    if jobs is None:
        return max(1, min(_JOBS_MOST, len(os.sched_getaffinity(0))))
    if isinstance(jobs, bool) or not hasattr(jobs, "__index__"):
        raise wrong_type("jobs", "int", jobs)
    count = operator.index(jobs)
    if not 1 <= count <= _JOBS_MOST:
        raise wrong_value("jobs", f"1 to {_JOBS_MOST}", count)
    return count


def read_config(config: Config) -> StoreConfig | None:
    """Return a configuration, of a broker.conf if that is given."""
    if config is None or isinstance(config, StoreConfig):
        return config
    return StoreConfig.from_file(config)


def whole_plan(root: Path, config: StoreConfig | None) -> LogPlan:
    """Return the plan of a store's log with a range for each file, and the files' own sizes.

    Raises ``StoreNotFoundError`` if the log lacks files, and one of several directories has none.
    """
    plan = without_unclean(plan_log(root, opening.config_in_force(str(root), config))).by_files()
    places = LogPlaces.of(root, config)
    empty = next((one for one in places.paths if not LogPlaces.is_used(one)), None)
    if empty is None or len(places.paths) == 1:
        return plan
    starts, size = places.starts(), plan.file_size
    stop = starts[-1] + size
    lost = next(lost_records(root, stop, stop + size), None)
    if lost is not None or len(starts) < (stop - starts[0]) // size:
        raise StoreNotFoundError(
            f"{empty}: there is no log file, and the log lacks some: is its disk mounted? A "
            "directory that is new has to be left out of the broker.conf until the log is mended"
        )
    return plan


def _rows(
    root: Path, plan: LogPlan, found: Derived, *, queues: bool, index: bool
) -> Iterator[Rebuilt]:
    """Yield the files of the queues and of the index."""
    for key in sorted(found.queues) if queues else ():
        state = found.queues[key]
        place = f"{paths.CONSUME_QUEUE}/{key[0]}/{key[1]}"
        for start in sorted({*state.units, *state.bad, *state.surplus}):
            same = start not in state.bad and start not in state.surplus
            file = f"{place}/{paths.offset_file_name(start)}"
            yield Rebuilt("queue", file, max(0, state.units.get(start, 0)), same)
    if not index:
        return
    for name, count in found.index.items():
        yield Rebuilt("index", f"{paths.INDEX}/{name}", count, found.index_same)
    if not found.index and not found.index_same:
        yield Rebuilt("index", paths.INDEX, found.keys, False)


def make_derived(
    journal: Journal,
    plan: LogPlan,
    found: Derived,
    jobs: int,
    *,
    queues: bool = True,
    index: bool = True,
) -> dict[str, str]:
    """Replace the files that differ from the log by new ones; return where each old one is."""
    made = journal.directory / "built"
    made.mkdir()
    queues = queues and any(one.bad or one.surplus for one in found.queues.values())
    index = index and not found.index_same
    if not queues and not index:
        return {}
    build = without_unclean(plan_log(plan.path, plan.config))
    if not index:
        config = plan.config.replace(message_index_enable=False)
        build = without_unclean(plan_log(plan.path, config))
    build_into(build, made, jobs)
    saved = _replace_queues(journal, plan, found, made) if queues else {}
    if index:
        _replace_index(journal, made)
        saved[paths.INDEX] = journal.directory.name
    return saved


def _has_none(plan: LogPlan) -> bool:
    """Whether a store with a log has no queue and no index: there is nothing to compare."""
    made = any(listed(Path(plan.path, name)) for name in (paths.CONSUME_QUEUE, paths.INDEX))
    return not made and any(listed(one) for one in plan.directories)


def _make_missing(journal: Journal, plan: LogPlan, jobs: int) -> Derived:
    """Make all files of a store that has none of them, in one pass over the log."""
    made = journal.directory / "built"
    made.mkdir()
    build = without_unclean(plan_log(plan.path, plan.config))
    reports = build_into(build, made, jobs)
    # The reports do not show which records of a queue out of order have no unit.
    *_, disordered = join_queues(
        reports, plan.config.mapped_file_size_consume_queue // layout.UNIT_BYTES
    )
    found = check_derived(plan, jobs) if disordered else missing_derived(plan, reports)
    sync_queues(made / paths.CONSUME_QUEUE, found.queues)
    for topic in sorted({topic for topic, _ in found.queues}):  # a file each takes a sync each
        name = f"{paths.CONSUME_QUEUE}/{topic}"
        journal.make_directory(paths.CONSUME_QUEUE)
        journal.place(name, relative(journal.root, made / name))
    if not found.index_same:
        _replace_index(journal, made)
    return found


def _replace_queues(journal: Journal, plan: LogPlan, found: Derived, made: Path) -> dict[str, str]:
    saved = {}
    for key, state in sorted(found.queues.items()):
        place = f"{paths.CONSUME_QUEUE}/{key[0]}/{key[1]}"
        for start in sorted(state.bad | state.surplus):
            name = f"{place}/{paths.offset_file_name(start)}"
            new = made / name
            if new.is_file():
                keep_old_units(plan, key, state, start, new)
                sync_path(new)
            if os.path.lexists(journal.root / name):
                saved[name] = journal.move(name)
            if new.is_file():
                journal.make_directory(place)
                journal.place(name, relative(journal.root, new))
    return saved


def _replace_index(journal: Journal, made: Path) -> None:
    journal.make_directory(paths.INDEX)
    for one in listed(journal.root / paths.INDEX) or []:
        journal.move(relative(journal.root, one.path))
    for one in listed(made / paths.INDEX) or []:
        sync_path(one.path)
        journal.place(f"{paths.INDEX}/{one.name}", relative(journal.root, one.path))


def seal(journal: Journal, root: Path, config: StoreConfig | None) -> str | None:
    """Write the checkpoint of a store whose files agree, and mark it as closed.

    Returns where the old checkpoint is.
    """
    shutil.rmtree(journal.directory / "built", ignore_errors=True)
    if os.path.lexists(root / paths.ABORT):
        journal.move(paths.ABORT)
    new = journal.saved_name(paths.CHECKPOINT)
    data = bytes(layout.CHECKPOINT_BYTES)
    if (root / paths.CHECKPOINT).is_file():
        with open_regular(root / paths.CHECKPOINT) as file:
            data = file.read(layout.CHECKPOINT_BYTES).ljust(layout.CHECKPOINT_BYTES, b"\0")
        data = known_of_checkpoint(data)
    with (root / new).open("xb") as made:
        made.write(data)
        made.flush()
        sync_file(made.fileno(), made.name)
    saved = None
    if os.path.lexists(root / paths.CHECKPOINT):
        saved = journal.move(paths.CHECKPOINT)
    journal.place(paths.CHECKPOINT, new)
    with opening.open(root, config=config) as opened:
        last, time = _last_record(opened)
        seal_store(opened, last, time)
    return saved


def _last_record(opened: MessageStore) -> tuple[int, int]:
    """Return the offset of the log's last record, -1 without one, and the last store time."""
    newest = time = -1
    for topic, queue_ids in opened.queue_ids().items():
        for queue_id in queue_ids:
            start, stop = opened.core.bounds(topic, queue_id) or (0, 0)
            if stop > start:
                last_unit = opened.core.units(topic, queue_id, stop - 1, stop)
                newest = max([newest, *(one[0] for _, one in _core.used_units(last_unit))])
    if newest < 0:
        return -1, 0
    time = opened.at(newest).store_timestamp
    end = opened.recovery.log_end
    size = opened.config.mapped_file_size_commit_log
    last = newest
    start = newest
    while start < end:  # fillers and rollbacks behind it
        stop = min(end, start - start % size + size)
        if stop - start > _TAIL_MOST:
            break
        file = log_file(opened.path, opened.config, start - start % size)
        with open_regular(file) as log:
            data = os.pread(log.fileno(), stop - start, start % size)
        pieces = _core.log_pieces(data, start, start - start % size + size)
        last = max([last, *(at for at, _, kind in pieces if kind != "blank")])
        start = stop
    return last, time
