"""Bytes that come back while a reader waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import rmqstore

__all__ = ["read_while_restored"]

READER_WAITS = 0.05  # seconds at least, for a unit that its owner may be writing
DELAY = 0.02
ATTEMPTS = 100


def read_while_restored(
    tear: Callable[[], Callable[[], object]], read: Callable[[], Any], expected: Any
) -> None:
    """Assert what is read while something torn is restored behind the reader's first look.

    ``tear`` returns how to restore. On a busy machine that may happen after the reader's wait:
    then the reader may report the damage, and it is done again.
    """
    for _ in range(ATTEMPTS):
        restore = tear()
        restored: list[float] = []

        def work(restore: Any = restore, restored: Any = restored) -> None:
            restore()
            restored.append(time.monotonic())

        end = threading.Timer(DELAY, work)
        began = time.monotonic()
        end.start()
        try:
            found = read()
        except rmqstore.StoreCorruptError as error:
            found = error
        end.join()
        if found == expected:
            return
        assert restored[0] - began > READER_WAITS, found
    raise AssertionError("never restored in time")
