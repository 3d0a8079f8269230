"""Progress display of a long job: on standard error, in a terminal, after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

from rmqstore.cli.output import stdout_is_terminal
from rmqstore.cli.text import human_bytes, human_count

__all__ = ["Progress"]

_AFTER_SECONDS = 2.0
_EVERY_SECONDS = 0.2

_T = TypeVar("_T")


class Progress:
    """Display of a job while its ``with`` block runs; shows nothing without rich.

    The job only counts in ``done``, which a thread reads.
    """

    def __init__(
        self,
        text: str,
        unit: str = "",  # of the counts; "bytes" are shown as sizes
        *,
        total: int | None = None,  # may be set later
        among_rows: bool = False,  # show nothing if rows go to the terminal too
        count: Callable[[], int] | None = None,  # the number done, if several threads count
    ) -> None:
        self.text = text
        self.unit = unit
        self.total = total
        self.done = 0
        self._count = count
        self._began = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        shown = sys.stderr is not None and sys.stderr.isatty()
        if shown and not (among_rows and stdout_is_terminal()):
            self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        """Start the display, which waits for two seconds."""
        self._began = time.monotonic()
        if self._thread is not None:
            self._thread.start()
        return self

    def each(self, items: Iterable[_T]) -> Iterator[_T]:
        """Iterate over the items, and count them."""
        for item in items:
            self.done += 1
            yield item

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the display."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        """Show the progress until the job ends."""
        if self._ended.wait(_AFTER_SECONDS):
            return
        try:
            from rich import progress
            from rich.console import Console
        except ImportError:
            return
        columns: list[progress.ProgressColumn] = [
            progress.SpinnerColumn("line"),
            progress.TextColumn("{task.description}", markup=False),
            progress.TextColumn("{task.fields[counted]}", markup=False),
            progress.TimeElapsedColumn(),
        ]
        if self.unit:
            columns += [
                progress.TextColumn("{task.fields[rate]}", markup=False),
                progress.BarColumn(bar_width=16),
                progress.TaskProgressColumn(),
                progress.TextColumn("{task.fields[left]}", markup=False),
            ]
        with progress.Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
        ) as bar:
            task = bar.add_task(self.text, total=self.total, counted="", rate="", left="")
            while True:
                done = self.done if self._count is None else self._count()
                bar.update(
                    task,
                    completed=done,
                    total=self.total,
                    counted=self._counted(done),
                    rate=f"{self._amount(round(done / self._elapsed()))}/s",
                    left=self._left(done),
                    refresh=True,
                )
                if self._ended.wait(_EVERY_SECONDS):
                    return

    def _counted(self, done: int) -> str:
        """Return the count with its unit."""
        if not self.unit:
            return ""
        amount = self._amount(done)
        return amount if self.unit == "bytes" else f"{amount} {self.unit}"

    def _amount(self, count: int) -> str:
        return human_bytes(count) if self.unit == "bytes" else human_count(count)

    def _elapsed(self) -> float:
        return max(1e-3, time.monotonic() - self._began)

    def _left(self, done: int) -> str:
        """Return the remaining time at the rate so far, where it can be told."""
        if not self.total or not 0 < done < self.total:
            return ""
        seconds = self._elapsed() * (self.total - done) / done
        return f"{timedelta(seconds=round(min(seconds, 1e9)))} left"
