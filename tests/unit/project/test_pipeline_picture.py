"""What the picture of the example's pipeline is drawn from, while nobody tells of progress."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig

pytestmark = pytest.mark.pure

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline_picture.py"
QUERIES = ("parquet", "topic")


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    if not EXAMPLE.exists():
        pytest.skip("no examples in this tree")
    spec = importlib.util.spec_from_file_location("pipeline_picture", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pipeline_picture"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit(checkpoint: Path, batch: int, ends: dict[int, int]) -> None:
    """Write what Spark does: where a batch ends when it is planned, then that it is done."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    source = {"v": 1, "q": {"/a/store": {"t": {str(number): end for number, end in ends.items()}}}}
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(source)}")
    (checkpoint / "offsets" / str(batch + 1)).write_text("v1\n{}\n{}")  # planned, not done
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
    (checkpoint / "commits" / f".{batch}.crc").touch()


def test_the_lag_of_a_query_that_is_dead(picture: ModuleType, tmp_path: Path) -> None:
    checkpoints = {name: tmp_path / name for name in QUERIES}
    into = tmp_path / "samples.jsonl"
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        store.create_topic("t", 2)
        began = store.put("t", b"0", queue_id=0).store_timestamp / 1000
        heads = {0: 1, 1: 0}
        sampler = picture.Sampler(store, "t", checkpoints, into)

        def put(count: int) -> None:
            for _ in range(count):
                for number in heads:
                    store.put("t", b"x", queue_id=number)
                    heads[number] += 1

        sampler.sample(began + 1)  # before the first batch
        for batch in range(3):
            for path in checkpoints.values():
                commit(path, batch, heads)
            sampler.sample(began + 2 + batch)
            put(5)
        for path in checkpoints.values():  # one more just before the kill
            commit(path, 3, heads)
        kill = sampler.sample(began + 5).at
        put(5)
        for second in range(6, 25):  # dead, and messages come
            sampler.sample(began + second)
            put(5)
        commit(checkpoints["parquet"], 4, {0: 18, 1: 17})  # what was planned before the kill
        sampler.sample(began + 25)
        for path in checkpoints.values():
            commit(path, 5, heads)
        sampler.sample(began + 26)
    samples = picture.read_samples(into)
    assert [one.at for one in samples] == [began + second for second in range(1, 27)]
    assert samples[-1].head == sum(heads.values()) == 1 + 2 * 5 * 23
    for name in QUERIES:
        behind = [one.behind(name) for one in samples]
        waiting = [one.waiting[name] for one in samples]
        assert behind[:5] == [1, 0, 0, 0, 0]
        dead = slice(5, 24)
        assert behind[dead] == list(range(10, 200, 10))
        assert all(0 < before < after for before, after in pairwise(waiting[dead]))
        assert waiting[23] == pytest.approx(24, abs=1.5)
        assert (behind[-1], waiting[-1]) == (0, 0)
        at, rates = picture.rates(samples, name, [kill])
        assert len(at) == len(rates) + 1
        assert [math.isnan(rate) for rate in rates].count(True) == 1
        (gap,) = [number for number, rate in enumerate(rates) if math.isnan(rate)]
        assert at[gap] == kill
        assert at[gap + 1] - at[gap] >= 20
        assert all(rate > 0 for rate in rates if not math.isnan(rate))
    assert picture.gaps(samples, [kill]) == [(kill, began + 25)]
    (line,) = picture.summary(samples, [kill])
    assert "for 20 s after the kill: 200 messages and 2" in line
    assert "s behind, caught up 21 s after it" in line
    _, puts = picture.put_rates(samples)
    assert sum(puts) == pytest.approx(samples[-1].head - samples[0].head)
