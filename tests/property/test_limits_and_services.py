"""Limits that change between openings, messages at their edges: nothing acknowledged is lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.limited_services import ENDS, KINDS, ROOM, Step, drive

NUMBER = st.integers(0, 41)
STEP = st.tuples(
    st.sampled_from(KINDS) | st.sampled_from(KINDS + ENDS), NUMBER, st.integers(0, ROOM), NUMBER
)


@settings(deadline=None, max_examples=25 if os.environ.get("CI") is None else 60)
@given(st.lists(STEP, min_size=5, max_size=40))
def test_what_was_acknowledged_is_there_once(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert drive(Path(directory, "s"), steps) == []
