"""Fixtures of all benchmarks: the machine in the report, fresh stores, written stores."""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
import workloads


@pytest.hookimpl(optionalhook=True)  # they can be listed without pytest-benchmark
def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Add conditions of the figures that pytest-benchmark does not report."""
    machine_info["rmqstore"] = getattr(rmqstore, "__version__", "unknown")
    machine_info["cpus"] = len(os.sched_getaffinity(0))
    machine_info["libc"] = " ".join(platform.libc_ver())
    machine_info["directory"] = _file_system(workloads.root())
    for name in ("kernel/mm/transparent_hugepage/shmem_enabled",):
        path = Path("/sys", name)
        machine_info[path.name] = path.read_text().strip() if path.exists() else "unknown"


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds ``path``."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    real = path.resolve()
    holding = [m for m in mounts if real.is_relative_to(m[1])]
    return max(holding, key=lambda m: len(m[1]))[2] if holding else "unknown"


@pytest.fixture
def stores() -> Iterator[Callable[[], rmqstore.MessageStore]]:
    """Return a function that gives a fresh, warmed store and drops the one before it."""
    with ExitStack() as open_ones:

        def fresh() -> rmqstore.MessageStore:
            open_ones.close()
            store = open_ones.enter_context(workloads.fresh_store())
            store.put(workloads.TOPIC, b"warm", queue_id=0)
            return store

        yield fresh


@pytest.fixture(scope="session")
def written() -> Iterator[Path]:
    """Give a closed store of 128-byte messages with keys and tags."""
    with workloads.scratch() as path:
        yield workloads.written(path / "store", 128, workloads.COUNT, with_keys=True)


@pytest.fixture(params=["r", "r+"])
def store(request: pytest.FixtureRequest, written: Path) -> Iterator[rmqstore.MessageStore]:
    """Open the written store, in each mode."""
    with rmqstore.open(written, request.param) as store:
        yield store


@pytest.fixture
def measure(benchmark: Any) -> Callable[..., Any]:
    """Return ``measure(work, messages, setup)``: five rounds after one to warm up.

    ``setup`` makes the arguments of each round and is not in the time.  The report's time is of a
    whole round; ``messages`` and the time of one are in its ``extra_info``.
    """

    def run(
        work: Callable[..., Any],
        messages: int,
        setup: Callable[[], tuple[Any, ...]] = tuple,
        *,
        rounds: int = 5,
    ) -> Any:
        result = benchmark.pedantic(
            work,
            setup=lambda: (setup(), {}),
            rounds=rounds,
            warmup_rounds=1,
            iterations=1,
        )
        benchmark.extra_info["messages"] = messages
        if benchmark.stats is not None:  # not with --benchmark-disable
            median = benchmark.stats.stats.median
            benchmark.extra_info["ns_each"] = round(median / messages * 1e9, 1)
        return result

    return run
