"""Meaning of each key of ``broker.conf`` that a store uses, a line each.

Source: ``store/config/MessageStoreConfig.java``, ``common/BrokerConfig.java``.
"""

from __future__ import annotations

from rmqstore.config.brokerconf import OTHER_KEYS
from rmqstore.config.reasons import MEANINGLESS, REFUSED

__all__ = ["MEANINGS", "meaning_of"]

MEANINGS = {
    "storePathRootDir": "directory of the store; the one that is opened goes before it",
    "storePathCommitLog": "directory of the log, or several separated by commas",
    "readOnlyCommitLogStorePaths": "directories of the log that get no new files",
    "mappedFileSizeCommitLog": "bytes of a log file",
    "mappedFileSizeConsumeQueue": "bytes of a queue file, 20 a message",
    "enableConsumeQueueExt": "whether queues have extension files, for filters",
    "mappedFileSizeConsumeQueueExt": "bytes of an extension file of a queue",
    "bitMapLengthConsumeQueueExt": "bits of the filter map in an extension",
    "flushIntervalCommitLog": "ms between two syncs of the log with ASYNC_FLUSH",
    "flushCommitLogTimed": "whether the log's syncs keep to their interval, or follow each put",
    "flushIntervalConsumeQueue": "ms between two syncs of the queues",
    "cleanResourceInterval": "ms between two looks for files to delete",
    "deleteCommitLogFilesInterval": "ms between two deletions of log files",
    "deleteWhen": "hours of the day at which expired files are deleted",
    "diskMaxUsedSpaceRatio": "percent of the disk above which expired files go at any hour",
    "fileReservedTime": "hours that a log file is kept",
    "maxMessageSize": "most bytes of a record",
    "checkCRCOnRecover": "whether recovery compares checksums of bodies",
    "flushCommitLogLeastPages": "least dirty pages for a sync of the log",
    "flushLeastPagesWhenWarmMapedFile": "pages between two syncs of a file that is warmed",
    "flushConsumeQueueLeastPages": "least dirty pages for a sync of a queue",
    "flushCommitLogThoroughInterval": "ms after which the log is synced whatever is dirty",
    "flushConsumeQueueThoroughInterval": "ms after which queues are synced whatever is dirty",
    "maxTransferBytesOnMessageInMemory": "most bytes of a pull of recent messages",
    "maxTransferCountOnMessageInMemory": "most messages of a pull of recent messages",
    "maxTransferBytesOnMessageInDisk": "most bytes of a pull of old messages",
    "maxTransferCountOnMessageInDisk": "most messages of a pull of old messages",
    "accessMessageInMemoryMaxRatio": "percent of memory whose messages count as recent",
    "messageIndexEnable": "whether keys are indexed",
    "maxHashSlotNum": "slots of an index file",
    "maxIndexNum": "entries of an index file",
    "flushDiskType": "whether a put waits for the disk",
    "syncFlushTimeout": "ms that a put waits for the disk with SYNC_FLUSH",
    "messageDelayLevel": "delays of the levels, from level 1",
    "flushDelayOffsetInterval": "ms between two writes of delayOffset.json",
    "cleanFileForciblyEnable": "whether a full disk deletes files that are not expired",
    "warmMapedFileEnable": "whether new log files are touched page by page",
    "enableLmq": "whether there are light queues",
    "enableMultiDispatch": "whether a message goes into several queues",
    "maxLmqConsumeQueueNum": "most light queues",
    "defaultTopicQueueNums": "queues of a topic that a put makes",
    "transactionCheckInterval": "ms between two checks of transactions in doubt",
    "transactionTimeOut": "ms before a transaction is checked first",
    "transactionCheckMax": "checks after which a transaction is given up",
    "enableCalcFilterBitMap": "whether filters are computed when a message is put",
    "expectConsumerNumUseFilter": "subscriptions by filter that the filter map is made for",
    "maxErrorRateOfBloomFilter": "percent of false hits of the filter map",
    "storeHost": "address in each record and message id; of this store, not of a broker",
    "maxBodySize": "most bytes of an inflated body; of this store, not of a broker",
    "compressAbove": "bytes above which bodies are deflated; of this store, not of a broker",
    "recordChecksum": "whether records have a checksum; of this store, not of a broker",
    "retentionClock": "times that retention goes by; of this store, not of a broker",
    "diskSpaceWarningLevelRatio": "percent of the disk above which puts fail",
    "diskSpaceCleanForciblyRatio": "percent of the disk above which any files go",
}


def meaning_of(key: str) -> str | None:
    """Return the meaning of a key here; ``None`` for one that no broker knows."""
    if key in MEANINGS:
        return MEANINGS[key]
    _, reason = MEANINGLESS.get(key) or REFUSED.get(key) or ("", "")
    if reason:
        return f"no effect here: {reason}"
    return "of another part of the broker: no effect on a store" if key in OTHER_KEYS else None
