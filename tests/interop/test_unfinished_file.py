"""A file that 4.9.3 had just made when it was killed, and for which it refuses to start again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop.driver import Driver, copy
from interop.test_turns import Turns


@pytest.mark.long
@pytest.mark.parametrize("part", ["commitlog", "consumequeue/Topic1/0"])
def test_a_file_that_a_kill_left_without_bytes(
    part: str, start: Callable[[], Driver], tmp_path: Path, seed: str
) -> None:
    """FILE_UNFINISHED, which the turns meet by chance: 4.9.3 refuses it, ours goes on."""
    start().reset()
    state = Turns(tmp_path, start, seed)
    state.ours(0, kill=False)
    state.opened_by_real(start(), state.root, 0)
    state.theirs(1, kill=False)
    last = max((state.root / part).iterdir())
    name = f"{int(last.name) + last.stat().st_size:020d}"
    (state.root / part / name).touch()
    (state.root / "abort").touch()

    copied = copy(state.root, state.copied)
    state.finished(start(), copied)
    assert state.counts["times FILE_UNFINISHED"] == 1
    assert not (copied / part / name).exists()
    state.killed.add(1)
    state.opened_by_real(start(), copied, 1)
    start().reset()

    state.read_ours("beside a file without bytes")
    state.ours(2, kill=False)
    state.opened_by_real(start(), state.root, 2)
    start().reset()
