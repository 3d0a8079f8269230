"""A day and a half in fast time; ``make week`` has the whole week."""

from __future__ import annotations

from pathlib import Path

import pytest

from week.run import Week

pytestmark = pytest.mark.long


@pytest.mark.crash
@pytest.mark.slow
def test_a_day_and_a_half(tmp_path: Path) -> None:
    week = Week(tmp_path / "week", messages=40_000, days=1.5, kills=3, step=1_200_000, hours=6)
    counted = week.run()
    assert counted["messages"] >= 40_000
    assert min(counted.values()) > 0, counted
    assert week.problems() == []
