"""Consume queue and index files made from what tasks find in ranges of the log.

Everything goes into a directory of the job's own and can be done twice: a task that is tried
again, or runs at two places, writes the same bytes. That directory is made before the tasks are,
so that one that is late does not bring it back.

Source: ``store/ConsumeQueue.java``, ``store/index/IndexService.java``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rmqstore import _core, paths
from rmqstore.syncing import sync_path

__all__ = [
    "UNIT_BYTES",
    "IndexJob",
    "QueueFill",
    "QueueParts",
    "QueueWriter",
    "enter_index_share",
    "join_queues",
    "outline_index_file",
    "sync_queues",
]

_OPEN_FILES = 200
UNIT_BYTES = len(_core.blank_units(1))
_FILL_UNITS = 50_000  # written at a time
_SHARE_ENTRIES, _SHARES_MOST = 5_000_000, 4


@dataclass(frozen=True)
class QueueFill:
    """Units of a queue that stand for nothing, from one queue offset to below another."""

    topic: str
    queue_id: int
    start: int
    stop: int


class QueueWriter:
    """Writes units at their places in files that many tasks write to.

    Parameters
    ----------
    directory : str
        Stands for ``consumequeue``.
    file_size : int
        Of a queue's file, bytes.

    Attributes
    ----------
    queues : dict of (str, int) to list of int
        What was written: the first queue offset and the one behind the last, where in the log the
        first record begins and the last one ends, and 1 if the units were in order, else 0.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfo``.
    """

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size
        self._files: dict[tuple[str, int, int], int] = {}
        self.queues: dict[tuple[str, int], list[int]] = {}

    def put(self, run: tuple[str, int, int, int, int, _core.Memory]) -> None:
        """Write a run of units, and fill the gap to those before it, if it can be."""
        topic, queue_id, first, begin, end, units = run
        stop = first + len(units) // UNIT_BYTES
        known = self.queues.get((topic, queue_id))
        if known is None:
            self.queues[topic, queue_id] = [first, stop, begin, end, 1]
        elif first == known[1] or _fits(known[1], known[3], first, begin):
            self.fill(QueueFill(topic, queue_id, known[1], first))
            known[1], known[3] = stop, end
        else:
            known[4] = 0  # the whole queue is made again, in the order of the log
            return
        self._write(topic, queue_id, first * UNIT_BYTES, memoryview(units))

    def fill(self, fill: QueueFill) -> None:
        """Write units that stand for nothing."""
        at = fill.start
        while at < fill.stop:
            position = at * UNIT_BYTES
            room = (self._file_size - position % self._file_size) // UNIT_BYTES
            count = min(fill.stop - at, room, _FILL_UNITS)
            self._write(fill.topic, fill.queue_id, position, memoryview(_core.blank_units(count)))
            at += count

    def _write(self, topic: str, queue_id: int, position: int, data: memoryview) -> None:
        place = position % self._file_size
        descriptor = self._file(topic, queue_id, position - place)
        while data:
            written = os.pwrite(descriptor, data, place)
            data, place = data[written:], place + written

    def _file(self, topic: str, queue_id: int, start: int) -> int:
        known = self._files.get((topic, queue_id, start))
        if known is not None:
            return known
        if len(self._files) == _OPEN_FILES:
            self.close()
        name = f"{self._directory}/{topic}/{queue_id}/{paths.offset_file_name(start)}"
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            for folder in (f"{self._directory}/{topic}", f"{self._directory}/{topic}/{queue_id}"):
                Path(folder).mkdir(exist_ok=True)
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(descriptor, self._file_size)
        self._files[topic, queue_id, start] = descriptor
        return descriptor

    def close(self, *, sync: bool = False) -> None:
        """Close the files, forced to the disk before if need be."""
        for descriptor in self._files.values():
            if sync:
                os.fdatasync(descriptor)
            os.close(descriptor)
        self._files.clear()


def _fits(known: int, last_end: int, first: int, begin: int) -> bool:
    """Whether units may follow, as the dispatch sees it."""
    return first > known and _core.gap_is_likely_between(first - known, begin - last_end)


def sync_queues(directory: str, queues: Iterable[tuple[str, int]]) -> None:
    """Force the files of queues and their names to the disk.

    Parameters
    ----------
    directory : str
        Stands for ``consumequeue``.
    queues : iterable of (str, int)

    Notes
    -----
    Source: ``store/ConsumeQueue.java flush``.
    """
    topics = set()
    for topic, queue_id in queues:
        folder = Path(directory, topic, str(queue_id))
        topics.add(folder.parent)
        for path in [*folder.iterdir(), folder]:
            sync_path(path)
    for folder in [*topics, Path(directory)]:
        sync_path(folder)


def join_queues(
    summaries: Iterable[dict[tuple[str, int], list[int]]], units_a_file: int
) -> tuple[set[tuple[str, int]], list[QueueFill], set[tuple[str, int]]]:
    """Put together what :class:`QueueWriter` did in one range after the other.

    Parameters
    ----------
    summaries : iterable of dict
        ``QueueWriter.queues``, in the order of the log.
    units_a_file : int

    Returns
    -------
    queues, fills, disordered : set of (str, int), list of QueueFill, set of (str, int)
        All queues, what is missing in those that are in order, and the others.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfoWrapper``.
    """
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    fills = []
    disordered = set()
    for summary in summaries:
        for queue, (first, stop, begin, end, in_order) in summary.items():
            known = ends.get(queue)
            start = first - first % units_a_file if known is None else known[0]
            if known is not None and first != start and not _fits(*known, first, begin):
                disordered.add(queue)
            elif start < first:
                fills.append(QueueFill(*queue, start, first))
            if not in_order:
                disordered.add(queue)
            ends[queue] = (stop, end)
    return (
        set(ends),
        [fill for fill in fills if (fill.topic, fill.queue_id) not in disordered],
        disordered,
    )


class QueueParts:
    """Writes queues unit by unit in the order of the log, as the dispatch does.

    Each queue is made under a name of its own and gets its right one in :meth:`finish`.

    Parameters
    ----------
    directory : str
        Stands for ``consumequeue``.
    file_size : int
        Of a queue's file, bytes.

    Attributes
    ----------
    skipped : int
        Units that were passed over.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfoWrapper``.
    """

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = Path(directory)
        self._file_size = file_size
        self._parts: dict[tuple[str, int], tuple[Path, _core.QueuePart]] = {}
        self.skipped = 0

    def put(self, topic: str, queue_id: int, first: int, units: _core.Memory | memoryview) -> None:
        """Write a run of units behind those of the queue that were written before."""
        known = self._parts.get((topic, queue_id))
        if known is None:
            parent = self._directory / topic
            parent.mkdir(exist_ok=True)
            made = parent / f"{queue_id}.{uuid.uuid4().hex}"
            made.mkdir()
            part = _core.QueuePart(str(made), self._file_size, "a", False)
            known = self._parts[topic, queue_id] = (made, part)
        self.skipped += known[1].put_run(first, units)

    def finish(self) -> None:
        """Close the queues, and give them their names."""
        for (_, queue_id), (made, part) in self._parts.items():
            part.close()
            try:
                made.rename(made.with_name(str(queue_id)))
            except OSError:
                if not made.with_name(str(queue_id)).is_dir():  # another attempt was faster
                    raise
                shutil.rmtree(made)
        self._parts.clear()

    def drop(self) -> None:
        """Remove what is not finished."""
        for made, _ in self._parts.values():
            shutil.rmtree(made, ignore_errors=True)
        self._parts.clear()


@dataclass(frozen=True)
class IndexJob:
    """One index file to be made.

    Attributes
    ----------
    number : int
        In the order of the files.
    before : (str, int) or None
        File and place of the last entry of the file before it.
    pieces : tuple of (str, int, int)
        Files with entries, and which bytes of them, in log order.
    """

    number: int
    before: tuple[str, int] | None
    pieces: tuple[tuple[str, int, int], ...]

    @property
    def entries(self) -> int:
        """How many it gets."""
        return sum(stop - start for _, start, stop in self.pieces) // _core.LOOSE_ENTRY_BYTES

    @property
    def shares(self) -> int:
        """Number of tasks that it is worth: each goes through all entries, for its own slots."""
        return min(max(self.entries // _SHARE_ENTRIES, 1), _SHARES_MOST)

    def seed(self) -> bytes:
        """Return the last entry of the file before it; empty for the first one."""
        if self.before is None:
            return b""
        path, place = self.before
        return bytes(_bytes_of(path, place, place + _core.LOOSE_ENTRY_BYTES))


def outline_index_file(
    directory: str, slots: int, entries: int, job: IndexJob, slots_used: int = 0
) -> int:
    """Make an index file, named by its number, with its header and no key in it yet.

    Parameters
    ----------
    directory : str
        Stands for ``index``.
    slots, entries : int
    job : IndexJob
    slots_used : int, optional
        What :func:`enter_index_share` said of all shares, when all of them are there.

    Returns
    -------
    int
        When the first key was stored, ms.

    Notes
    -----
    Source: ``store/index/IndexService.java getAndCreateLastIndexFile``.
    """
    first, last = b"", b""
    if job.pieces:
        (path, start, _), (last_path, _, stop) = job.pieces[0], job.pieces[-1]
        first = bytes(_bytes_of(path, start, start + _core.LOOSE_ENTRY_BYTES))
        last = bytes(_bytes_of(last_path, stop - _core.LOOSE_ENTRY_BYTES, stop))
    part = _core.IndexPart(f"{directory}/{job.number}", slots, entries, "a", False)
    part.outline(job.seed(), first, last, job.entries, slots_used)
    begin_timestamp = part.header()[0]
    part.close()
    return begin_timestamp


def enter_index_share(
    directory: str, slots: int, entries: int, job: IndexJob, share: tuple[int, int]
) -> int:
    """Enter one share of the keys of an index file that has its outline.

    Parameters
    ----------
    directory : str
        Stands for ``index``.
    slots, entries : int
    job : IndexJob
    share : (int, int)
        Which one of how many; a task that does it again writes the same bytes.

    Returns
    -------
    int
        How many of its slots are used.

    Notes
    -----
    Source: ``store/index/IndexFile.java putKey``.
    """
    part = _core.IndexPart(f"{directory}/{job.number}", slots, entries, "r+", False)
    pieces = (_bytes_of(*one) for one in job.pieces)
    used = part.enter_share(*share, job.seed(), pieces)
    part.close()
    return used


def _bytes_of(path: str, start: int, stop: int) -> memoryview:
    """Bytes of a file; mapped, so that no more of them are in memory than there is room for."""
    import mmap

    with Path(path).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), stop, access=mmap.ACCESS_READ)
    return memoryview(mapped)[start:stop]
