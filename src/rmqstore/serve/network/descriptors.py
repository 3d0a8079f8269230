"""File descriptors: connections leave some for the store, the log and other files.

RocketMQ has nothing of the kind: its broker relies on ``ulimit -n`` in its start script.
"""

from __future__ import annotations

import resource
from contextlib import suppress

__all__ = ["RESERVED", "leaves_room", "raise_limit"]

# A store of any size has few files open for long: it closes what it has mapped. The page has at
# most 64 connections.
RESERVED = 256


def raise_limit() -> None:
    """Raise the limit of open files to its hard limit; for a process of our own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # then it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def leaves_room(descriptor: int) -> bool:
    """Whether a connection's descriptor leaves enough for files.

    The system gives out the lowest free number. As no connection keeps one of the highest numbers,
    these are left for everything else, whatever the surrounding process has opened.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft == resource.RLIM_INFINITY or descriptor < soft - min(RESERVED, soft // 2)
