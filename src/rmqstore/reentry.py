"""Locks in a thread that may be interrupted by code which asks for the same lock.

A handler of a signal, or a finalizer, runs in the middle of whatever its thread does.  If that
holds a lock of the store, a call that needs the same one would wait for itself.
"""

from __future__ import annotations

import threading

__all__ = ["unheld"]


def unheld(lock: threading.RLock) -> threading.RLock:
    """Return an ``RLock`` for ``with``, which takes it without a moment to be interrupted in.

    Raises
    ------
    RuntimeError
        The calling thread holds it.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        raise RuntimeError(
            "the store was called from within a call of this thread that changes the same, by a "
            "signal handler or a finalizer: have it leave a note, and call the store later"
        )
    return lock
