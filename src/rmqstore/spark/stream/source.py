"""The streaming source, as Spark calls it: between two batches, and in tasks.

One object is in the driver's process and answers between batches; copies of it, with only the
options, read in the tasks.

Source: pyspark, ``sql/datasource.py`` DataSourceStreamReader; the options mean what those of
Spark's Kafka source do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.schema import columns_of
from rmqstore.spark.read.partitions import StorePartition, read_partition
from rmqstore.spark.stream.offsets import StreamOffset
from rmqstore.spark.stream.options import StreamOptions, parse_stream_options
from rmqstore.spark.stream.plan import opened_when_visible, plan_batch
from rmqstore.spark.stream.progress import StreamProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream of the messages of one or more stores; a pickle has only the options and the schema.

    Invalid options are raised by the first method call: Spark replaces errors of the constructor by
    one of its own.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._schema = schema
        self._given = dict(options)
        self._progress: StreamProgress | None = None

    @cached_property
    def _options(self) -> StreamOptions:
        columns_of(self._schema)
        return parse_stream_options(self._given)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state needed by a task."""
        return {**self.__dict__, "_progress": None}

    def _driver(self) -> StreamProgress:
        if self._progress is None:
            self._progress = StreamProgress(self._options)
        return self._progress

    @one_line_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        return self._driver().initial().to_json()

    @one_line_errors()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit in the options; Spark passes it or ``ReadAllAvailable`` back."""
        options = self._options
        if options.max_messages is not None:
            return ReadMaxRows(options.max_messages)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_messages is not None:
            return ReadMinRows(options.min_messages)
        return ReadAllAvailable()

    @one_line_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; ``start`` itself if there is none."""
        return self._driver().latest(
            start,
            everything=isinstance(limit, ReadAllAvailable),
            max_messages=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            max_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
        )

    @one_line_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the present end."""
        self._driver().freeze()

    @one_line_errors()
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the queues, and the stream's lag."""
        return self._driver().report()

    @one_line_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a batch, from its end alone.

        Raises ``DataLossError`` if messages of the batch are gone, and ``failOnDataLoss`` is set.
        """
        if start == end:
            return []
        batch = self._driver().still_there(StreamOffset.from_json(end))
        return plan_batch(batch, self._options.selection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if isinstance(partition, StorePartition):
            with one_line_errors():
                for piece in partition.pieces:
                    opened_when_visible(partition.path, piece.topics[0], piece.queue_id, piece.stop)
            yield from read_partition(partition, self._schema)

    @one_line_errors()
    def commit(self, end: dict[str, Any]) -> None:
        """Commit a batch as the group's progress."""
        self._driver().commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Close the stores."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
