"""Delayed messages that wait however long a busy machine takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from rmqstore.services.schedule import Schedule

__all__ = ["undelivered"]


@contextmanager
def undelivered() -> Iterator[None]:
    """Stores opened here deliver nothing; later only once their ``schedule.begin`` is called."""
    with mock.patch.object(Schedule, "begin", return_value=None):
        yield
