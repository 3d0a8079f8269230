"""The examples of docs/lakehouse.md, run from top to bottom in one directory as a reader would."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.documents import Block, alike, blocks, masked, run_python

pytestmark = [pytest.mark.lakehouse, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs/lakehouse.md"
LEAST = 9


@pytest.mark.filterwarnings("default")  # of the engines
def test_examples_do_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    ran = 0
    for block, follower in itertools.pairwise([*blocks(PAGE), Block(0, "", "")]):
        if block.language == "python":
            printed = run_python(PAGE, block, names)
            shown = follower.text if follower.language == "text" else ""
            assert alike(masked(shown), masked(printed)), f"line {block.line}:\n{printed}"
            ran += 1
    assert ran >= LEAST
