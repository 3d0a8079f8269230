"""A pytest fixture: a fresh small store in a temporary directory.

pytest finds it if rmqstore is installed; nothing is loaded until a test requests it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["store"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Give a store opened with ``"a"`` and small files; it is closed when the test ends."""
    import rmqstore
    from rmqstore.config import StoreConfig

    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as opened:
        yield opened
