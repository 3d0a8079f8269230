"""Names of what writes and jobs keep in a store's directory and beside it, each once.

In the store's directory is ``.spark``, with what is unfinished.  Beside it are whole stores:
``<store>.making-<name>`` becomes the store when it is complete, ``<store>.replaced-<name>`` is one
whose place another is taking.
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
"""The directory in a store's own that has what writes and jobs keep there."""

MAKING, REPLACED = ".making-", ".replaced-"
"""What comes between a store's name and that of who is at work."""

TEMPORARY = ".tmp"
"""How the name of a file ends until it is complete."""

_NO_QUERY = "none"
_NEW_NAME = re.compile(r"[0-9a-f]{32}", re.ASCII)
_JOB_DIRECTORY = re.compile(
    rf"b\.[0-9a-f]{{32}}|s-[0-9a-f]{{16}}\.[0-9]+\.([0-9a-f]{{8}}|{_NO_QUERY})", re.ASCII
)
_UNFINISHED = re.compile(
    rf".*(?:{re.escape(MAKING)}|{re.escape(REPLACED)})(.+)", re.ASCII | re.DOTALL
)


def new_name() -> str:
    """Return a name that nothing else has."""
    return uuid.uuid4().hex


def batch_directory(run: str) -> str:
    """Return the name of a batch write's directory; a run has 32 hexadecimal digits."""
    return f"b.{run}"


def stream_directory(query: str, batch: int, known_by: str | None) -> str:
    """Return the name of the directory of a query's batch.

    Parameters
    ----------
    query : str
        Its identity.
    batch : int
    known_by : str or None
        What an abort knows the query by, if there is anything.

    Returns
    -------
    str
        Ends as :func:`stream_ending` says.
    """
    return f"s-{digest(query)[:16]}{stream_ending(batch, known_by)}"


def stream_ending(batch: int, known_by: str | None) -> str:
    """Return how the name of a batch's directory ends."""
    return f".{batch}.{_NO_QUERY if known_by is None else digest(known_by)[:8]}"


def is_job_directory(name: str) -> bool:
    """Tell whether a directory has a name that only a write of the sink gives."""
    return _JOB_DIRECTORY.fullmatch(name) is not None


def is_unfinished_store(path: Path) -> bool:
    """Tell whether a directory has the name of a store that is being made, or replaced."""
    found = _UNFINISHED.fullmatch(path.name)
    return found is not None and (
        is_job_directory(found[1]) or _NEW_NAME.fullmatch(found[1]) is not None
    )


def digest(text: str) -> str:
    """Return 128 bits of a text in hexadecimal: a file's name for any text."""
    import xxhash

    return str(xxhash.xxh3_128_hexdigest(text.encode()))
