"""Verbs that find nothing: a sentence in a table, nothing added for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run
from support.terminals import on_terminal

pytestmark = pytest.mark.pure

VERBS = {
    ("cat", "--from", "-1h"): "no messages\n",
    ("delays",): "no delayed messages\n",
    ("dlq",): "no dead messages\n",
    ("txn", "--in-doubt"): "no half messages\n",
    ("groups",): "no groups\n",
}


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_nothing_found_is_a_sentence(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()):
        pass
    verb, *options = words
    shown = run(verb, tmp_path / "s", *options, "-o", "table")
    assert (shown.exit_code, shown.stdout) == (0, VERBS[words])
    assert run(verb, tmp_path / "s", *options, "-o", "jsonl").stdout == ""
    assert run(verb, tmp_path / "s", *options, "-o", "csv").stdout.count("\n") == 1


def test_summary_of_an_export_on_a_terminal(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"x")
    shown = on_terminal(80, "export", tmp_path / "s", tmp_path / "o.jsonl")
    assert shown.code == 0, shown.errors
    assert shown.lines[0].split() == ["messages", "bytes", "seconds", "skipped"]
    assert len(shown.lines[1].split()[-2]) <= 5
