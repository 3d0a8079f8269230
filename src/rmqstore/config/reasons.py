"""Why settings of 4.9.3's store have no meaning here, or are refused: half a sentence each.

Source: ``store/config/MessageStoreConfig.java``.
"""

__all__ = [
    "DLEDGER",
    "OF_BUSY",
    "OF_CAPS",
    "OF_DELIVERY",
    "OF_DELIVERY_FIGURES",
    "OF_DLEDGER",
    "OF_HOLDERS",
    "OF_INDEX",
    "OF_LOCK",
    "OF_POOL",
    "OF_REPLICATION",
    "OF_UNLINKING",
]

DLEDGER = "a DLedger group replicates its log, and a store of one program has no group"
OF_DLEDGER = "of DLedger, which is refused"
OF_REPLICATION = "of replication: a store of one program has no slave, and is none"
OF_DELIVERY = "delivery never waits for the disk: there is nothing to do meanwhile"
OF_DELIVERY_FIGURES = "delivered messages are counted as any other put"
OF_POOL = (
    "of the pool that keeps a put from waiting for the page cache; here pages are populated "
    "ahead of the writer, and a message is in the log's file when it is acknowledged"
)
OF_LOCK = "of Java's two kinds of locks; there is one lock here, and it is fair enough for both"
OF_BUSY = (
    "a put that waits for another one is not refused: none holds the lock while it waits for the "
    "disk"
)
OF_HOLDERS = "a deleted file is kept for whoever holds it: none is unmapped, or deleted later"
OF_UNLINKING = "a file of a queue is deleted under no lock that a put or a read waits for"
OF_CAPS = "reading returns what is asked for, with no hidden cap"
OF_INDEX = "a recovery here compares the index with the log, and believes no time"
