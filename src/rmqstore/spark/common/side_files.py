"""Names of files of writes and jobs, in a store's directory and next to it, each defined once.

In the store's directory is ``.spark``, with unfinished work.  Next to it are whole stores:
``<store>.making-<name>`` becomes the store when complete, ``<store>.replaced-<name>`` is being
replaced.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

__all__ = [
    "IN_STORE",
    "MAKING",
    "REPLACED",
    "TEMPORARY",
    "batch_directory",
    "digest",
    "is_job_directory",
    "is_unfinished_store",
    "new_name",
    "stream_directory",
    "stream_ending",
]

IN_STORE = ".spark"
"""Directory in a store for files of writes and jobs."""

MAKING, REPLACED = ".making-", ".replaced-"
"""Markers between names of a store and a job."""

TEMPORARY = ".tmp"
"""Suffix of an incomplete file."""

_NO_QUERY = "none"
_NEW_NAME = re.compile(r"[0-9a-f]{32}", re.ASCII)
_JOB_DIRECTORY = re.compile(
    rf"b\.[0-9a-f]{{32}}|s-[0-9a-f]{{16}}\.[0-9]+\.([0-9a-f]{{8}}|{_NO_QUERY})", re.ASCII
)
_UNFINISHED = re.compile(
    rf".*(?:{re.escape(MAKING)}|{re.escape(REPLACED)})(.+)", re.ASCII | re.DOTALL
)


def new_name() -> str:
    """Return a unique name."""
    return uuid.uuid4().hex


def batch_directory(run: str) -> str:
    """Return the name of a batch write's directory; a run is 32 hexadecimal digits."""
    return f"b.{run}"


def stream_directory(query: str, batch: int, known_by: str | None) -> str:
    """Return the name of the directory of a query's batch; it ends as :func:`stream_ending`.

    ``known_by`` is the name by which an abort finds the query, if any.
    """
    return f"s-{digest(query)[:16]}{stream_ending(batch, known_by)}"


def stream_ending(batch: int, known_by: str | None) -> str:
    """Return the end of the name of a batch's directory."""
    return f".{batch}.{_NO_QUERY if known_by is None else digest(known_by)[:8]}"


def is_job_directory(name: str) -> bool:
    """Whether a directory's name is given only by the sink."""
    return _JOB_DIRECTORY.fullmatch(name) is not None


def is_unfinished_store(path: Path) -> bool:
    """Whether a directory's name is that of a store being made, or replaced."""
    found = _UNFINISHED.fullmatch(path.name)
    return found is not None and (
        is_job_directory(found[1]) or _NEW_NAME.fullmatch(found[1]) is not None
    )


def digest(text: str) -> str:
    """Return 128 bits of a text's hash in hexadecimal, usable as a file name."""
    import xxhash

    return str(xxhash.xxh3_128_hexdigest(text.encode()))
