"""docs/api.md is what the docstrings say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

SCRIPT = Path(__file__).parents[3] / "scripts/make_api_page.py"


def test_the_page_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("make_api_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["make_api_page.py", "--check"])
    assert script.main() == 0, capsys.readouterr().err

    old = tmp_path / "api.md"
    old.write_text(script.PAGE.read_text().replace("### crc32", "### crc"))
    script.PAGE = old
    assert script.main() == 1
    assert "not up to date" in capsys.readouterr().err
