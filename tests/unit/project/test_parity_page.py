"""docs/parity.md is up to date, its tests are there, and no setting does nothing."""

from __future__ import annotations

import sys

import pytest

import make_parity_page

pytestmark = pytest.mark.pure


def test_the_page_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_parity_page.py", "--check"])
    assert make_parity_page.main() == 0, capsys.readouterr().err


def test_every_row_has_its_test() -> None:
    assert make_parity_page.problems() == []
    assert len(make_parity_page.INTERFACE) == 47
    assert len(make_parity_page.fields()) == 77
