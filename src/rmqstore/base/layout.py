"""Sizes, positions and structures of the files on disk, and the ranges of Java's integers.

Named as in the core's ``_native/format/layout.pxd``, which has the diagrams; a test compares the
values.
"""

from __future__ import annotations

from struct import Struct

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

RECORD_QUEUE_ID = 12
RECORD_QUEUE_OFFSET = 20
RECORD_SYS_FLAG = 36
RECORD_STORE_TIMESTAMP = 56  # with an IPv4 host
RECORD_HEAD_BYTES = 88  # up to the body, with IPv4 hosts
RECORD_HEAD = Struct(">iiiiiqqi")  # up to SYSFLAG
RECORD_FIXED_BYTES = 91
RECORD_BLANK_BYTES = 8
RECORD_START = Struct(">ii")  # size, magic
HOST_V6_EXTRA = 12
MAGIC_MESSAGE = -626843481
MAGIC_BLANK = -875286124
SYS_PREPARED = 0x4  # a bit of ROLLBACK as well
SYS_BORN_HOST_V6 = 0x10
SYS_STORE_HOST_V6 = 0x20
LOG_FILE_LEAST = 1024  # least configurable bytes, as EXT_FILE_LEAST

UNIT = Struct(">qiq")  # physical offset, size, tags code
UNIT_BYTES = UNIT.size
UNIT_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
UNIT_BLANK_SIZE = 0x7FFFFFFF  # of a unit without a record
EXT_FILE_LEAST = 24
EXT_UNIT = Struct(">hqqh")  # size, tags code, store time, bytes of the bit map, which follows
EXT_ADDRESS = -(1 << 31) - 1  # tags codes up to this are addresses in consumequeue_ext

INDEX_RANGE = Struct(">qqqq")  # times, then physical offsets, of the first and last entry
INDEX_HEADER = Struct(">qqqqii")  # that, used slots, number of the next entry
INDEX_ENTRY = Struct(">iqii")  # key hash, physical offset, seconds, number of the entry before
INDEX_HEADER_BYTES = 40
INDEX_SLOT_BYTES = 4
INDEX_ENTRY_BYTES = 20

CHECKPOINT_BYTES = 4096
CHECKPOINT_TIMES = Struct(">qqq")  # log, queues, index
WATERMARK_AT = 2048
WATERMARK_BYTES = 96
WATERMARK_MAGIC = 0x524D5157
WATERMARK_VERSION = 1
WATERMARK = Struct(">ii8xq32xq24xI4x")  # magic, version, dispatched, time of the queues, CRC-32
WATERMARK_CRC = 88

INT32 = Struct(">i")
INT64 = Struct(">q")

DELAY_LEVELS = 18  # queues of the schedule topic


def index_file_bytes(slots: int, entries: int) -> int:
    """Return the size of an index file."""
    return INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots + INDEX_ENTRY_BYTES * entries
