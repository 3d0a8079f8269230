"""Arguments of ``df.write`` and ``df.writeStream``: options, columns, and the store's limits.

Source: pyspark, ``sql/datasource.py`` DataSource.writer.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore import opening
from rmqstore.config.file_sizes import sizes_left_open
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import log_paths
from rmqstore.errors import StoreNotFoundError
from rmqstore.files import paths
from rmqstore.spark.common.columns import COLUMNS, SINK_COLUMNS, SchemaError
from rmqstore.spark.common.option_names import SINK_OPTIONS
from rmqstore.spark.common.options import OptionError, Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "SinkLimits",
    "WriteOptions",
    "limits_of",
    "parse_write_options",
    "sink_columns",
]

_MAX_QUEUES = 65536
_LOCK_SECONDS = 60.0
_JOB_ID_LENGTH = 256


@dataclass(frozen=True)
class SinkLimits:
    """Limits of the store's records."""

    max_message_size: int  # bytes of a record
    file_size: int  # bytes of a commit log file; no record spans two
    record_checksum: bool  # whether records carry ``__CRC32#``
    store_host_v6: bool  # whether the store's host is an IPv6 address


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write."""

    path: str  # directory of the store, absolute
    topic: str | None  # topic of all rows, in place of the column
    # queues of topics created by the write; None: as configured for the store
    queue_nums: int | None
    sync: bool  # whether all is forced to the disk before a write counts as done
    allow_overwrite: bool
    job_id: str | None  # a batch write of a job already written is dropped
    batch_id: int  # number of this part, if a job is written in several
    lock_timeout: float  # seconds to wait for another writer of the store
    config: str | None  # a ``broker.conf`` with the sizes of the store

    def store_config(self) -> StoreConfig | None:
        """Return the configuration in the options, or None; the log must be inside the store.

        Raises ``ValueError`` if it is outside: only one directory is staged and replaced.
        """
        if self.config is None:
            return None
        config = StoreConfig.from_file(self.config)
        if log_paths(str(self.path), config) is not None:
            raise ValueError(
                f"config: {self.config} has the log outside {self.path}: Spark writes none there"
            )
        return config


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a sink; ``OptionError`` names an unknown or contradictory one."""
    options = Options(given, SINK_OPTIONS, what="the sink")
    found = options.paths()
    if len(found) > 1:
        raise OptionError(f"option 'path' names {len(found)} stores; a sink writes one")
    topic = options.text("topic")
    if topic is not None and not paths.is_topic_name(topic):
        raise options.error("topic", "1 to 127 of [%|a-zA-Z0-9_-]")
    job_id = options.text("jobId")
    if job_id is not None and not 1 <= len(job_id) <= _JOB_ID_LENGTH:
        raise options.error("jobId", f"1 to {_JOB_ID_LENGTH} characters")
    batch_id = options.integer("batchId", low=0)
    if batch_id is not None and job_id is None:
        raise OptionError("option 'batchId' needs option 'jobId': whose batch it is")
    config = options.text("config")
    if config is not None:
        config = str(Path(config).absolute())
        try:
            StoreConfig.from_file(config)
        except (OSError, ValueError) as error:
            raise OptionError(f"option 'config' is {config!r}: {error}") from None
    return WriteOptions(
        path=found[0],
        topic=topic,
        queue_nums=options.integer("queueNums", low=1, high=_MAX_QUEUES),
        sync=options.choice("flush", "sync", ("sync", "async")) == "sync",
        allow_overwrite=options.flag("allowOverwrite", False),
        job_id=job_id,
        batch_id=batch_id or 0,
        lock_timeout=options.seconds("lockTimeout", _LOCK_SECONDS),
        config=config,
    )


def sink_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """Return the columns to write, checked, in the order of ``SINK_COLUMNS``.

    ``topic``, the option, replaces the column. Raises ``SchemaError`` if a column is unknown,
    repeated, of another type, or missing.
    """
    seen: set[str] = set()
    for field in schema.fields:
        name = field.name
        if name not in SINK_COLUMNS:
            near = difflib.get_close_matches(name.lower(), SINK_COLUMNS, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise SchemaError(
                f"the sink writes no column {name!r}{hint}; it writes {', '.join(SINK_COLUMNS)}"
            )
        if name in seen:
            raise SchemaError(f"column {name!r} appears twice")
        seen.add(name)
        if not COLUMNS[name].is_writable_as(field.dataType):
            raise SchemaError(
                f"column {name!r} must be {COLUMNS[name].writable_text}, "
                f"not {field.dataType.simpleString()}"
            )
    if "body" not in seen:
        raise SchemaError("column 'body' is missing; each row has a body")
    if topic is None and "topic" not in seen:
        raise SchemaError("column 'topic' is missing, and there is no option 'topic'")
    return tuple(name for name in SINK_COLUMNS if name in seen)


def limits_of(path: str, config: StoreConfig | None) -> SinkLimits:
    """Return the record limits of the store at a path, or of the one to be made there.

    Raises ``OptionError`` if the path is no directory, or ``config`` has other sizes than the
    store, and the errors of :func:`rmqstore.open`.
    """
    if Path(path).exists() and not Path(path).is_dir():
        raise OptionError(f"option 'path' is {path!r}, which is no directory")
    try:
        with opening.open(path, "r", config=config) as store:
            found = store.config.mapped_file_size_commit_log
            if (
                config is not None
                and "mapped_file_size_commit_log" not in sizes_left_open(config)
                and config.mapped_file_size_commit_log != found
            ):
                raise OptionError(
                    "option 'config' gives files of the commit log "
                    f"{config.mapped_file_size_commit_log} bytes; those of {path} have {found}"
                )
            return limits_in_force(store.config)
    except StoreNotFoundError:
        return limits_in_force(config if config is not None else StoreConfig())


def limits_in_force(config: StoreConfig) -> SinkLimits:
    """Return the record limits of a configuration."""
    return SinkLimits(
        max_message_size=config.max_message_size,
        file_size=config.mapped_file_size_commit_log,
        record_checksum=config.record_checksum,
        store_host_v6=config.store_host.startswith("["),
    )
