"""The pages of docs/api/: the public names of each, by subject."""

from __future__ import annotations

from typing import NamedTuple


class Subject(NamedTuple):
    """A page: names by module, in their order; ``*`` is all names of a module."""

    title: str
    intro: str
    names: dict[str, str]


SUBJECTS = {
    "opening": Subject(
        "Stores and opening",
        "[guide.md](../guide.md) opens a store in each mode; [durability.md](../durability.md) has"
        " the checks and repairs of opening.",
        {
            "rmqstore": "open MessageStore MessageStore.close MessageStore.clock Recovery"
            " RecoveredRange"
        },
    ),
    "writing": Subject(
        "Writing",
        "One message, a batch, columns, or an Arrow table. From asyncio: [asyncio.md](asyncio.md).",
        {
            "rmqstore": "MessageStore.put MessageStore.put_batch MessageStore.put_many"
            " MessageStore.put_table MessageStore.flush MessageStore.wait_durable PutResult"
            " PutManyResult PutStatus"
        },
    ),
    "reading": Subject(
        "Reading and queries",
        "Messages by queue offset, by physical offset, by id, by key.",
        {
            "rmqstore": "MessageStore.get MessageStore.at MessageStore.message MessageStore.query"
            " MessageStore.query_many MessageStore.locate_many MessageStore.passed_over"
            " MessageStore.index_coverage GetResult GetStatus Message Topic Queue"
        },
    ),
    "columns": Subject(
        "Scans, columns and datasets",
        "Ranges of the log as columns: Arrow, pandas, Polars, DuckDB. For Spark:"
        " [spark.md](spark.md).",
        {"rmqstore": "MessageStore.scan Scan"},
    ),
    "consumers": Subject(
        "Consumers, retries and lag",
        "Groups and their offsets: [topics.md](topics.md).",
        {"rmqstore": "MessageStore.consumer Consumer MessageStore.lag Lag"},
    ),
    "transactions": Subject(
        "Transactions and delays",
        "Half messages until their commit, and delayed messages until they are due. A delay is an"
        " argument of [put](writing.md#messagestoreput).",
        {
            "rmqstore": "MessageStore.begin Transaction MessageStore.in_doubt InDoubt"
            " MessageStore.delayed Delayed"
        },
    ),
    "topics": Subject(
        "Topics, groups and offsets",
        "`topics.json`, `subscriptionGroup.json` and `consumerOffset.json` of a store.",
        {
            "rmqstore": "MessageStore.keys MessageStore.items MessageStore.queue_ids"
            " MessageStore.queue_bounds MessageStore.create_topic MessageStore.delete_topic"
            " MessageStore.deleted_topics MessageStore.groups MessageStore.offsets"
            " MessageStore.create_group MessageStore.delete_group Group"
        },
    ),
    "configuration": Subject(
        "Configuration",
        "[parity.md](../parity.md) has every setting of the real store,"
        " [serve.md](../serve.md#with-a-brokerconf) the gateway's.",
        {"rmqstore": "StoreConfig"},
    ),
    "asyncio": Subject(
        "asyncio",
        "Consumers iterate with `async for`, too: [Consumer](consumers.md#consumer).",
        {"rmqstore": "MessageStore.aput aserve"},
    ),
    "retention": Subject(
        "Retention and snapshots",
        "Old files deleted, unused topics removed, and copies of a store.",
        {
            "rmqstore": "MessageStore.delete_expired Deleted MessageStore.clean_unused_topics"
            " MessageStore.snapshot Snapshot"
        },
    ),
    "serving": Subject(
        "Serving and testing",
        "A server for RocketMQ's clients, and pytest fixtures: [serve.md](../serve.md).",
        {"rmqstore": "serve Server", "rmqstore.testing": "*"},
    ),
    "filters": Subject(
        "Filters, traces and replies",
        "Contents of single messages.",
        {"rmqstore.filters": "*", "rmqstore.traces": "*", "rmqstore.replies": "*"},
    ),
    "metrics": Subject(
        "Statistics and metrics",
        "[serve.md](../serve.md#metrics) lists the metrics by name.",
        {"rmqstore": "MessageStore.stats", "rmqstore.metrics": "*"},
    ),
    "spark": Subject(
        "Spark",
        "[spark.md](../spark.md) has the data source's options, with examples.",
        {"rmqstore.spark": "*"},
    ),
    "toolbox": Subject(
        "Toolbox",
        "Checks, forecasts, repairs, sizes, searches, offsets, copies: the functions behind the"
        " verbs of [toolbox.md](../toolbox.md).",
        {"rmqstore.toolbox": "*"},
    ),
    "offline": Subject(
        "Offline: logs",
        "Ranges of a log, and logs copied and written. Queues and index:"
        " [offline-queues.md](offline-queues.md).",
        {
            "rmqstore.offline": "plan_log LogPlan log_extent LogExtent LogWalk LogSlice WalkTotals"
            " Damage RangesOverlapError SLICE_BYTES LogSource LogPiece Measured Copied"
            " assign_positions copy_pieces piece_bytes LogWriter check_table seal_store"
            " broker_start broker_start_of BrokerStart Finding"
        },
    ),
    "offline-queues": Subject(
        "Offline: queues and index",
        "Built from a log, and compared with existing files. Ranges of a log:"
        " [offline.md](offline.md).",
        {
            "rmqstore.offline": "Build RangeReport BuildStep StepReport BuildTotals"
            " check_contiguous join_queues QueueRange QueueGap QueueNumbers load_queue_numbers"
            " save_queue_numbers QueueWriter QueueAppender sync_queues QueueFiles UnitRun Unit"
            " UnitDifference differing_units used_units UNIT_BYTES SCHEDULE_TOPIC plan_index"
            " IndexPlan create_index_file fill_index_file name_index_files index_seconds"
            " IndexFileReader IndexEntry LooseEntry loose_entries ChainError ENTRY_BYTES"
        },
    ),
    "files": Subject(
        "Index files, queues, log and codec",
        "Single files and records, without a store around them; [format.md](../format.md) has their"
        " bytes.",
        {
            "rmqstore": "IndexFile ConsumeQueue CommitLog encode_record decode_record crc32"
            " string_hash"
        },
    ),
    "errors": Subject(
        "Errors",
        "A store's own errors are `StoreError`s; an error of the system is an `OSError` with the"
        " path. Jobs over a log also have"
        " [RangesOverlapError](offline.md#rangesoverlaperror).",
        {
            "rmqstore": "StoreError StoreNotFoundError StoreLockedError StoreCorruptError"
            " IncompatibleStoreError StoreFailedError StoreClosedError ReadOnlyStoreError"
            " ForkedStoreError PutError MessageIllegalError FilterError TopicNotFoundError"
            " GroupNotFoundError ConsumeDisabledError MessageNotFoundError MessagesRemovedError"
            " RmqStoreWarning"
        },
    ),
}
CONSTANTS = {
    "SLICE_BYTES": "Bytes of the log in a `LogSlice`, by default.",
    "QueueNumbers": "A number for each queue, by topic and queue id.",
    "UNIT_BYTES": "Bytes of a unit of a consume queue.",
    "ENTRY_BYTES": "Bytes of an entry of an index file.",
    "SCHEDULE_TOPIC": "Topic of delayed messages; tags codes of its units are delivery times.",
    "RUNTIME": "Prefix of the metrics of a broker's runtime info.",
    "RUNTIME_LABELS": "Labels of the metrics of a broker's runtime info.",
    "Trace": "Any event of a trace message.",
}
