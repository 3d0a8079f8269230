"""docs/parity.md is up to date, its tests are there, and each setting of 4.9.3 has a row."""

from __future__ import annotations

import sys

import pytest

import make_parity_page
from rmqstore.config.reasons import MEANINGLESS, REFUSED

pytestmark = pytest.mark.pure


def test_the_page_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_parity_page.py", "--check"])
    assert make_parity_page.main() == 0, capsys.readouterr().err


def test_every_row_has_its_test() -> None:
    assert make_parity_page.problems() == []
    assert len(make_parity_page.INTERFACE) == 47
    explained = len(MEANINGLESS) + len(REFUSED)
    assert len(make_parity_page.fields()) + explained == 77
