"""Builds by the threads of one process: they fill the index files while they read the log."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator

from rmqstore import _core
from rmqstore.config.store_config import StoreConfig
from rmqstore.offline.build import Build, BuildStep, StepReport
from rmqstore.offline.index import open_index_part
from rmqstore.offline.ranges import LogPlan, RangeReport
from rmqstore.offline.walk import ENTRY_BYTES, UnitRun

__all__ = ["IndexWriter", "ThreadBuild"]

_KEPT_MOST = 32 << 20


class ThreadBuild(Build):
    """A :class:`Build` whose ranges are read by threads, begun in their order.

    Parameters
    ----------
    plan : LogPlan
    directory : str
        Parent of the new ``consumequeue`` and ``index``.
    """

    _index: IndexWriter

    def __init__(self, plan: LogPlan, directory: str) -> None:
        super().__init__(plan, directory)
        object.__setattr__(self, "_index", IndexWriter(self.index_directory, plan.config))

    def scan(self, number: int) -> RangeReport:
        """Read a range of the log, write its units, and enter its keys."""
        try:
            return super().scan(number)
        finally:
            self._index.end(number)

    def runs(self, report: RangeReport) -> Iterator[list[UnitRun]]:
        """Iterate over the units of a range, and enter its keys."""
        for found in report.slices(self.plan.walk(report.number)):
            self._index.put(report.number, found.entries)
            yield found.runs

    def index_steps(self, reports: Iterable[RangeReport]) -> list[BuildStep]:
        """Return the step that completes the index files."""
        self._index.begin_files(len(self.index_plans(reports)))
        return [BuildStep("index")]

    def run(self, step: BuildStep) -> StepReport:
        """Do a step."""
        if step.kind == "index":
            return StepReport(begins=dict(enumerate(self._index.finish())))
        return super().run(step)


class IndexWriter:
    """Index files of a log whose ranges are read side by side, begun in their order.

    Keys of the first open range are entered at once; of later ranges as many as fit are kept.

    Parameters
    ----------
    directory : path-like
        The new ``index``.
    config : StoreConfig
        Slots and entries of a file.
    """

    def __init__(self, directory: str | os.PathLike[str], config: StoreConfig) -> None:
        self._directory = directory
        self._config = config
        self._turn = threading.Condition()
        self._first = 0  # number of the first open range
        self._ended: set[int] = set()
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._failed = False
        self._part: _core.IndexPart | None = None
        self._room = 0
        self._last = b""
        self._begins: list[int] = []

    def put(self, number: int, entries: memoryview) -> None:
        """Enter the next keys of a range, or keep them."""
        with self._turn:
            self._turn.wait_for(
                lambda: number == self._first or self._kept_bytes < _KEPT_MOST or self._failed
            )
            if self._failed:
                return
            if number != self._first:
                self._kept.setdefault(number, []).append(entries)
                self._kept_bytes += len(entries)
                return
        self._enter(entries)  # by this range alone: later ones take the lock to keep theirs

    def end(self, number: int) -> None:
        """End a range, also after a failure: later ranges may wait for it."""
        with self._turn:
            self._ended.add(number)
            has_turn = number == self._first
        while has_turn:
            has_turn = self._pass_turn()

    def _pass_turn(self) -> bool:
        """Enter the keys that the next range has kept, or make it the first; True: go on."""
        with self._turn:
            kept = self._kept.pop(self._first + 1, [])
            self._kept_bytes -= sum(map(len, kept))
            self._first += not kept
            self._turn.notify_all()
            goes_on = bool(kept) or self._first in self._ended
        for entries in kept:
            self._enter(entries)
        return goes_on

    def begin_files(self, count: int) -> None:
        """Begin so many files: a record without keys behind a full one begins one."""
        while len(self._begins) + (self._part is not None) < count:
            self._next_file()

    def finish(self) -> list[int]:
        """Complete the last file; return the store time of the first key of each, in ms."""
        self._complete_file()
        return self._begins

    def _enter(self, entries: memoryview) -> None:
        try:
            while entries and not self._failed:
                if self._room == 0:
                    self._next_file()
                assert self._part is not None
                some = entries[: self._room * ENTRY_BYTES]
                self._part.enter(some)
                self._room -= len(some) // ENTRY_BYTES
                self._last = bytes(some[-ENTRY_BYTES:])
                entries = entries[len(some) :]
        except BaseException:
            with self._turn:
                self._failed = True  # none waits for this range
                self._turn.notify_all()
            raise

    def _next_file(self) -> None:
        self._complete_file()
        self._part = open_index_part(self._directory, self._config, len(self._begins), "a")
        self._part.begin_fill(self._last)
        self._room = self._config.max_index_num - 1

    def _complete_file(self) -> None:
        if self._part is not None:
            self._part.end_fill()
            self._begins.append(self._part.begin_timestamp)
            self._part.close()
            self._part = None
