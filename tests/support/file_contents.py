"""Queue and index files of a store, to be compared byte for byte."""

from __future__ import annotations

from pathlib import Path

from rmqstore.files import paths


def files_of(root: Path) -> dict[str, bytes]:
    """Queue files by name, index files by number: those are named by the time of their making."""
    queues = {
        str(path.relative_to(root)): path.read_bytes()
        for path in (root / paths.CONSUME_QUEUE).rglob("*")
        if path.is_file()
    }
    index = sorted((root / paths.INDEX).iterdir()) if (root / paths.INDEX).is_dir() else []
    return queues | {f"index {number}": path.read_bytes() for number, path in enumerate(index)}
