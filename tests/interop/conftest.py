"""Tests beside the real RocketMQ 4.9.3; they need Java 17 and Maven."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from interop.driver import Driver

HERE = Path(__file__).resolve().parent
COMPARED = pytest.StashKey[Counter[str]]()
BY_TEST = pytest.StashKey[Counter[str]]()
COUNTS = "RMQSTORE_COMPARED"  # a file for the counts by test, which docs/parity.md shows
PROOFS = {"test_ours_reads_real": "2", "test_live": "4"}
SEED = "RMQSTORE_INTEROP_SEED"
# Every seed with which a test ever failed: it runs again each time, beside the one that is drawn.
FAILED_SEEDS = {"test_ext.py::test_in_turns": ["354ec747"]}


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> Callable[[str, int], None]:
    """A function that counts comparisons: ``compared("1 records", 500)``, a proof and a thing.

    The sums by name are printed at the end of the session.
    """
    counts = pytestconfig.stash.setdefault(COMPARED, Counter())
    by_test = pytestconfig.stash.setdefault(BY_TEST, Counter())

    def add(name: str, count: int) -> None:
        assert count > 0, f"nothing was compared: {name}"
        counts[name] += count
        test = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0].partition(" ")[0]
        by_test[test] += count

    return add


@pytest.fixture
def tally(
    request: pytest.FixtureRequest, compared: Callable[[str, int], None]
) -> Iterator[Counter[str]]:
    """Counts by kind, for a test that keeps them itself; they are in the same table."""
    counts: Counter[str] = Counter()
    yield counts
    proof = PROOFS.get(request.path.stem, request.path.stem)
    for kind in +counts:
        compared(f"{proof} {kind}", counts[kind])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = f"{Path(metafunc.module.__file__).name}::{metafunc.function.__name__}"
    if "seed" in metafunc.fixturenames and name in FAILED_SEEDS:
        metafunc.parametrize("seed", ["", *FAILED_SEEDS[name]], indirect=True, scope="session")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str:
    """What random traffic is drawn from: another each run, or the environment's to repeat one."""
    if failed := getattr(request, "param", ""):
        return str(failed)
    return os.environ.setdefault(SEED, f"{random.SystemRandom().getrandbits(32):x}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(COMPARED, None)
    if counts:
        terminalreporter.section("compared with the real RocketMQ 4.9.3")
        for name, count in sorted(counts.items()):
            terminalreporter.line(f"{count:>12,}  {name}")
    by_test = config.stash.get(BY_TEST, None)
    if by_test and COUNTS in os.environ:
        Path(os.environ[COUNTS]).write_text(json.dumps(by_test, indent=1, sort_keys=True) + "\n")
    if SEED in os.environ:
        terminalreporter.line(f"{SEED}={os.environ[SEED]}")


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
