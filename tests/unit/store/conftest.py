"""Stores whose clock is moved, and what a real broker left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import archives

STORES = Path(__file__).resolve().parents[2] / "data" / "stores"


@pytest.fixture
def broker_store(tmp_path: Path) -> Callable[[str], Path]:
    """A function that unpacks one of the real broker's stores."""

    def unpack(name: str) -> Path:
        archives.unpack(STORES / f"{name}.tar.xz", tmp_path / "unpacked")
        to = tmp_path / name
        shutil.move(tmp_path / "unpacked" / name / "store", to)
        return to

    return unpack


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """A function that waits for what a thread of the store does."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "not within 60 s"
            time.sleep(0.005)

    return wait
