"""Extracts: new stores with some of the messages of a store.

The log is read twice: for the places of the messages, then by threads of the core that copy them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from rmqstore import opening
from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.base.syncing import make_directories, sync_path
from rmqstore.base.times import to_millis
from rmqstore.directory.layout import log_file, surroundings, without_paths
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import absolute, target_of
from rmqstore.offline import (
    Copied,
    LogPiece,
    LogSource,
    LogWalk,
    RangesOverlapError,
    assign_positions,
    copy_pieces,
    piece_bytes,
    plan_log,
    save_queue_numbers,
    seal_store,
)
from rmqstore.offline.thread_build import ThreadBuild
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC
from rmqstore.toolbox.copies.extracted_config import QueueSpan, copy_config

if TYPE_CHECKING:
    from rmqstore.base.times import TimeLike
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = ["Extracted", "extract", "extract_of"]

_UNFINISHED = ".unfinished"
_FIRSTS = "firsts.json"  # first queue offsets, for the copying threads
_PART_BYTES = 32 << 20  # of the log, read at a time
_TASK_PIECES = 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_T = TypeVar("_T")
_R = TypeVar("_R")

Progressed = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Extracted:
    """Result of :func:`extract`.

    Attributes
    ----------
    messages, bytes : int
        Records of the new store, and their bytes.
    seconds : float
        Duration.
    skipped : int
        Damaged places of the log, and torn files of ``config``, that were passed over.
    """

    messages: int
    bytes: int
    seconds: float
    skipped: int


def extract(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    topics: str | Iterable[str],
    *,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    on_corruption: Literal["raise", "skip"] = "raise",
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Extracted:
    """Make a new store with the messages of some topics of a store.

    They keep their order in the log and all that is in them: keys, tags, properties, times, hosts.
    Queue offsets begin at 0; what is not taken from the middle of a queue leaves a gap. Physical
    offsets change, and with them message ids. Queues and index are built, and the new store opens
    clean, here and in a 4.9.3 broker. File sizes are the store's.

    The entries of the topics, of the groups with offsets for them and of these groups' filters
    come along, and the offsets are translated; an offset of a message that was not taken becomes
    that of the next one that was, at most the end.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use. Neither its queues nor its index are needed.
    out : path-like
        Directory of the new store: none yet, or an empty one. Until it is complete its name is
        ``<out>.unfinished``; an error removes that.
    topics : str or iterable of str
        Retry topics and dead letters of groups only if they are named, and so are delayed messages
        (``SCHEDULE_TOPIC_XXXX``), whose progress of delivery is translated too. The topics of half
        messages come along together, and keep their queue offsets, which they name in bodies.
    since, until : int, datetime or str, optional
        Store times; ``until`` is exclusive.
    on_corruption : {"raise", "skip"}, optional
        At damage, also of other topics: raise an error, or go on behind it. A torn file of
        ``config`` counts as empty then: topics get as many queues as they have messages in.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    Extracted

    Raises
    ------
    TopicNotFoundError
        The store has no such topic.
    FileExistsError
        ``out`` is not empty, or ``<out>.unfinished`` exists.
    ValueError
        ``out`` lies in a store or is a mount point; ``topics`` is empty; a time is invalid.
    StoreCorruptError
        A record is invalid, and ``on_corruption`` is ``"raise"``; or a file of ``config`` is.
    MessagesRemovedError
        Retention removed messages before they were read.
    OSError
        For example, the disk is full.
    IncompatibleStoreError
        As for :func:`rmqstore.open`; or the messages are in records of RocketMQ 5.
    StoreNotFoundError
        As for :func:`rmqstore.open`.

    Notes
    -----
    The offset of a half message in the record that ended its transaction is not adjusted, and
    light queues keep the offsets in their messages.

    Source: ``store/CommitLog.java``, ``broker/offset/ConsumerOffsetManager.java``.
    """
    one_of("on_corruption", on_corruption, ("raise", "skip"))
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    for name in names:
        if not isinstance(name, str):
            raise wrong_type("topics", "str or iterable of str", name)
    if not names:
        raise wrong_value("topics", "one name or more", names)
    low = INT64_MIN if since is None else to_millis(since, name="since")
    high = INT64_MAX if until is None else to_millis(until, name="until")
    with opening.open(path, config=config) as store:
        return extract_of(store, out, names, (low, high), on_corruption)


def extract_of(
    store: MessageStore,
    out: str | os.PathLike[str],
    topics: Sequence[str],
    times: tuple[int, int],
    on_corruption: Literal["raise", "skip"],
    *,
    progressed: Progressed = lambda done, total: None,
) -> Extracted:
    """Return :func:`extract` of an open store, for store times in ms.

    ``progressed`` gets bytes of the log so far, and in all: it is read twice.
    """
    began = time.monotonic()
    known = store.topics
    for name in topics:
        if name not in known:
            raise store.catalog.not_found(name)
    wanted = set(topics)
    if HALF_TOPIC in wanted or OP_TOPIC in wanted:
        wanted |= {HALF_TOPIC, OP_TOPIC}
    with _new_directory(out, store.path) as making:
        places = _Places(store, frozenset(wanted), times, on_corruption)
        places.find(progressed)
        copied = _copy_log(places, making, progressed)
        skips = on_corruption == "skip"
        places.skipped += copy_config(store, making, places.topics, places.queues, skips=skips)
        _complete(making, without_paths(store.config), copied)
    return Extracted(
        messages=sum(one.messages for one in copied),
        bytes=sum(one.size for one in copied),
        seconds=time.monotonic() - began,
        skipped=places.skipped,
    )


class _Places:
    """Places of the wanted messages in the log, and their queue offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: frozenset[str],
        times: tuple[int, int],
        on_corruption: Literal["raise", "skip"],
    ) -> None:
        self.store = store
        self.topics = topics
        self.queues: dict[tuple[str, int], QueueSpan] = {}
        self.skipped = 0
        self.runs = array("q")  # start, stop and bytes to copy of each piece
        self._since, self._until = times
        self._skips = on_corruption == "skip"
        self.file_size: int = store.core.sizes()[0]
        self.deleted = dict(store.registry.deleted)

    def find(self, progressed: Progressed) -> None:
        """Read the log."""
        extent = self.store.scan().extent(queued=False)
        timed = self.store.scan(since=self._since, until=self._until)
        low, high = timed.narrowed(extent.start, extent.stop)
        for at in range(low, high, _PART_BYTES):
            stop = min(high, at + _PART_BYTES)
            kept = len(self.runs)
            try:
                self._read(at, stop, "raise", 0)
            except StoreCorruptError:
                if not self._skips:
                    raise
                del self.runs[kept:]
                self._read(at, stop, "skip", 1)
                self.skipped += self._damages(at, stop)
            progressed((stop - low) // 2, high - low)
        for (topic, _), span in self.queues.items():
            if topic not in (HALF_TOPIC, OP_TOPIC):
                span.base = span.first

    def _read(
        self, start: int, stop: int, on_corruption: Literal["raise", "skip"], apart: int
    ) -> None:
        """Add the runs of a range; with ``apart`` they have nothing between their records."""
        cell = piece_bytes(self.file_size)
        run: list[int] = []  # start, stop, bytes
        cell_of_run = -1
        for one in self.store.scan(start=start, stop=stop, on_corruption=on_corruption):
            at, size, topic = one.physical_offset, one.store_size, one.topic
            if topic not in self.topics or at < self.deleted.get(topic, 0):
                continue
            if not self._since <= one.store_timestamp < self._until or one.queue_id < 0:
                cell_of_run = -1  # not to be copied with its neighbours
                continue
            file, within = divmod(at, self.file_size)
            here = file * self.file_size + within // cell
            if here != cell_of_run or (apart and run[1] != at):
                self.runs.extend(run)
                run = [at, at, 0]
                cell_of_run = here
            run[1], run[2] = at + size, run[2] + size
            place, offset = (topic, one.queue_id), one.queue_offset
            span = self.queues.get(place)
            if span is None:
                self.queues[place] = QueueSpan(offset, offset + 1)
            elif offset >= span.stop:
                span.stop = offset + 1
            elif offset < span.first:
                span.first = offset
        self.runs.extend(run)

    def _damages(self, start: int, stop: int) -> int:
        walk = LogWalk(self.store.path, self.store.config, start, stop, any_version=True)
        for _ in walk.slices():
            pass
        # A walk ends with the zeros after the last record: no damage.
        found = [
            one
            for one in walk.damages
            if one.resumed >= 0 or not walk.is_blank(one.physical_offset, stop)
        ]
        return max(1, len(found))

    def pieces(self) -> Iterator[tuple[str, LogPiece]]:
        """Yield the pieces to copy, each with the directory of its log file."""
        runs = iter(self.runs)
        known = (-1, "")
        for start, stop, size in zip(runs, runs, runs, strict=True):
            file = start - start % self.file_size
            if known[0] != file:
                known = file, str(log_file(self.store.path, self.store.config, file).parent)
            yield known[1], LogPiece(0, start, stop, size)


def _copy_log(places: _Places, making: Path, progressed: Progressed) -> list[Copied]:
    """Copy the records to a new log."""
    numbers: dict[str, dict[int, int]] = {}
    for (topic, queue_id), span in places.queues.items():
        numbers.setdefault(topic, {})[queue_id] = -span.base
    save_queue_numbers(making / _FIRSTS, numbers)
    log = making / paths.COMMIT_LOG
    numbered: dict[str, int] = {}

    def pieces() -> Iterator[LogPiece]:
        for directory, piece in places.pieces():
            number = numbered.setdefault(directory, len(numbered))
            yield LogPiece(number, piece.start, piece.stop, piece.size)

    planned = assign_positions(pieces(), places.file_size)
    sources = {
        number: LogSource(
            directory,
            places.file_size,
            topics=tuple(places.topics),
            deleted=places.deleted,
            first_offsets=str(making / _FIRSTS),
        )
        for directory, number in numbered.items()
    }
    total, done = sum(piece.size for piece in planned), 0

    def copy(some: Sequence[LogPiece]) -> Copied:
        nonlocal done
        copied = copy_pieces(some, sources, log, places.file_size)
        done += copied.size
        progressed((total + done) // 2, total)
        return copied

    tasks = [planned[at : at + _TASK_PIECES] for at in range(0, len(planned), _TASK_PIECES)]
    copied = _side_by_side(copy, tasks)
    (making / _FIRSTS).unlink()
    return copied


def _complete(making: Path, config: StoreConfig, copied: Sequence[Copied]) -> None:
    """Make queues, index and checkpoint of the new log."""
    last = max((one.last_record for one in copied), default=-1)
    if last < 0:  # no message: a new store as any
        with opening.open(making, "a", config=config):
            return
    plan = plan_log(making, config)  # no record of RocketMQ 5: a 4.9.3 broker reads it
    try:
        _build(ThreadBuild(plan, str(making)))
    except RangesOverlapError:
        _build(ThreadBuild(plan.by_files(), str(making)))
    if not config.message_index_enable:
        shutil.rmtree(making / paths.INDEX)
    with opening.open(making) as store:
        seal_store(store, last, max(one.store_timestamp for one in copied))


def _build(build: ThreadBuild) -> None:
    build.create()
    reports = _side_by_side(build.scan, range(build.plan.count))
    build.finish(reports, _side_by_side(build.run, build.steps(reports)))


def _side_by_side(work: Callable[[_T], _R], parts: Iterable[_T]) -> list[_R]:
    """Return the results of ``work`` by threads, in order; after an error no more is begun."""
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        return list(pool.map(work, parts))
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _new_directory(out: str | os.PathLike[str], store: str) -> Iterator[Path]:
    """Provide a directory for a new store, which becomes ``out``; removed on an error."""
    named = Path(absolute(out))
    target = target_of(named)
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(store)):
        raise wrong_value("out", "outside the store", str(named))
    if (around := surroundings(named)) is not None:
        raise wrong_value("out", f"outside {around}", str(named))
    if os.path.lexists(target):
        if os.path.ismount(target):
            raise wrong_value("out", "no mount point, but may be in one", str(named))
        if next(target.iterdir(), None) is not None:  # NotADirectoryError, if it is none
            raise FileExistsError(errno.EEXIST, "is not empty", str(named))
    making = target.with_name(target.name + _UNFINISHED)
    make_directories(target.parent, sync_parent=False)
    try:
        making.mkdir()
    except FileExistsError as error:
        why = "an extract that was not finished, or is under way; remove it"
        raise FileExistsError(errno.EEXIST, why, str(making)) from error
    try:
        (making / paths.COMMIT_LOG).mkdir()
        yield making
        for directory, _, _ in os.walk(making):
            sync_path(directory)
        making.rename(target)  # also over an empty directory
        sync_path(target.parent)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        if error.errno not in _FULL:
            raise
        why = f"{os.strerror(error.errno)}: nothing of the extract is left; free some space, or "
        why += "name a directory on another disk"
        raise OSError(error.errno, why, error.filename or str(named)) from error
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
