"""Harms to the files of a queue, and how many of its messages a start of 4.9.3 then shows not."""

from __future__ import annotations

from pathlib import Path

PER_FILE = 20  # units
FILES = 4  # of each queue, all of them full

# By harm: the files and what becomes of them, with the messages that are lost.
CLOSED = {
    "gone 0": 20,
    "gone 1": 20,
    "gone 2": 20,
    "gone 3": 20,
    "gone 1 2": 40,
    "gone 0 2": 40,
    "gone 0 1 2": 60,
    "zeros 0": 20,
    "zeros 1": 60,
    "zeros 2": 40,
    "zeros 3": 20,
    "first of 0": 1,
    "first of 1": 41,
    "first of 3": 1,
    "last of 0": 1,
    "last of 1": 41,
    "last of 3": 1,
}
KILLED = CLOSED | {
    "gone 3": 0,  # what is behind a queue's end is dispatched again
    "zeros 1": 1,
    "zeros 2": 0,
    "zeros 3": 0,
    "first of 1": 1,
    "first of 3": 0,
    "last of 1": 0,
    "last of 3": 0,
}


def harm(directory: Path, name: str) -> None:
    """Do a harm to the files of a queue."""
    files = sorted(directory.iterdir())
    assert len(files) == FILES
    how, *rest = name.split()
    for number in rest:
        if number == "of":
            continue
        path = files[int(number)]
        data = path.read_bytes()
        if how == "gone":
            path.unlink()
        elif how == "zeros":
            path.write_bytes(bytes(len(data)))
        elif how == "first":
            path.write_bytes(bytes(20) + data[20:])
        else:
            path.write_bytes(data[:-20] + bytes(20))
