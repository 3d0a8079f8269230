"""Progress of a stream as a consumer group's, in the store's ``consumerOffset.json``.

Source: ``broker/offset/ConsumerOffsetManager.java``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.files import paths
from rmqstore.offline.locking import is_owned

__all__ = ["keep_progress"]

_WAIT_SECONDS = 5.0


def keep_progress(
    path: str, group: str, progress: Mapping[tuple[str, int], tuple[int, int]]
) -> bool:
    """Note a group's next offset and end by queue; return whether the file has them.

    Not if another process owns the store: it would overwrite the file. A greater offset stays
    if its queue still has it. Raises ``StoreCorruptError`` if file and ``.bak`` are torn.
    """
    if is_owned(path):
        return False
    with _one_at_a_time(path):
        table = OffsetTable.load(path)
        changed = False
        for (topic, queue_id), (offset, end) in progress.items():
            queues = table.offsets.setdefault((topic, group), {})
            known = queues.get(queue_id)
            if known is None or known < offset or known > max(end, offset):
                queues[queue_id] = offset
                changed = True
        if changed:
            table.save()
    return True


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[None]:
    """Keep other streams from changing the file between reading and writing it."""
    directory = Path(path, paths.CONFIG)
    directory.mkdir(exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)
