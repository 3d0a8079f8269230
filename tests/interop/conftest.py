"""Tests beside the real RocketMQ 4.9.3; they need Java 17 and Maven."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from interop.driver import Driver

HERE = Path(__file__).resolve().parent
_compared: dict[str, Counter[str]] = defaultdict(Counter)  # by the test's file


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture
def tally(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[Counter[str]]:
    """Count what is compared with the real RocketMQ, by kind; the sums are in the run's report."""
    counts: Counter[str] = Counter()
    yield counts
    _compared[request.path.name].update(counts)
    for kind, count in counts.items():
        record_property(f"compared {kind}", count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _compared:
        terminalreporter.section("compared with the real RocketMQ")
        for name, counts in sorted(_compared.items()):
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
            terminalreporter.write_line(f"{name}: {counts.total():,} ({kinds})")


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
