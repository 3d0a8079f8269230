"""The gateway killed under load, and its directory handed to a real broker: a slice of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve.killed import LEAST, campaign

pytestmark = [pytest.mark.interop, pytest.mark.campaign]


def test_killed_under_load_and_handed_over(java: None, tmp_path: Path, traffic_seed: str) -> None:
    counts = campaign(tmp_path, kills=3, seed=traffic_seed, hand_overs=2)
    assert counts["acknowledged"] >= 3 * LEAST
    assert counts["consumed"] >= counts["acknowledged"]
