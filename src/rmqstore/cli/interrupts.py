"""Ctrl-C while the core opens a store or walks through it: Python's handler waits for its end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from rmqstore.cli.failures import INTERRUPTED

__all__ = ["interruptible"]

_SECONDS = 1.0  # for Python's handler, which lets the verb clean up
_SHOW_CURSOR = b"\x1b[?25h\n"  # the progress display hides it


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the process a second after Ctrl-C, unless Python's handler has run by then.

    REQUIRES: nothing is written meanwhile that would be left unfinished.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    handled = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.default_int_handler(number, frame)

    def watch() -> None:
        while received := os.read(reader, 1):
            if received[0] == signal.SIGINT and not handled.wait(_SECONDS):
                if sys.stderr is not None and sys.stderr.isatty():
                    os.write(sys.stderr.fileno(), _SHOW_CURSOR)
                os._exit(INTERRUPTED)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
