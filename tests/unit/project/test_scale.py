"""``make scale`` on small stores: each part runs, and each line of its table has a figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scale import __main__ as scale
from scale.growth import key_column
from scale.rows import Line, at_most, table

pytestmark = pytest.mark.pure

SMALL = [
    "--sizes",
    "2000,4000",
    "--gib",
    "1",
    "--read",
    "3",
    "--written",
    "5000",
    "--queues",
    "8",
    "--puts",
    "800",
    "--rounds",
    "1",
]
PARTS = {
    "growth": {
        "put_many until visible, growth from 2,000 to 4,000",
        "dispatch, growth from 2,000 to 4,000",
        'get, "r", growth from 2,000 to 4,000',
        'query, "r", growth from 2,000 to 4,000',
        'opening a closed store of 4,000, "r+"',
    },
    "sparse": {
        'a reader of 1 GiB, "r": of its own',
        'a reader of 1 GiB, "r+": of its own',
        'opening a closed store of 1 GiB, "r"',
    },
    "writer": {"a writer after 5,000 puts: of its own"},
    "queues": {
        'opening and closing 8 queues, "r"',
        'get of 1, "r", 8 queues beside four',
        'query, "r", 8 queues beside four',
    },
    "threads": {
        "put by 2 threads, rate over that of one",
        "put by 8 threads, rate over that of one",
    },
    "huge": {'opening a closed store of 3,000, "r"'},
}


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_each_part_runs(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = str(Path(scale.__file__).parents[1])
    monkeypatch.setenv("RMQSTORE_BENCH_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", bench, prepend=":")
    given = scale.arguments().parse_args([*SMALL, "--only", part, "--huge", "3000"])
    lines = scale.run(given)
    assert {line.what for line in lines} >= PARTS[part]
    assert all(float(re.findall(r"[\d.]+", line.figure)[0]) >= 0 for line in lines)
    assert any(line.reached is not None for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_the_table_says_what_is_missed() -> None:
    shown = table([at_most("memory", 300, 200, "MiB"), Line("time", "5 ns")])
    assert "| memory | 300.0 MiB | <= 200 MiB | MISSED |" in shown
    assert "| time | 5 ns |  |  |" in shown


def test_no_two_keys_are_equal() -> None:
    keys = key_column(0, 200_000).to_pylist()
    assert len(set(keys)) == len(keys)
    assert keys[150_000] == key_column(150_000, 1)[0].as_py()
