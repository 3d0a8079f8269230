"""The sink of the format ``"rmqstore"`` with points at which processes are killed.

A test writes the name of a point into a file; whoever comes to the point first takes the file away
and is killed there. The sink's own code runs unchanged between the points.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from rmqstore.spark.datasource import RmqStoreDataSource
from rmqstore.spark.sink import append
from rmqstore.spark.sink.ledger import Ledger
from rmqstore.spark.sink.writers import StreamWriter
from support.clusters import processes_of

AFTER_STAGING = "task killed after staging"
COMMIT_POINTS = (
    "driver killed before the intent",
    "driver killed after the intent",
    "driver killed in the append",
    "driver killed between append and ledger",
    "driver killed after the ledger",
    "driver killed before the removal of staged files",
)
BEFORE_INTENT, AFTER_INTENT, IN_APPEND, BEFORE_LEDGER, AFTER_LEDGER, BEFORE_REMOVAL = COMMIT_POINTS
HOLD_BOUND, HELD_TICK = 20.0, 0.02


@dataclass(frozen=True)
class Control:
    """Files by which a test and the processes that it kills communicate."""

    directory: str

    @property
    def armed(self) -> Path:
        return Path(self.directory, "armed")

    @property
    def hit(self) -> Path:
        return Path(self.directory, "hit")

    @property
    def hold(self) -> Path:
        return Path(self.directory, "hold")

    @property
    def held(self) -> Path:
        return Path(self.directory, "held")

    def arm(self, point: str) -> None:
        self.hit.unlink(missing_ok=True)
        temporary = self.armed.with_suffix(".tmp")
        temporary.write_text(point)
        temporary.replace(self.armed)

    def comes_to(self, point: str) -> bool:
        """Whether this process is to be killed here."""
        with contextlib.suppress(FileNotFoundError):
            if self.armed.read_text() == point:
                self.armed.rename(self.hit)  # one alone does not get the error
                return True
        return False

    def die_at(self, point: str) -> None:
        """End the driver, with all its processes, if it is to die here."""
        if self.comes_to(point):
            for pid in processes_of(os.getsid(0)):
                if pid != os.getpid():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def passing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on; stop in the middle of a task while the test holds it there."""
        for batch in batches:
            give_up = time.monotonic() + HOLD_BOUND
            while self.hold.exists() and time.monotonic() < give_up:
                (self.held / str(os.getpid())).touch()
                time.sleep(HELD_TICK)
            yield batch


class FaultyDataSource(RmqStoreDataSource):
    """The format, with the option ``control``."""

    @classmethod
    def name(cls) -> str:
        return "rmqstore_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
        options = {name: value for name, value in self.options.items() if name != "control"}
        return FaultyWriter(Control(self.options["control"]), options, schema, overwrite)


class FaultyWriter(StreamWriter):
    """The stream's sink, whose tasks and commits come past the points."""

    def __init__(
        self, control: Control, options: dict[str, str], schema: StructType, overwrite: bool
    ) -> None:
        super().__init__(options, schema, overwrite)
        self.control = control

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        message = super().write(iterator)
        if message.file.rows and self.control.comes_to(AFTER_STAGING):
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:
        if not _points:
            _points.append(_set_points(self.control))
        super().commit(messages, batchId)


_points: list[None] = []  # of this process, which may commit many batches


def _set_points(control: Control) -> None:
    """Put the points around the steps of a commit."""

    def around(name: str, before: str, after: str | None = None) -> None:
        step: Callable[..., Any] = getattr(Ledger, name)

        def passing(*arguments: Any, **named: Any) -> Any:
            control.die_at(before)
            result = step(*arguments, **named)
            if after is not None:
                control.die_at(after)
            return result

        setattr(Ledger, name, passing)

    around("begin", BEFORE_INTENT, AFTER_INTENT)
    around("seal", BEFORE_LEDGER)
    around("end", AFTER_LEDGER)
    around("sweep", BEFORE_REMOVAL)
    whole = append.staged_batches

    def in_halves(path: Path, skip: int = 0) -> Iterator[pa.RecordBatch]:
        for batch in whole(path, skip):
            half = batch.num_rows // 2
            if half:
                yield batch.slice(0, half)
            control.die_at(IN_APPEND)  # the first half is in the log
            yield batch.slice(half)

    append.staged_batches = in_halves
