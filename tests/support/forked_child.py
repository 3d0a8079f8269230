"""Work in a forked child, for tests of a child's use of its parent's store."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

PATIENCE = 60  # seconds until a child that hangs is ended


def in_child(work: Callable[[], object]) -> str:
    """Run work in a forked child: its result or error, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        os.close(reading)
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
    return said


@contextlib.contextmanager
def waiting_child() -> Iterator[None]:
    """A forked child that only keeps its state, until the end of the context."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)
