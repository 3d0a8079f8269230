"""Streams that are killed at random places lose nothing and write nothing twice.

``RMQSTORE_SPARK_FAULTS`` says how many faults, ``RMQSTORE_SPARK_SEED`` which ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from support.clusters import processes_of

pytestmark = [pytest.mark.spark, pytest.mark.long]

FAULTS = int(os.environ.get("RMQSTORE_SPARK_FAULTS", "10"))
SEED = int(os.environ.get("RMQSTORE_SPARK_SEED", random.randrange(1 << 32)))


def test_each_message_once_in_spite_of_faults(tmp_path: Path) -> None:
    from support.stream_faults import DEATHS, Faults, plan

    print(f"{FAULTS} faults, RMQSTORE_SPARK_SEED={SEED}")
    lives = plan(random.Random(SEED), FAULTS)
    run = Faults(tmp_path, SEED)
    run.run(lives)
    print(dict(run.hits), len(run.sent), "messages")
    run.check()
    wanted = [fault for _, own in lives for fault in own]
    assert len(wanted) == FAULTS
    assert {fault: wanted.count(fault) for fault in wanted}.items() <= run.hits.items()
    assert sum(run.hits[fault] for fault in DEATHS) >= 3 * FAULTS // 10
    assert not processes_of(run.driver.pid)
