"""Check of a store: whether a broker would start, each problem, and the command that mends it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, SupportsIndex

from rmqstore import opening
from rmqstore.base.arguments import wrong_type, wrong_value
from rmqstore.base.layout import UNIT_BYTES
from rmqstore.config.store_config import StoreConfig, read_as_broker
from rmqstore.directory.layout import find_directory, log_directories
from rmqstore.directory.lock_owner import LockOwner, lock_owner
from rmqstore.errors import (
    StoreCorruptError,
    StoreError,
    StoreNotFoundError,
)
from rmqstore.files import paths
from rmqstore.files.links import absolute
from rmqstore.files.regular import open_regular
from rmqstore.offline.findings import BrokerStart, Finding
from rmqstore.offline.start import broker_start, broker_start_of, verdict_on
from rmqstore.offline.start_files import listed, relative
from rmqstore.toolbox.checks.file_checks import file_findings, newer_findings, tree_of
from rmqstore.toolbox.checks.full_check import FullCheck, full_check
from rmqstore.toolbox.checks.next_command import QUEUE_KINDS, asking, next_command
from rmqstore.toolbox.checks.store_checks import StoreChecks
from rmqstore.types import RecoveredRange

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["Checked", "Report", "report_on", "verify"]

_JOBS_MOST = 256
_SMALL = 64 << 20  # bytes of a log that is read whole in any case: it takes no longer
_SECTOR = 512
_HOLE_BYTES = 4 << 20  # of damage, read to see whether it is zeros
# Kinds of which one file may have several.
_BY_MESSAGE = frozenset(("offset-below-start", "offset-beyond-end", "queue-count", "topic-unknown"))
_ORDER = {"stop": 0, "lost": 1, "warn": 2}


@dataclass(frozen=True, slots=True)
class Checked:
    """Number of things read.

    Attributes
    ----------
    records, queues, units, index_files, files : int
        Records and units read, queues and index files examined, and files of the store in all.
    """

    records: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Result of :func:`verify`.

    Attributes
    ----------
    start : BrokerStart
        Verdict on the start of a 4.9.3 broker.
    problems : tuple of Finding
        Worst first, including those of the verdict.
    checked : Checked
    full : bool
        Every record, unit and index entry was read.
    fix : str or None
        Command that mends the problems, or the first of them; None if there is none, no command
        does, or the store is in use.
    """

    start: BrokerStart
    problems: tuple[Finding, ...]
    checked: Checked
    full: bool
    fix: str | None

    @property
    def broker(self) -> Literal["starts", "refuses", "loses", "loops"]:
        """Whether a 4.9.3 broker starts, as :class:`rmqstore.offline.BrokerStart` has it."""
        return self.start.broker

    @property
    def line(self) -> str | None:
        """The broker's own log line, if it writes one."""
        return self.start.line

    @property
    def messages_lost(self) -> int:
        """Messages that are whole now and would be lost by the start."""
        return self.start.messages_lost

    @property
    def clean(self) -> bool:
        """No problem asks for anything: there are at most notes on the state of the store."""
        return not asking(self.problems)


def verify(
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    full: bool = False,
    jobs: SupportsIndex | None = None,
) -> Report:
    """Check a store: would a 4.9.3 broker start on it, what is wrong, what mends it.

    By default names, lengths, headers and both ends of files are read, whatever the store's size;
    with a log of up to 64 MiB everything is, as with ``full``. Nothing is written. Beside a live
    owner the verdict is for a start after killing it now.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use, or a copy.
    config : StoreConfig or path of a broker.conf, optional
        The broker's. Sizes it leaves unset are inferred from the files.
    full : bool, optional
        Read every record, and compare every unit and index entry with it.
    jobs : int, optional
        Threads for ``full``, 1 to 256; by default one a core.

    Returns
    -------
    Report

    Raises
    ------
    StoreNotFoundError
        Neither a log nor a queue.
    IncompatibleStoreError
        A DLedger store.
    ValueError, TypeError
        An argument has a wrong type or value, or the configuration is out of range.
    """
    chosen, config_file = config, None
    if chosen is not None and not isinstance(chosen, StoreConfig):
        config_file = absolute(chosen)
        chosen = read_as_broker(chosen)
    return report_on(path, chosen, full=full, jobs=_job_count(jobs), config_file=config_file)


def report_on(
    path: str | os.PathLike[str],
    config: StoreConfig | None,
    *,
    full: bool,
    jobs: int | None = None,
    done: Callable[[int], object] | None = None,
    config_file: str | None = None,
) -> Report:
    """Return :func:`verify`'s report; ``done`` gets the bytes of log and index read so far.

    ``config_file``: where ``config`` is from, for the command that the report names.
    """
    root = absolute(path)
    find_directory(root)
    report = _report_on(root, config, full=full, jobs=jobs, done=done)
    return replace(report, fix=next_command(root, report.problems, config_file))


def _report_on(
    root: str,
    config: StoreConfig | None,
    *,
    full: bool,
    jobs: int | None,
    done: Callable[[int], object] | None,
) -> Report:
    try:
        with opening.open(root, config=config) as opened:
            if not full and opened.recovery.log_end - opened.recovery.log_start <= _SMALL:
                full = True  # as fast
            return _verified(opened, config, full=full, jobs=jobs or _job_count(None), done=done)
    except StoreNotFoundError:
        start = broker_start(root, config=config)
        return _report(start, start.findings, Checked(), full=full)
    except (StoreError, OSError) as error:
        if isinstance(error, ChildProcessError) or "DLedger" in str(error):
            raise
        return _unopened(root, error, config)


def _job_count(jobs: SupportsIndex | None) -> int:
    if jobs is None:
        return min(len(os.sched_getaffinity(0)), _JOBS_MOST)
    if isinstance(jobs, bool) or not hasattr(jobs, "__index__"):
        raise wrong_type("jobs", "int", jobs)
    count = jobs.__index__()
    if not 1 <= count <= _JOBS_MOST:
        raise wrong_value("jobs", f"1 to {_JOBS_MOST}", count)
    return count


def _verified(
    opened: MessageStore,
    config: StoreConfig | None,
    *,
    full: bool,
    jobs: int,
    done: Callable[[int], object] | None,
) -> Report:
    owner = _owner(opened.path)
    found = _check(opened, config, owner, full=full, jobs=jobs, done=done)
    if owner is not None or _owner(opened.path) is not None:
        # Files that are read one after the other may differ by what was written in between.
        with opening.open(opened.path, config=config) as again:
            second = _check(again, config, owner, full=full, jobs=jobs, done=None)
        found = _in_both(found, second)
    return found


def _owner(path: str) -> LockOwner | None:
    try:
        return lock_owner(path)
    except OSError:
        return None


def _in_both(first: Report, second: Report) -> Report:
    """Return the second report with the problems that the first has as well."""
    known = set(map(_identity, first.problems))
    kept = [one for one in second.problems if _identity(one) in known]
    start = verdict_on(one for one in second.start.findings if one in kept)
    return replace(second, start=start, problems=tuple(kept))


def _identity(one: Finding) -> tuple[object, ...]:
    """Return how a problem is known again; an index file grows while it is read, at other links."""
    words = one.message if one.kind.startswith("index-") else ""
    return one.kind, one.file, one.offset, words


def _check(
    opened: MessageStore,
    config: StoreConfig | None,
    owner: LockOwner | None,
    *,
    full: bool,
    jobs: int,
    done: Callable[[int], object] | None,
) -> Report:
    root = Path(opened.path)
    directories = log_directories(opened.path, opened.config)
    checks = StoreChecks(opened, in_use=owner is not None)
    own = list(checks.findings(directories))
    whole = FullCheck()
    examined: list[RecoveredRange] | None = None
    if full:
        whole = _whole(opened, jobs, done)
        examined = whole.damage
    start = broker_start_of(opened, config, examined=examined)
    every = [*start.findings, *_log_damage(opened, directories, examined), *own, *whole.problems]
    every += (
        Finding("warn", kind, "", None, f"{count:,} more problems of this kind")
        for kind, count in whole.more.items()
    )
    tree = tree_of(root, directories)
    reported = {one.file for one in every}
    missing = {one.file for one in every if one.kind == "queue-missing"}
    every = [one for one in every if one.kind != "queue-unsaved" or one.file not in missing]
    every += file_findings(root, tree, owner, reported, checks.newest)
    every += newer_findings(root)
    if owner is not None:
        every = [one for one in every if one.kind != "abort"]
    ranges = opened.recovery.ranges if examined is None else examined
    ends = {one.start: one.stop for one in ranges}
    every = [_as_hole(root, one, ends) for one in every]
    start = replace(start, findings=tuple(_as_hole(root, one, ends) for one in start.findings))
    lost_units = [one for one in whole.problems if one.by_start]
    if lost_units and start.broker in ("starts", "loses"):
        start = verdict_on([*start.findings, *lost_units])
    checked = Checked(
        records=whole.records if full else checks.records,
        queues=checks.queues,
        units=whole.units if full else checks.units,
        index_files=checks.index_files,
        files=tree.files,
    )
    return _report(start, every, checked, full=full)


def _whole(opened: MessageStore, jobs: int, done: Callable[[int], object] | None) -> FullCheck:
    """Read all of a store; of one whose log cannot be walked through, without the index."""
    try:
        return full_check(opened.path, opened.config, jobs, done)
    except (StoreNotFoundError, StoreCorruptError):
        pass  # no file of the log, or the list of deleted topics, can be used: reported
    records, units, ranges, queues = opened.core.verify()
    found = FullCheck(records, units)
    for begin, end in ranges:
        found.damage.append(RecoveredRange("damaged", begin, end, None, "no good record", None))
    for directory, offsets, status in queues:
        reason = os.strerror(-status) if status else f"{len(offsets):,} units contradict the log"
        at = offsets[0] * UNIT_BYTES if offsets else None
        kind = "unreadable" if status else "unit-mismatch"
        found.add(Finding("lost", kind, directory, at, f"{reason}: rebuild the queue"))
    return found


def _log_damage(
    opened: MessageStore, directories: list[Path], examined: list[RecoveredRange] | None
) -> Iterator[Finding]:
    """Yield the log's damage, also where a verdict of "refuses" leaves it out."""
    root = Path(opened.path)
    size = opened.config.mapped_file_size_commit_log
    files = {one.name: one.path for place in directories for one in listed(place) or []}

    def file_of(offset: int) -> str:
        name = paths.offset_file_name(offset - offset % size)
        return relative(root, files.get(name, directories[0] / name))

    for one in opened.recovery.ranges if examined is None else examined:
        if one.kind == "torn" and examined is not None:
            yield Finding(
                "warn", "torn-tail", file_of(one.start), one.start,
                f"bytes {one.start} to {one.stop}, at the log's end, are no record ({one.reason})",
            )  # fmt: skip
        elif one.kind == "damaged" and one.start < opened.recovery.log_end:
            yield Finding(
                "lost", "bad-record", file_of(one.start), one.start,
                f"bytes {one.start} to {one.stop} of the log are damaged ({one.reason})",
                messages=one.records or 0,
            )  # fmt: skip
        elif one.kind == "damaged":
            message = f"{one.reason}: put it back"
            yield Finding("lost", "behind-log-end", file_of(one.start), one.start, message)
    for text in opened.recovery.damaged_files:
        kind, _, name = text.partition(" ")
        if kind == "missing":
            start = int(name[:20])
            message = f"the log lacks {text.removeprefix('missing ')}: put it back"
            yield Finding("lost", "gap", file_of(start), start, message)


def _as_hole(root: Path, one: Finding, ends: Mapping[int, int]) -> Finding:
    """Return damage with whole sectors of zeros, as a power cut leaves them, as a hole."""
    if one.kind != "bad-record" or one.offset is None:
        return one
    length = min(ends.get(one.offset, one.offset + _SECTOR) - one.offset, _HOLE_BYTES)
    try:
        with open_regular(root / one.file) as file:
            size = os.fstat(file.fileno()).st_size
            at = one.offset % size if size else 0
            data = os.pread(file.fileno(), length, at)
    except OSError:
        return one
    first = -at % _SECTOR
    sectors = range(first, len(data) - _SECTOR + 1, _SECTOR)
    if any(data[sector : sector + _SECTOR] == bytes(_SECTOR) for sector in sectors):
        return replace(one, kind="hole")
    return one


def _unopened(root: str, error: StoreError | OSError, config: StoreConfig | None) -> Report:
    """Return the report on a store that cannot be opened, not even to read it."""
    place = Path(root)
    file = os.fsdecode(getattr(error, "filename", None) or getattr(error, "path", None) or root)
    kind, advice = "unreadable", "see to it, then verify again"
    if isinstance(error, PermissionError):
        kind, advice = "permission", "verify as the broker's user"
    elif isinstance(error, (NotADirectoryError, IsADirectoryError)):
        kind, advice = "foreign-file", "move it away"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    first = Finding("stop", kind, relative(place, file), None, f"{reason}: {advice}")
    directories = log_directories(root, config)
    names = Counter(one.name for directory in directories for one in listed(directory) or [])
    twice = [name for name in names if names[name] > 1 and f"/{name}: " in reason]
    if twice:
        file, _, reason = reason.partition(": ")
        message = f"{reason}; a broker maps both, and reads or cuts by either"
        first = Finding("lost", "file-twice", relative(place, file), None, message, by_start=True)
    tree = tree_of(place, directories)
    every = [first, *file_findings(place, tree, _owner(root), {first.file}, 0)]
    start = verdict_on([first])
    return _report(start, every, Checked(files=tree.files), full=False)


def _report(
    start: BrokerStart,
    every: Iterable[Finding],
    checked: Checked,
    *,
    full: bool,
) -> Report:
    """Return a report with each problem once, worst first."""
    known: dict[tuple[str, str, int | None, str], Finding] = {}
    for one in every:
        file = one.file
        if one.kind in QUEUE_KINDS and paths.parse_offset_file_name(Path(file).name) is not None:
            file = os.path.dirname(file)  # noqa: PTH120
        words = one.message if one.kind in _BY_MESSAGE else ""
        known.setdefault((one.kind, file, one.offset, words), one)
    problems = sorted(known.values(), key=lambda one: (_ORDER[one.severity], not one.by_start))
    behind = [one.file for one in problems if one.kind == "behind-log-end"]
    if any(file.startswith(paths.COMMIT_LOG) for file in behind):  # which says it of all queues
        problems = [
            one
            for one in problems
            if one.kind != "behind-log-end" or not one.file.startswith(paths.CONSUME_QUEUE)
        ]
    return Report(start, tuple(problems), checked, full, None)
