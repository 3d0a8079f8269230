"""pytest fixtures: a fresh small store, and a server that RocketMQ clients connect to.

pytest finds them if rmqstore is installed; nothing is loaded until a test requests it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rmqstore.serve.testing.under_test import RmqServer
    from rmqstore.store import MessageStore

__all__ = ["RmqServer", "rmq_server", "store"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Give a store with small files, opened with ``"a"`` and closed when the test ends."""
    import rmqstore
    from rmqstore.config.store_config import StoreConfig

    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as opened:
        yield opened


@pytest.fixture
def rmq_server() -> Iterator[RmqServer]:
    """Give a :class:`RmqServer` on a free port, with a temporary store that is removed."""
    from rmqstore.serve.testing.under_test import RmqServer

    with RmqServer() as server:
        yield server


def __getattr__(name: str) -> Any:
    if name == "RmqServer":  # for annotations; it loads what a server needs
        from rmqstore.serve.testing.under_test import RmqServer

        return RmqServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
