"""Reading stores in batch: ``spark.read.format("rmqstore")``.

Source: pyspark, ``sql/datasource.py`` DataSourceReader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.option_names import BATCH_ALIASES, BATCH_OPTIONS
from rmqstore.spark.common.options import OptionError, Options
from rmqstore.spark.common.schema import columns_of
from rmqstore.spark.read.filters import Condition, Filters, condition_of
from rmqstore.spark.read.options import parse_selection
from rmqstore.spark.read.partitions import read_partition
from rmqstore.spark.read.plan import plan
from rmqstore.spark.read.positions import parse_from, parse_until
from rmqstore.spark.read.query import Query, Way

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReader"]

_WAYS = ("auto", "commitlog", "consumequeue", "index")
_QUEUE_OPTIONS = (
    "queues",
    "consumeFrom",
    "consumeFromTimestamp",
    "consumeUntil",
    "consumeUntilTimestamp",
)


class BatchReader(DataSourceReader):
    """Batch query: planned on the driver, read in the tasks.

    Raises ``OptionError`` or ``SchemaError`` for an invalid option or column,
    ``StoreNotFoundError`` if a path is no store.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.schema = schema
        self.query = _query(options, schema)

    @property
    def pushFilters(self) -> _Push:
        """Hook for Spark's filter push-down."""
        return _Push(self)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters that Arrow evaluates exactly as Spark; return the rest."""
        taken: list[Condition] = list(self.query.filters.conditions)
        left: list[Filter] = []
        for asked in filters:
            condition = condition_of(asked, self.schema.names)
            if condition is None:
                left.append(asked)
            else:
                taken.append(condition)
        self.query = replace(self.query, filters=Filters(tuple(taken)))
        return iter(left)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions; errors as :func:`rmqstore.spark.read.plan.plan`.

        For an empty list Spark makes a partition of its own, without rows.
        """
        with one_line_errors():
            return plan(self.query)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows; errors as :func:`rmqstore.spark.read.partitions.read_partition`."""
        return read_partition(partition, self.schema)


def _query(given: Mapping[str, str], schema: StructType) -> Query:
    options = Options(given, BATCH_OPTIONS, BATCH_ALIASES, what="the batch source")
    columns = columns_of(schema)
    selection = parse_selection(options)
    if selection.columns is not None and set(selection.columns) != set(columns):
        name = "columns" if "columns" in options else "includeProperties"
        raise OptionError(f"option {name!r} and the schema contradict each other")
    way = cast("Way", options.choice("scan", "auto", _WAYS))
    begin, until = parse_from(options), parse_until(options)
    if "group" in options and (begin is None or begin.group is None):
        raise OptionError("option 'group' is given, but 'consumeFrom' is not 'group'")
    if way == "index" and selection.keys is None:
        raise OptionError("option 'scan' is 'index', but option 'keys' names none")
    if way in {"index", "commitlog"}:
        for name in _QUEUE_OPTIONS:
            if name in options:
                raise OptionError(
                    f"options 'scan' and {name!r} contradict each other: {name!r} goes along queues"
                )
    return Query(selection, begin, until, way)


class _Push:
    """``pushFilters`` of a reader, for sessions without push-down to sources.

    Such a session refuses readers that override the method, detected by ``__func__``; other
    sessions just call it.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__: Any = DataSourceReader.pushFilters

    def __call__(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        return self._reader.push(filters)
