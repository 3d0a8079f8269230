"""A scan as a ``pyarrow.dataset.Dataset`` that passes columns and filters of a query to the store.

Arrow itself applies each filter and projection, batch by batch; the store is read only for the
columns they name and, as far as ``pushdown.py`` can tell, only for matching messages. The scan's
own threads read ahead: Arrow's scanner would buffer a large store without a small bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Never

import pyarrow as pa
import pyarrow.acero
import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs

from rmqstore.columns import pushdown
from rmqstore.columns.side_by_side import cores

if TYPE_CHECKING:
    from rmqstore.columns.selection import ScanSelection

__all__ = ["StoreDataset", "StoreFragment", "StoreScanner"]

Columns = Iterable[str] | Mapping[str, Any]

_BENEATH = "a store is read by the methods of StoreDataset alone"


class StoreDataset(pyarrow.dataset.FileSystemDataset):  # type: ignore[misc]
    """Messages of a scan for DuckDB, Polars and pyarrow; made by :meth:`Scan.dataset`.

    Each query is a pass of its own over the store, up to the head at its beginning. Bounds of
    ``store_timestamp`` save reading, like ``since`` and ``until`` of a scan. The base class's files
    do not exist: operations that bypass the methods here, such as
    ``pyarrow.dataset.write_dataset(dataset)``, raise an error; pass them
    ``dataset.scanner().to_reader()``.
    """

    def __init__(self, scan: ScanSelection, filter: Any = None) -> None:
        file_format = pyarrow.dataset.IpcFileFormat()
        files = pyarrow.fs.LocalFileSystem()
        beneath = file_format.make_fragment(_BENEATH, files)
        super().__init__([beneath], scan.schema, file_format, files)
        self._scan = scan
        self._filter = filter

    def __repr__(self) -> str:
        filtered = "" if self._filter is None else f" where {self._filter}"
        return f"<rmqstore.StoreDataset of {self._scan!r}{filtered}>"

    def __reduce__(self) -> Never:
        raise TypeError("a StoreDataset cannot be pickled: open the store where it is read")

    @property
    def schema(self) -> pa.Schema:
        """Types of the columns."""
        return self._scan.schema

    @property
    def files(self) -> list[str]:
        """Empty: Arrow could not read the store's files."""
        return []

    def scanner(
        self,
        columns: Columns | None = None,
        filter: Any = None,
        batch_size: int | None = None,
        *,
        batch_readahead: int = 0,
        fragment_readahead: int = 0,
        fragment_scan_options: Any = None,
        use_threads: bool = True,
        cache_metadata: bool = True,
        memory_pool: Any = None,
    ) -> StoreScanner:
        """Return a scanner of these columns of the messages that pass a filter."""
        scan = self._scan.replace(threads=cores() if use_threads else 1)
        if batch_size is not None and batch_size < scan.batch_rows:
            scan = scan.replace(batch_rows=batch_size)
        return StoreScanner(scan, columns, _conjunction(self._filter, filter))

    def filter(self, expression: Any) -> StoreDataset:
        """Return the dataset of messages that also pass ``expression``."""
        return StoreDataset(self._scan, _conjunction(self._filter, expression))

    def replace_schema(self, schema: pa.Schema) -> StoreDataset:
        """Return the dataset with a subset of its columns; types must be the store's."""
        for field in schema:
            at = self.schema.get_field_index(field.name)
            if at < 0 or self.schema.field(at).type != field.type:
                raise ValueError(f"the dataset has no column {field.name!r} of type {field.type}")
        if self._filter is not None:
            raise ValueError("the dataset is filtered: replace the schema first")
        return StoreDataset(self._scan.replace(columns=schema.names))

    def get_fragments(self, filter: Any = None) -> Iterator[StoreFragment]:
        """Iterate over the only fragment: a store is read in one pass, as DataFusion does."""
        yield StoreFragment(self)

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Join in memory, as ``pyarrow.dataset.Dataset.join``."""
        return self._in_memory().join(_plain(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Join in memory, as ``pyarrow.dataset.Dataset.join_asof``."""
        return self._in_memory().join_asof(_plain(right_dataset), *arguments, **options)

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Sort in memory, as ``pyarrow.dataset.Dataset.sort_by``."""
        return self._in_memory().sort_by(sorting, **options)

    def _in_memory(self) -> Any:
        return pyarrow.dataset.dataset(self.scanner().to_table())


class StoreFragment:
    """All of a :class:`StoreDataset`, for engines that read by fragments."""

    def __init__(self, dataset: StoreDataset) -> None:
        self._dataset = dataset
        self.physical_schema = dataset.schema
        self.partition_expression = pyarrow.compute.scalar(True)

    def __repr__(self) -> str:
        return f"<rmqstore.StoreFragment of {self._dataset!r}>"

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns | None = None,
        filter: Any = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> StoreScanner:
        """Return a scanner, as :meth:`StoreDataset.scanner`; ``schema`` is the dataset's own."""
        dataset = self._dataset
        if schema is not None and not schema.equals(dataset.schema):
            dataset = dataset.replace_schema(schema)
        return dataset.scanner(columns, filter, batch_size, **options)

    def to_batches(
        self, schema: pa.Schema | None = None, columns: Columns | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows that pass, in batches; arguments as :meth:`scanner`."""
        return self.scanner(schema, columns, **options).to_batches()

    def to_table(
        self, schema: pa.Schema | None = None, columns: Columns | None = None, **options: Any
    ) -> pa.Table:
        """Return all rows that pass; arguments as :meth:`scanner`."""
        return self.scanner(schema, columns, **options).to_table()

    def head(self, num_rows: int, columns: Columns | None = None, **options: Any) -> pa.Table:
        """Return the first rows that pass; further arguments as :meth:`scanner`."""
        return self.scanner(columns=columns, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Return the number of rows that pass; arguments as :meth:`scanner`."""
        return self.scanner(filter=filter, **options).count_rows()


class StoreScanner:
    """One query of a :class:`StoreDataset`; each method is a separate pass.

    Works as a ``pyarrow.dataset.Scanner``. Errors of the store are raised unchanged.
    """

    dataset_schema: pa.Schema
    projected_schema: pa.Schema

    def __init__(self, scan: ScanSelection, columns: Columns | None, filter: Any) -> None:
        self.dataset_schema = scan.schema
        self._filter = filter
        self._projection: dict[str, Any] | list[str] | None = None
        if isinstance(columns, Mapping):
            self._projection = {name: _expression(of) for name, of in columns.items()}
        elif columns is not None:
            self._projection = [columns] if isinstance(columns, str) else list(columns)
        # Applied to no rows, a mismatch raises here, with Arrow's text.
        self.projected_schema = self._evaluated(self.dataset_schema.empty_table()).schema
        self._scan = scan.replace(columns=self._needed())

    def __repr__(self) -> str:
        return f"<rmqstore.StoreScanner of {self._scan!r}>"

    def _needed(self) -> tuple[str, ...]:
        """Columns that the projection and the filter use, in the dataset's order."""
        schema = self.dataset_schema
        named: set[str] = set()
        expressions = [] if self._filter is None else [self._filter]
        if self._projection is None:
            named.update(schema.names)
        elif isinstance(self._projection, list):
            named.update(self._projection)
        else:
            expressions += self._projection.values()
        for expression in expressions:
            fields = pushdown.fields_of(expression)
            named.update(schema.names if fields is None else fields)
        needed = tuple(name for name in schema.names if name in named)
        if needed or not schema.names:
            return needed
        # Rows are counted through one column; a numeric one is cheapest.
        numbers = (field.name for field in schema if pa.types.is_integer(field.type))
        return (next(numbers, schema.names[0]),)

    def _evaluated(self, table: pa.Table) -> pa.Table:
        """Return the rows that pass, projected by Arrow."""
        acero = pyarrow.acero
        steps = []
        if self._filter is not None:
            steps.append(acero.Declaration("filter", acero.FilterNodeOptions(self._filter)))
        if isinstance(self._projection, dict):
            options = acero.ProjectNodeOptions(
                list(self._projection.values()), list(self._projection)
            )
            steps.append(acero.Declaration("project", options))
        if steps:
            source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
            table = acero.Declaration.from_sequence([source, *steps]).to_table(use_threads=False)
        if isinstance(self._projection, list):
            table = _selected(table, self._projection)
        return table

    def _bounds(self) -> pushdown.Bounds:
        return {} if self._filter is None else pushdown.bounds_of(self._filter)

    def _pieces(self) -> Iterator[Any]:
        """Iterate over the rows that pass, as record batches or tables of a batch each."""
        as_it_is = self._filter is None and not isinstance(self._projection, dict)
        for scan in pushdown.narrowed(self._scan, self._bounds()):
            for batch in scan.to_batches():
                if as_it_is:
                    yield _selected(batch, self.projected_schema.names)
                else:
                    yield self._evaluated(pa.Table.from_batches([batch]))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows that pass, in batches; errors as :meth:`Scan.to_batches`."""
        for piece in self._pieces():
            if isinstance(piece, pa.RecordBatch):
                yield piece
            elif piece.num_rows:
                yield _one_batch(piece)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows that pass as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows that pass by the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Return all rows that pass; errors as :meth:`Scan.to_batches`."""
        return pa.Table.from_batches(list(self.to_batches()), schema=self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows that pass; errors as :meth:`Scan.to_batches`."""
        if self._filter is None:
            return self._scan.count()
        counted = StoreScanner(self._scan, (), self._filter)
        return sum(piece.num_rows for piece in counted._pieces())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows that pass, reading no more."""
        found: list[pa.RecordBatch] = []
        left = num_rows
        if left > 0:
            rows = left if self._filter is None else self._scan.batch_rows
            scan = self._scan.replace(batch_rows=min(rows, self._scan.batch_rows), threads=1)
            for batch in StoreScanner(scan, self._projection, self._filter).to_batches():
                found.append(batch.slice(0, left))
                left -= found[-1].num_rows
                if left <= 0:
                    break
        return pa.Table.from_batches(found, schema=self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return the rows at these indices among those that pass, in the given order."""
        import numpy as np

        wanted = np.asarray(indices, dtype=np.int64)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        if len(ordered) and ordered[0] < 0:
            raise IndexError(f"index {ordered[0]} is below 0")
        found: list[pa.RecordBatch] = []
        at = done = 0
        if len(ordered):
            for batch in self.to_batches():
                upto = int(np.searchsorted(ordered, at + batch.num_rows))
                if upto > done:
                    found.append(batch.take(pa.array(ordered[done:upto] - at)))
                at, done = at + batch.num_rows, upto
                if done == len(ordered):
                    break
        if done < len(ordered):
            raise IndexError(f"index {ordered[done]} is out of range for {at} rows")
        table = pa.Table.from_batches(found, schema=self.projected_schema)
        return table.take(pa.array(np.argsort(order, kind="stable")))


def _conjunction(left: Any, right: Any) -> Any:
    right = right if right is None else _expression(right)
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _expression(value: Any) -> Any:
    """Return an expression, converted from Substrait if necessary."""
    if isinstance(value, pyarrow.compute.Expression):
        return value
    bound = getattr(value, "expressions", None)
    if isinstance(bound, Mapping) and len(bound) == 1:
        return next(iter(bound.values()))
    raise TypeError(f"an Expression is wanted, not {value!r}")


def _selected(rows: Any, names: list[str]) -> Any:
    """Return these columns; one may be repeated."""
    if rows.schema.names == names:
        return rows
    for name in names:
        if rows.schema.get_field_index(name) < 0:
            raise pa.ArrowInvalid(f"No match for FieldRef.Name({name}) in {rows.schema}")
    return rows.select(names)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    if not table.num_columns:
        rows = pa.record_batch([pa.nulls(table.num_rows)], names=[""])
        return rows.select([])
    return table.combine_chunks().to_batches()[0]


def _plain(dataset: Any) -> Any:
    return dataset._in_memory() if isinstance(dataset, StoreDataset) else dataset
