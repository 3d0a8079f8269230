"""Settings of 4.9.3's store without a use in a store of one program, and the reasons.

Source: ``store/config/MessageStoreConfig.java``.
"""

__all__ = ["MEANINGLESS", "REFUSED"]

_DLEDGER = "a DLedger group replicates its log, and a store of one program has no group"
_OF_DLEDGER = "it is of DLedger, which is refused"
_OF_REPLICATION = "it is of replication, and a store of one program has no slave, and is none"
_OF_DELIVERY = "delivery never waits for the disk: there is nothing to do meanwhile"
_OF_DELIVERY_FIGURES = "delivered messages are counted as any other put"
_OF_POOL = (
    "it is of the pool that keeps a put from waiting for the page cache; here pages are populated "
    "ahead of the writer, and a message is in the log's file when it is acknowledged"
)
_OF_LOCK = "it is of Java's two kinds of locks; the one lock here is fair enough for both"
_OF_BUSY = (
    "a put that waits for another one is not refused: none holds the lock while it waits for the "
    "disk"
)
_OF_HOLDERS = "a deleted file is kept for whoever holds it: none is unmapped, or deleted later"
_OF_UNLINKING = "a file of a queue is deleted under no lock that a put or a read waits for"
_OF_CAPS = "a query returns as many as are asked for; ``rmqstore serve`` has 4.9.3's default"
_OF_INDEX = "a recovery here compares the index with the log, and believes no time"

# By key of ``broker.conf``: the default, as written there, and the reason: half a sentence.
MEANINGLESS = {
    "commitIntervalCommitLog": ("200", _OF_POOL),
    "useReentrantLockWhenPutMessage": ("true", _OF_LOCK),
    "deleteConsumeQueueFilesInterval": ("100", _OF_UNLINKING),
    "destroyMapedFileIntervalForcibly": ("120000", _OF_HOLDERS),
    "redeleteHangedFileInterval": ("120000", _OF_HOLDERS),
    "putMsgIndexHightWater": ("600000", "no code of 4.9.3 reads it"),
    "commitCommitLogLeastPages": ("4", _OF_POOL),
    "commitCommitLogThoroughInterval": ("200", _OF_POOL),
    "maxMsgsNumBatch": ("64", _OF_CAPS),
    "messageIndexSafe": ("false", _OF_INDEX),
    "haListenPort": ("10912", _OF_REPLICATION),
    "haSendHeartbeatInterval": ("5000", _OF_REPLICATION),
    "haHousekeepingInterval": ("20000", _OF_REPLICATION),
    "haTransferBatchSize": ("32768", _OF_REPLICATION),
    "haMasterAddress": ("", _OF_REPLICATION),
    "haSlaveFallbehindMax": ("268435456", _OF_REPLICATION),
    "brokerRole": ("ASYNC_MASTER", _OF_REPLICATION),
    "slaveTimeout": ("3000", _OF_REPLICATION),
    "offsetCheckInSlave": ("false", _OF_REPLICATION),
    "debugLockEnable": ("false", _OF_LOCK),
    "duplicationEnable": ("false", _OF_REPLICATION),
    "diskFallRecorded": ("true", _OF_REPLICATION),
    "osPageCacheBusyTimeOutMills": ("1000", _OF_BUSY),
    "defaultQueryMaxNum": ("32", _OF_CAPS),
    "transientStorePoolEnable": ("false", _OF_POOL),
    "transientStorePoolSize": ("5", _OF_POOL),
    "fastFailIfNoBufferInStorePool": ("false", _OF_POOL),
    "dLegerGroup": ("", _OF_DLEDGER),
    "dLegerPeers": ("", _OF_DLEDGER),
    "dLegerSelfId": ("", _OF_DLEDGER),
    "preferredLeaderId": ("", _OF_DLEDGER),
    "enableBatchPush": ("false", _OF_DLEDGER),
    "enableScheduleMessageStats": ("true", _OF_DELIVERY_FIGURES),
    "enableScheduleAsyncDeliver": ("false", _OF_DELIVERY),
    "scheduleAsyncDeliverMaxPendingLimit": ("2000", _OF_DELIVERY),
    "scheduleAsyncDeliverMaxResendNum2Blocked": ("3", _OF_DELIVERY),
}
# Refused unless they have the default.
REFUSED = {"enableDLegerCommitLog": ("false", _DLEDGER)}
