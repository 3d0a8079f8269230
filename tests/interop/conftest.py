"""Tests beside the real RocketMQ 4.9.3; they need Java 17 and Maven."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from interop.driver import Driver

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def java() -> None:
    """Java and Maven; left out only where nobody counts on these tests."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        reason = f"{' and '.join(missing)} not found: the real RocketMQ cannot be run"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def start(java: None) -> Iterator[Callable[[], Driver]]:
    """A function that gives the session's driver, a new one where the last was killed or halted."""
    from interop.driver import Driver

    drivers: list[Driver] = []

    def running() -> Driver:
        if not drivers or not drivers[-1].alive:
            drivers.append(Driver())
        return drivers[-1]

    yield running
    for driver in drivers:
        driver.close()


@pytest.fixture
def real(start: Callable[[], Driver]) -> Iterator[Driver]:
    """The driver, with no store open before and after."""
    driver = start()
    driver.reset()
    yield driver
    driver.reset()
