"""docs/rmqstore.1: up to date, in the wheel, and read by man without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import make_man_page
from rmqstore.cli import main
from rmqstore.cli.manual import SUBJECTS

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "rmqstore.1"


def test_it_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_man_page.py", "--check"])
    assert make_man_page.main() == 0, capsys.readouterr().err


def test_it_has_every_verb_and_subject() -> None:
    text = PAGE.read_text(encoding="ascii")
    assert set(re.findall(r"^\.SS rmqstore (\w+)", text, re.MULTILINE)) == set(
        main.list_commands(None)  # type: ignore[attr-defined]
    )
    for name in SUBJECTS:
        assert f".SH {name.replace('-', ' ').upper()}\n" in text


def test_it_is_in_the_wheel() -> None:
    """Read as the build reads it, which takes a compiler and a minute."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    files = project["tool"]["setuptools"]["data-files"]
    assert files == {"share/man/man1": ["docs/rmqstore.1"]}
    assert (TOP / files["share/man/man1"][0]).is_file()


def test_a_difference_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_man_page, "PAGE", tmp_path / "rmqstore.1")
    monkeypatch.setattr(sys, "argv", ["make_man_page.py", "--check"])
    assert make_man_page.main() == 1
    assert "not up to date" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["make_man_page.py"])
    assert make_man_page.main() == 0
    assert (tmp_path / "rmqstore.1").read_bytes() == PAGE.read_bytes()


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_it_renders_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-rLL=80n", "-P-cbou", PAGE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "rmqstore find STORE --key ORDER-123" in done.stdout
    assert "\\xHH" in done.stdout  # a backslash stays one
    assert max(map(len, done.stdout.splitlines())) <= 80
