"""Archives of the tests, unpacked by any 3.11: filters of ``tarfile`` came with 3.11.4."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive, with the filter for data where this Python has it."""
    with tarfile.open(archive) as opened:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        opened.extractall(target, **safely)
