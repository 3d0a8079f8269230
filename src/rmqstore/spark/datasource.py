"""The format ``"rmqstore"``: Spark's entry to readers and writers.

Source: pyspark, ``sql/datasource.py`` DataSource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rmqstore.spark.read.batch import BatchReader
    from rmqstore.spark.sink.writers import BatchWriter, StreamWriter
    from rmqstore.spark.stream.source import StreamReader

__all__ = ["RmqStoreDataSource"]


class RmqStoreDataSource(DataSource):
    """Stores for ``spark.read``, ``spark.readStream``, ``df.write`` and ``df.writeStream``.

    Notes
    -----
    Each part is imported on demand: Spark imports this module in every session that looks for
    Python data sources.
    """

    @one_line_errors()
    def __init__(self, options: dict[str, str]) -> None:
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rmqstore"

    @one_line_errors()
    def schema(self) -> StructType:
        """Return the columns read by default."""
        from rmqstore.spark.read.options import default_schema

        return default_schema(self.options)

    @one_line_errors()
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query; its errors name the option."""
        from rmqstore.spark.read.batch import BatchReader

        return BatchReader(self.options, schema)

    @one_line_errors()
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a stream."""
        from rmqstore.spark.stream.source import StreamReader

        return StreamReader(self.options, schema)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch."""
        from rmqstore.spark.sink.writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a stream's batches."""
        from rmqstore.spark.sink.writers import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
