"""``make bench-toolbox`` on small stores: jobs run beside the machine, and have a line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from verbs import __main__ as bench

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", ["info, sparse", "grep -F", "du --by topic", "export to Parquet"])
def test_a_job(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RMQSTORE_BENCH_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(bench.__file__).parents[1]), prepend=":")
    small = ["--gib", "0.01", "--sparse", "1", "--rounds", "1", "--only", name]
    monkeypatch.setattr("sys.argv", ["verbs", *small])
    assert bench.main() in (0, 1)  # such a store is no measure
    first, second = capsys.readouterr().out.split("\n\n")
    for table in (first, second):
        (line,) = [row for row in table.splitlines() if row.startswith(f"| {name} |")]
        assert line.endswith(("| reached |", "| MISSED |"))
    assert list(tmp_path.iterdir()) == []
