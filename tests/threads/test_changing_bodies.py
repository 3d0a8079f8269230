"""Bodies that another thread writes to while they are put: every record that is stored checks.

Which of the bytes are stored is up to chance; a checksum that is not theirs would be taken for
damage by everybody who reads the log.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading

import numpy as np
import pyarrow as pa
import pytest

import rmqstore

SIZE = 1 << 20
ROUNDS = 40


@pytest.fixture
def changing():
    """A buffer that a thread never stops writing to, without the GIL."""
    buffer = bytearray(SIZE)
    address = (ctypes.c_char * SIZE).from_buffer(buffer)
    ended = threading.Event()

    def change() -> None:
        value = 0
        while not ended.is_set():
            value = (value + 1) % 256
            ctypes.memset(address, value, SIZE)

    thread = threading.Thread(target=change)
    thread.start()
    yield buffer
    ended.set()
    thread.join()


def arrow_over(buffer: bytearray, width: int = SIZE) -> pa.Array:
    """An array of one binary value over the buffer itself."""
    offsets = pa.py_buffer(np.array([0, width], np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(buffer)])


def put_read_only(store, buffer):
    store.put("Topic1", memoryview(buffer).toreadonly(), queue_id=0)


def put_writable(store, buffer):
    store.put("Topic1", buffer, queue_id=0)


def put_small(store, buffer):
    for _ in range(20):
        store.put("Topic1", memoryview(buffer)[:300].toreadonly(), queue_id=0)


def aput(store, buffer):
    asyncio.run(store.aput("Topic1", memoryview(buffer).toreadonly(), queue_id=0))


def put_batch(store, buffer):
    view = memoryview(buffer).toreadonly()
    store.put_batch("Topic1", [b"fixed", view[: SIZE // 2], view[SIZE // 2 :]], queue_id=0)


def put_many_views(store, buffer):
    store.put_many("Topic1", [b"fixed", memoryview(buffer).toreadonly()], queue_id=0)


def put_many_numpy(store, buffer):
    rows = np.frombuffer(buffer, np.uint8).reshape(4, -1)
    rows.flags.writeable = False
    store.put_many("Topic1", rows, queue_id=0)


def put_many_arrow(store, buffer):
    store.put_many("Topic1", arrow_over(buffer), queue_id=0)


def put_table(store, buffer):
    store.put_table(pa.table({"topic": ["Topic1"], "queue_id": [0], "body": arrow_over(buffer)}))


WAYS = [
    put_read_only,
    put_writable,
    put_small,
    aput,
    put_batch,
    put_many_views,
    put_many_numpy,
    put_many_arrow,
    put_table,
]


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_record_checks(tmp_path, changing, way, checksum):
    config = rmqstore.StoreConfig.small().replace(
        mapped_file_size_commit_log=64 << 20, record_checksum=checksum
    )
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for _ in range(ROUNDS):
            way(store, changing)
        queue = store["Topic1"][0]
        assert len(queue) >= ROUNDS
        for offset in range(len(queue)):
            queue[offset]  # StoreCorruptError where it does not check
