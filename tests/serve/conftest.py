"""Real clients against the gateway; most need Java 17 and Maven, one needs Go."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable

import pytest

SEED = "RMQSTORE_CLIENTS_SEED"


@pytest.fixture(scope="session")
def need() -> Callable[..., None]:
    """A function that ends a test without these programs; only where they are optional."""

    def look(*tools: str) -> None:
        missing = [tool for tool in tools if shutil.which(tool) is None]
        if missing:
            reason = f"{' and '.join(missing)} not found: the real clients cannot be run"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)

    return look


@pytest.fixture(scope="session")
def java(need: Callable[..., None]) -> None:
    """Java and Maven."""
    need("java", "mvn")


@pytest.fixture(scope="session")
def traffic_seed() -> str:
    """Seed of random traffic: a new one each run, or the environment's to repeat one."""
    return os.environ.setdefault(SEED, f"{random.SystemRandom().getrandbits(32):x}")
