"""Names of all options in their proper case: Spark passes them in lower case.

Aliases: names of the same options in Spark's Kafka source.
"""

from __future__ import annotations

__all__ = [
    "BATCH_ALIASES",
    "BATCH_OPTIONS",
    "KNOWN_OPTIONS",
    "SINK_OPTIONS",
    "STREAM_ALIASES",
    "STREAM_OPTIONS",
]

_COMMON = (
    "topics",
    "topicPattern",
    "queues",
    "tags",
    "keys",
    "sql",
    "consumeFrom",
    "consumeFromTimestamp",
    "onNoTimestampMatch",
    "group",
    "columns",
    "includeProperties",
    "minPartitions",
    "maxPartitionBytes",
    "maxMessagesPerPartition",
    "failOnDataLoss",
    "onCorrupt",
)
_COMMON_ALIASES = {
    "subscribe": "topics",
    "subscribePattern": "topicPattern",
    "assign": "queues",
    "startingOffsets": "consumeFrom",
    "startingTimestamp": "consumeFromTimestamp",
    "startingOffsetsByTimestamp": "consumeFromTimestamp",
    "startingOffsetsByTimestampStrategy": "onNoTimestampMatch",
    "includeHeaders": "includeProperties",
    "maxRecordsPerPartition": "maxMessagesPerPartition",
}

BATCH_OPTIONS = (*_COMMON, "consumeUntil", "consumeUntilTimestamp", "scan")
BATCH_ALIASES = {
    **_COMMON_ALIASES,
    "endingOffsets": "consumeUntil",
    "endingTimestamp": "consumeUntilTimestamp",
    "endingOffsetsByTimestamp": "consumeUntilTimestamp",
}

STREAM_OPTIONS = (
    *_COMMON,
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "discoveryInterval",
)
STREAM_ALIASES = {
    **_COMMON_ALIASES,
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "minMessagesPerTrigger",
}

SINK_OPTIONS = (
    "topic",
    "queueNums",
    "flush",
    "allowOverwrite",
    "jobId",
    "batchId",
    "lockTimeout",
    "config",
)

KNOWN_OPTIONS = {
    "the batch source": (*BATCH_OPTIONS, *BATCH_ALIASES),
    "the streaming source": (*STREAM_OPTIONS, *STREAM_ALIASES),
    "the sink": SINK_OPTIONS,
}
"""All names, by reader or writer."""
