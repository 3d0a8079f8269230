"""``config`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"1", keys="k")
    return tmp_path / "s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "b.conf"
    file.write_text("brokerNmae=a\nmappedFileSizeCommitLog=16777216\n")
    return file


def test_show(run: Run, root: Path, file: Path) -> None:
    (first, *_) = shown = rows(run("config", "show", file))
    assert list(first) == ["key", "value", "line", "problem", "nearest", "meaning"]
    assert first["nearest"] == "brokerName"
    assert rows(run("config", "show", file, root))[: len(shown)] == shown
    assert len(rows(run("config", "show", root))) == 4
    with rmqstore.open(root, "r+"):
        assert len(rows(run("config", "show", "--store", root))) == 4


def test_lint(run: Run, root: Path, file: Path) -> None:
    result = run("config", "lint", file)
    assert result.exit_code == 1
    assert result.stderr == "rmqstore: 1 problem\n"
    assert json.loads(result.stdout.splitlines()[0])["problem"]
    against = run("config", "lint", file, root)
    assert (against.exit_code, against.stderr) == (1, "rmqstore: 4 problems\n")
    file.write_text("brokerName=a\n")
    assert run("config", "lint", file).exit_code == 0


def test_convert(run: Run, root: Path) -> None:
    offsets = root / "config/topics.json"
    result = run("config", "convert", offsets)
    assert "orders" in json.loads(result.stdout)["topicConfigTable"]
    again = root.parent / "topics.json"
    again.write_text(result.stdout)
    assert run("config", "convert", again, "--to", "fastjson").stdout == offsets.read_text()
    again.write_text("{")
    one_line(run("config", "convert", again), 4)


def test_wrong_arguments(run: Run, root: Path, file: Path) -> None:
    one_line(run("config", "lint", file, root / "none"), 4)
    one_line(run("config", "show", root / "none.conf"), 4)
    file.write_text("a=\\u12\n")
    assert "line 1" in one_line(run("config", "lint", file), 2)
    for words in (["lint"], ["show"], ["convert"], ["list"], ["convert", file, root]):
        assert run("config", *words).exit_code == 2, words
    assert run("config", "show", file, "--to", "json").exit_code == 2
