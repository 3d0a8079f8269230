"""On-disk sizes and positions of RocketMQ 4.9.3's store, each defined once.

Integers are big-endian and signed.

Record of the commit log; fields after a host move by 12 for each IPv6 host::

    0        4          8        12       16    20           28              36
    +--------+----------+--------+--------+-----+------------+---------------+--------
    | TOTAL  | MAGIC    | BODY   | QUEUE  |FLAG | QUEUE      | PHYSICAL      | SYS
    | SIZE 4 | CODE 4   | CRC 4  | ID 4   | 4   | OFFSET 8   | OFFSET 8      | FLAG 4
    +--------+----------+--------+--------+-----+------------+---------------+--------
    40          48            56           64           72          76
    +-----------+-------------+------------+------------+-----------+-------------
    | BORN      | BORN HOST   | STORE      | STORE HOST | RECONSUME | PREPARED
    | TIME 8    | 4|16 + 4    | TIME 8     | 4|16 + 4   | TIMES 4   | OFFSET 8
    +-----------+-------------+------------+------------+-----------+-------------
    84
    +----------+------+-----------+-------+----------------+------------+
    | BODY     | BODY | TOPIC     | TOPIC | PROPERTIES     | PROPERTIES |
    | LENGTH 4 | n    | LENGTH 1  | n     | LENGTH 2       | n          |
    +----------+------+-----------+-------+----------------+------------+

In a record of RocketMQ 5's second version TOPIC LENGTH takes 2 bytes.

Consume queue unit::

    0                 8         12                20
    | PHYSICAL OFFSET | SIZE 4  | TAGS CODE 8     |

Unit of consumequeue_ext::

    0        2             10             18             20
    | SIZE 2 | TAGS CODE 8 | STORE TIME 8 | BIT MAP SIZE 2 | BIT MAP |

Index file: header of 40 bytes, slots of 4, entries of 20::

    0            8            16           24           32           36
    | BEGIN TIME | END TIME   | BEGIN PHY  | END PHY    | SLOTS USED | COUNT 4 |
    entry: | KEY HASH 4 | PHYSICAL OFFSET 8 | SECONDS 4 | PREVIOUS 4 |

Sources: ``store/CommitLog.java``, ``store/ConsumeQueue.java``, ``store/ConsumeQueueExt.java``,
``store/index/IndexFile.java``, ``store/index/IndexHeader.java``, ``store/StoreCheckpoint.java``.
"""


cdef enum:
    RECORD_SIZE = 0
    RECORD_MAGIC = 4
    RECORD_BODY_CRC = 8
    RECORD_QUEUE_ID = 12
    RECORD_FLAG = 16
    RECORD_QUEUE_OFFSET = 20
    RECORD_PHYSICAL_OFFSET = 28
    RECORD_SYS_FLAG = 36
    RECORD_BORN_TIMESTAMP = 40
    RECORD_BORN_HOST = 48
    RECORD_FIXED_BYTES = 91          # with IPv4 hosts, without body, topic, properties
    RECORD_HEAD_BYTES = 88           # up to the body, with IPv4 hosts
    RECORD_BLANK_BYTES = 8
    LOG_FILE_LEAST = 1024            # bytes of the smallest file that can be configured
    HOST_V4_BYTES = 8
    HOST_V6_BYTES = 20
    HOST_V6_EXTRA = 12
    CHECKSUM_PROPERTY_BYTES = 20     # "__CRC32#" 0x01, ten digits, 0x02

    MAGIC_MESSAGE = -626843481       # 0xDAA320A7
    MAGIC_MESSAGE_V2 = -626843477    # 0xDAA320AB: RocketMQ 5, topic length of 2 bytes
    MAGIC_BLANK = -875286124         # 0xCBD43194

    SYS_COMPRESSED = 0x1
    SYS_TRANSACTION = 0xC
    SYS_PREPARED = 0x4
    SYS_COMMIT = 0x8
    SYS_ROLLBACK = 0xC
    SYS_BORN_HOST_V6 = 0x10
    SYS_STORE_HOST_V6 = 0x20
    SYS_COMPRESSION = 0x700
    SYS_KNOWN = 0x7FF                # of 4.9.3 and 5; the others are zero

    TOPIC_MAX_BYTES = 127            # TOPICLENGTH is a signed byte
    TOPIC_V2_MAX_BYTES = 32767       # a signed short
    PROPERTIES_MAX_BYTES = 32767

    UNIT_BYTES = 20
    UNIT_PHYSICAL_OFFSET = 0
    UNIT_SIZE = 8
    UNIT_TAGS_CODE = 12
    UNIT_BLANK_SIZE = 0x7FFFFFFF     # size in a blank unit

    EXT_SIZE = 0
    EXT_TAGS_CODE = 2
    EXT_STORE_TIMESTAMP = 10
    EXT_BITMAP_SIZE = 18
    EXT_FIXED_BYTES = 20
    EXT_UNIT_MAX_BYTES = 32767
    EXT_END_BYTES = 4                # kept free at the end of a file
    EXT_FILE_LEAST = 24              # bytes of the smallest file that can be configured
    EXT_END_SIZE = -1                # size at the end of a file

    INDEX_BEGIN_TIMESTAMP = 0
    INDEX_END_TIMESTAMP = 8
    INDEX_BEGIN_PHY_OFFSET = 16
    INDEX_END_PHY_OFFSET = 24
    INDEX_SLOTS_USED = 32
    INDEX_COUNT = 36
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20
    ENTRY_KEY_HASH = 0
    ENTRY_PHYSICAL_OFFSET = 4
    ENTRY_SECONDS = 12
    ENTRY_PREVIOUS = 16

    CHECKPOINT_BYTES = 4096
    CHECKPOINT_PHYSIC = 0
    CHECKPOINT_LOGICS = 8
    CHECKPOINT_INDEX = 16
    CHECKPOINT_MASTER_FLUSHED = 24   # RocketMQ 5: log offsets
    CHECKPOINT_CONFIRMED = 32
    WATERMARK_AT = 2048              # ours; 4.9.3 keeps the bytes after its three numbers
    WATERMARK_BYTES = 96

    NAME_DIGITS = 20
    INDEX_NAME_DIGITS = 17
    PROPERTY_NAME_END = 1            # between a property's name and its value
    PROPERTY_VALUE_END = 2           # between one property and the next
