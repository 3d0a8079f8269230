"""A new store from a DataFrame of any size, encoded and written by the executors.

Each task encodes its rows once, in a log of its own. Their sizes then determine their positions,
to which they are copied: rows computed again might differ.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.arguments import integer_within
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.offline import (
    LogPiece,
    LogSource,
    LogWriter,
    assign_positions,
    load_queue_numbers,
    piece_bytes,
    save_queue_numbers,
)
from rmqstore.spark.common.sight import SeenStore
from rmqstore.spark.jobs.columns import store_columns
from rmqstore.spark.jobs.copy_tasks import copy_tasks
from rmqstore.spark.jobs.new_store import complete, new_store
from rmqstore.spark.jobs.rebuild import configuration
from rmqstore.spark.jobs.tasks import run_on_rows, run_tasks

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["WrittenStore", "write_store"]

_COUNTS = "counts.json"  # in a segment: messages of each queue
_FIRSTS = "firsts.json"  # in a segment: their first queue offsets in the new store
_MAX_QUEUE_NUMS = 65536


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """Result of :func:`write_store`.

    Attributes
    ----------
    path : str
        The store.
    messages : int
        Rows.
    log_bytes : int
        Bytes of their records.
    topics : mapping of str to int
        Messages by topic.
    processes : int
        Processes of executors that wrote log bytes.
    seconds : float
        Duration.
    """

    path: str
    messages: int
    log_bytes: int
    topics: Mapping[str, int]
    processes: int
    seconds: float


def write_store(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    queue_nums: int = 4,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> WrittenStore:
    """Write the rows of a DataFrame to a new store, all of its bytes by the executors.

    Parameters
    ----------
    df : DataFrame
        ``body`` is required (binary or string); ``topic``, ``tags``, ``keys``, ``queue_id``,
        ``properties``, ``flag``, ``born_timestamp`` and other columns of
        :meth:`MessageStore.put_table` are optional. Values set by the store are ignored.
    path : path-like
        On a file system shared by driver and executors; a new path, or an empty directory.
    topic : str, optional
        Topic of all rows, in place of the column.
    queue_nums : int, optional
        Queues of a topic, 1 to 65,536: rows without ``queue_id`` take turns. A topic gets more
        if a ``queue_id`` requires it.
    config : StoreConfig or path of a broker.conf, optional
        File sizes, limits, store host.

    Returns
    -------
    WrittenStore

    Raises
    ------
    DestinationError
        ``path`` is not empty; also a ``ValueError``.
    SchemaError, ValueError, TypeError
        A column or another argument has a wrong type or value.
    MessageIllegalError
        A row cannot be stored; nothing is left at ``path``.

    Notes
    -----
    Rows keep the DataFrame's order within a queue, and all have one store time. The DataFrame is
    computed once. Nothing is at ``path`` before all is written and forced to the disk; until
    then twice the space is needed next to it.
    """
    began = time.monotonic()
    queue_nums = integer_within("queue_nums", queue_nums, 1, _MAX_QUEUE_NUMS)
    settings = configuration(config)
    frame = store_columns(df, topic)
    spark = df.sparkSession
    with new_store(path) as making:
        staged = making / "staged"
        staged.mkdir()
        stage = _Stage(str(staged), settings, queue_nums)
        made = (SeenStore(str(making)),)
        segments = run_on_rows(frame, stage.run, made)
        directories = tuple(one.directory for one in segments)
        assign = _AssignFirstOffsets(str(making), directories, queue_nums)
        topics = run_tasks(spark, [assign], made)[0]
        file_size = settings.mapped_file_size_commit_log
        sources = {
            number: LogSource(
                str(Path(one.directory, paths.COMMIT_LOG)),
                file_size,
                first_offsets=str(Path(one.directory, _FIRSTS)),
            )
            for number, one in enumerate(segments)
        }
        planned = assign_positions(
            (
                LogPiece(number, *bounds)
                for number, one in enumerate(segments)
                for bounds in one.pieces
            ),
            file_size,
        )
        log = str(making / paths.COMMIT_LOG)
        now = time.time_ns() // 1_000_000
        copied = run_tasks(spark, copy_tasks(planned, sources, log, file_size, now), made)
        complete(spark, making, settings, copied, staged=staged)
    return WrittenStore(
        path=os.fspath(path),
        messages=sum(one.messages for one in copied),
        log_bytes=sum(one.size for one in copied),
        topics=topics,
        processes=len({one.process for one in copied}),
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class _Segment:
    """Log of one task: its directory, and the pieces it can be divided into."""

    directory: str
    pieces: tuple[tuple[int, int, int], ...]  # start, stop, bytes


@dataclass(frozen=True)
class _Stage:
    """Encodes the rows of a partition into a log of its own."""

    directory: str
    config: StoreConfig
    queue_nums: int

    def run(
        self, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> Generator[None, None, _Segment]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        own = Path(self.directory, f"{partition}-{context.taskAttemptId()}")
        own.mkdir()
        pieces = _Pieces(self.config.mapped_file_size_commit_log)
        done = 0
        with LogWriter(own, self.config) as log:
            for batch in batches:
                table = _with_queue_ids(batch, partition + done, self.queue_nums)
                try:
                    offsets = log.append(table)
                except (ValueError, TypeError, StoreError) as error:
                    error.add_note(f"in partition {partition}, rows counted from its row {done} on")
                    raise
                done += batch.num_rows
                pieces.add(log, offsets)
                yield
            counts = log.message_counts()
        save_queue_numbers(own / _COUNTS, counts)
        return _Segment(str(own), tuple(pieces.found))


class _Pieces:
    """Division of a growing log into pieces, each within one file."""

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._cell = piece_bytes(file_size)
        self._last = -1  # the cell of the last piece
        self.found: list[tuple[int, int, int]] = []

    def add(self, log: LogWriter, offsets: NDArray[np.int64]) -> None:
        """Add appended records, which begin at ``offsets``."""
        import numpy as np

        cells = (offsets // self._file_size) * (self._file_size // self._cell + 1)
        cells += offsets % self._file_size // self._cell
        heads = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(offsets)]
        for head, following in itertools.pairwise(heads):
            start, last = int(offsets[head]), int(offsets[following - 1])
            if following == len(offsets):
                stop = log.end
            else:
                stop = int(offsets[following])
                if stop // self._file_size != last // self._file_size:  # a blank in between
                    stop = last + log.record_size(last)
            if self._last == int(cells[head]):
                start = self.found.pop()[0]
            self._last = int(cells[head])
            self.found.append((start, stop, stop - start))


def _with_queue_ids(batch: pa.RecordBatch, turn: int, queue_nums: int) -> pa.Table:
    """Return a batch with a queue for every row."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches([batch])
    at = table.schema.get_field_index("queue_id")
    if at >= 0 and table.column(at).null_count == 0:
        return table
    turns = pa.array((np.arange(turn, turn + batch.num_rows) % queue_nums).astype(np.int32))
    if at < 0:
        return table.append_column("queue_id", turns)
    given = table.column(at).cast(pa.int64())
    return table.set_column(at, "queue_id", pc.coalesce(given, turns.cast(pa.int64())))


@dataclass(frozen=True)
class _AssignFirstOffsets:
    """Assigns the segments' first queue offsets in the new store, and enters the topics."""

    making: str
    segments: tuple[str, ...]
    queue_nums: int

    def run(self) -> dict[str, int]:
        """Return the number of messages by topic."""
        ends: dict[str, Counter[int]] = {}
        for segment in self.segments:
            counts = load_queue_numbers(Path(segment, _COUNTS))
            firsts = {
                topic: {queue_id: ends.get(topic, Counter())[queue_id] for queue_id in queues}
                for topic, queues in counts.items()
            }
            save_queue_numbers(Path(segment, _FIRSTS), firsts)
            for topic, queues in counts.items():
                ends.setdefault(topic, Counter()).update(queues)
        table = TopicTable(self.making)
        for topic, queues in sorted(ends.items()):
            used = min(max(queues, default=-1) + 1, _MAX_QUEUE_NUMS)
            nums = max(self.queue_nums, used)
            table.put(TopicConfig(topic, read_queue_nums=nums, write_queue_nums=nums))
        table.save()
        return {topic: sum(queues.values()) for topic, queues in sorted(ends.items())}
