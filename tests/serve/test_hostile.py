"""A slice of the campaign of attackers: all attacks, small, on two servers, one with accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve.hostile import SLICE, Round, run, table
from serve.hostile_attacks import ATTACKS


@pytest.mark.slow
@pytest.mark.parametrize("accounts", [False, True])
def test_nobody_holds_the_others_up(tmp_path: Path, accounts: bool) -> None:
    """A few at a time, in sequence: remains of one are there for the next."""
    names = sorted(ATTACKS)
    attacks = tuple(tuple(names[n : n + 4]) for n in range(0, len(names), 4))
    one = Round(attacks, accounts=accounts, sync=accounts, seed="slice", scale=0.1)
    result = run(tmp_path / "round", one, SLICE)
    print(*table([result]), sep="\n")
    assert not result.problems
    assert result.sends >= one.pulls
