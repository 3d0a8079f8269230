"""Building blocks of jobs over whole stores, for any engine with tasks: a process pool, Dask, Ray.

A log is divided into ranges; a process walks one, writes the units of its queues, copies its
records.  All that passes between processes is plain data that pickles.
To rebuild queues and index of a store on all cores::

    from concurrent.futures import ProcessPoolExecutor
    from rmqstore import offline

    plan = offline.plan_log("data/store")
    build = offline.Build(plan, "data/rebuilt")
    build.create()
    with ProcessPoolExecutor() as pool:
        reports = list(pool.map(build.scan, range(plan.count)))
        done = list(pool.map(build.run, build.steps(reports)))
    print(build.finish(reports, done))

The parts: ranges and their contents (:class:`LogPlan`, :class:`LogWalk`); queues and index built
from them (:class:`Build` and its parts) and compared with existing files (:class:`QueueFiles`,
:class:`IndexFileReader`); logs copied (:class:`LogSource`, :func:`copy_pieces`) and written
(:class:`LogWriter`, :func:`check_table`); a log with its queues sealed as a store
(:func:`seal_store`); and a 4.9.3 broker's start on a store, predicted (:func:`broker_start`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.base.layout import UNIT_BYTES
from rmqstore.base.lazy import loaded_on_use

if TYPE_CHECKING:
    from rmqstore.offline.build import Build, BuildStep, BuildTotals, StepReport
    from rmqstore.offline.findings import BrokerStart, Finding
    from rmqstore.offline.index import (
        ChainError,
        IndexEntry,
        IndexFileReader,
        IndexPlan,
        LooseEntry,
        create_index_file,
        fill_index_file,
        index_seconds,
        loose_entries,
        name_index_files,
        plan_index,
    )
    from rmqstore.offline.log_copy import (
        Copied,
        LogPiece,
        LogSource,
        Measured,
        QueueNumbers,
        assign_positions,
        copy_pieces,
        load_queue_numbers,
        piece_bytes,
        save_queue_numbers,
    )
    from rmqstore.offline.log_writer import SCHEDULE_TOPIC, LogWriter, check_table, seal_store
    from rmqstore.offline.queues import (
        QueueAppender,
        QueueFiles,
        QueueGap,
        QueueWriter,
        UnitDifference,
        differing_units,
        join_queues,
        sync_queues,
        used_units,
    )
    from rmqstore.offline.ranges import (
        LogExtent,
        LogPlan,
        QueueRange,
        RangeReport,
        RangesOverlapError,
        check_contiguous,
        log_extent,
        plan_log,
    )
    from rmqstore.offline.start import broker_start, broker_start_of
    from rmqstore.offline.walk import (
        ENTRY_BYTES,
        SLICE_BYTES,
        Damage,
        LogSlice,
        LogWalk,
        Unit,
        UnitRun,
        WalkTotals,
    )

__all__ = [
    "ENTRY_BYTES",
    "SCHEDULE_TOPIC",
    "SLICE_BYTES",
    "UNIT_BYTES",
    "BrokerStart",
    "Build",
    "BuildStep",
    "BuildTotals",
    "ChainError",
    "Copied",
    "Damage",
    "Finding",
    "IndexEntry",
    "IndexFileReader",
    "IndexPlan",
    "LogExtent",
    "LogPiece",
    "LogPlan",
    "LogSlice",
    "LogSource",
    "LogWalk",
    "LogWriter",
    "LooseEntry",
    "Measured",
    "QueueAppender",
    "QueueFiles",
    "QueueGap",
    "QueueNumbers",
    "QueueRange",
    "QueueWriter",
    "RangeReport",
    "RangesOverlapError",
    "StepReport",
    "Unit",
    "UnitDifference",
    "UnitRun",
    "WalkTotals",
    "assign_positions",
    "broker_start",
    "broker_start_of",
    "check_contiguous",
    "check_table",
    "copy_pieces",
    "create_index_file",
    "differing_units",
    "fill_index_file",
    "index_seconds",
    "join_queues",
    "load_queue_numbers",
    "log_extent",
    "loose_entries",
    "name_index_files",
    "piece_bytes",
    "plan_index",
    "plan_log",
    "save_queue_numbers",
    "seal_store",
    "sync_queues",
    "used_units",
]

_MODULES = {
    "BrokerStart": "findings",
    "Build": "build",
    "BuildStep": "build",
    "BuildTotals": "build",
    "ChainError": "index",
    "Copied": "log_copy",
    "Damage": "walk",
    "ENTRY_BYTES": "walk",
    "Finding": "findings",
    "IndexEntry": "index",
    "IndexFileReader": "index",
    "IndexPlan": "index",
    "LogExtent": "ranges",
    "LogPiece": "log_copy",
    "LogPlan": "ranges",
    "LogSlice": "walk",
    "LogSource": "log_copy",
    "LogWalk": "walk",
    "LogWriter": "log_writer",
    "LooseEntry": "index",
    "Measured": "log_copy",
    "QueueAppender": "queues",
    "QueueFiles": "queues",
    "QueueGap": "queues",
    "QueueNumbers": "log_copy",
    "QueueRange": "ranges",
    "QueueWriter": "queues",
    "RangeReport": "ranges",
    "RangesOverlapError": "ranges",
    "SCHEDULE_TOPIC": "log_writer",
    "SLICE_BYTES": "walk",
    "StepReport": "build",
    "Unit": "walk",
    "UnitDifference": "queues",
    "UnitRun": "walk",
    "WalkTotals": "walk",
    "assign_positions": "log_copy",
    "broker_start": "start",
    "broker_start_of": "start",
    "check_contiguous": "ranges",
    "check_table": "log_writer",
    "copy_pieces": "log_copy",
    "create_index_file": "index",
    "differing_units": "queues",
    "fill_index_file": "index",
    "index_seconds": "index",
    "join_queues": "queues",
    "load_queue_numbers": "log_copy",
    "log_extent": "ranges",
    "loose_entries": "index",
    "name_index_files": "index",
    "piece_bytes": "log_copy",
    "plan_index": "index",
    "plan_log": "ranges",
    "save_queue_numbers": "log_copy",
    "seal_store": "log_writer",
    "sync_queues": "queues",
    "used_units": "queues",
}

__getattr__, __dir__ = loaded_on_use(__name__, _MODULES)
