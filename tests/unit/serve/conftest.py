"""What the gateway's tests share."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Return a function that waits until something holds, and fails after a minute."""

    def wait(holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait
