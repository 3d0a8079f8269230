"""The examples of docs/lakehouse.md, run from top to bottom in one directory as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import run_page

pytestmark = [pytest.mark.lakehouse, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs/lakehouse.md"
LEAST = 9


@pytest.mark.filterwarnings("default")  # of the engines
def test_examples_do_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(PAGE) >= LEAST
