"""Stores are read in pieces: executors and workers need little memory, however large they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rmqstore
from support.clusters import output_of

pytestmark = [pytest.mark.spark, pytest.mark.long]

BODY_BYTES = 16 << 10
AT_A_TIME = 4096
BOUND = 280.0  # seconds; a tenth of it on two idle cores


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(1 << 28, id="256 MiB"),
        pytest.param(5 << 30, id="5 GiB", marks=pytest.mark.slow),
    ],
)
def test_executors_of_1_gib_with_workers_of_512_mib(tmp_path: Path, size: int) -> None:
    count = size // BODY_BYTES
    noise = np.random.default_rng(1).bytes(2 * BODY_BYTES)
    offsets = 0
    with rmqstore.open(tmp_path / "store", "a") as store:
        store.create_topic("large", queue_nums=4)
        for first in range(0, count, AT_A_TIME):
            some = range(first, min(first + AT_A_TIME, count))
            bodies = [noise[n % BODY_BYTES :][:BODY_BYTES] for n in some]
            done = store.put_many("large", bodies, keys=[f"key-{n}" for n in some])
            offsets += sum(done.physical_offset.tolist())
    facts = json.loads(
        output_of("spark_memory.py", tmp_path / "store", tmp_path, directory=tmp_path, bound=BOUND)
    )
    print(facts)
    for way in ("commitlog", "consumequeue"):
        found = facts[way]
        assert found["messages"] == count
        assert found["bytes"] == count * BODY_BYTES
        assert found["offsets"] == offsets
        assert found["queues"] == 4
    for worker in facts["workers"]:
        assert worker["bytes"] == 512 << 20
        assert worker["most"] < 512 << 20
