"""``metrics`` as people and cron type it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"1")
    return tmp_path / "s"


def series(text: str) -> list[str]:
    return re.findall(r"^([^#\n]*) \S+$", text, re.MULTILINE)


def contents(root: Path) -> list[tuple[str, int]]:
    return [(str(one), one.stat().st_mtime_ns) for one in (root, *sorted(root.rglob("*")))]


def test_textfile(run: Run, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "rmqstore.prom"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o600)
    old = file.stat().st_ino
    with rmqstore.open(root, "r+"):  # beside its owner
        result = run("metrics", root, "--textfile", file)
        shown = run("metrics", root).stdout
    assert (result.exit_code, result.output) == (0, "")
    assert file.stat().st_ino != old
    assert file.stat().st_mode & 0o777 == 0o644
    assert series(file.read_text()) == series(shown) != []
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_textfile_in_a_wrong_place(run: Run, root: Path, tmp_path: Path) -> None:
    before = contents(root)
    assert "inside the store" in one_line(run("metrics", root, "--textfile", root / "x.prom"), 2)
    assert contents(root) == before
    assert "is a directory" in one_line(run("metrics", root, "--textfile", tmp_path), 2)
    assert run("metrics", root, "--textfile", tmp_path / "no" / "x.prom").exit_code == 4
    one_line(run("metrics", tmp_path), 4)


def test_without_the_client(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for more in ((), ("--textfile", tmp_path / "m.prom")):
        line = one_line(run("metrics", root, *more), 4)
        assert "pip install prometheus-client" in line
    assert not (tmp_path / "m.prom").exists()
