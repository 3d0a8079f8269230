"""Topics of any name on the command line: each verb takes it, none shows its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli.common import unknown_name
from support.command_line import Run, rows
from support.stored_names import CONFIG, COUNT, NAMES, write_log


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    write_log(root, NAMES)
    with rmqstore.open(root, "r+", config=CONFIG):
        pass
    return root


@pytest.mark.parametrize("name", NAMES)
def test_taken(made: Path, run: Run, name: str) -> None:
    shown = run("cat", made, "-t", name, "-o", "jsonl")
    assert [row["topic"] for row in rows(shown)] == [name] * COUNT
    assert [row["topic"] for row in rows(run("queues", made, "-t", name, "-o", "jsonl"))] == [name]


@pytest.mark.parametrize("verb", ["topics", "queues"])
def test_listed(made: Path, run: Run, verb: str) -> None:
    assert {row["topic"] for row in rows(run(verb, made, "-o", "jsonl"))} == set(NAMES)
    text = run(verb, made, "-o", "table").output
    assert "\x1b[31mb" not in text
    assert "a\nb" not in text


def test_an_unknown_one_is_named_without_control_characters(made: Path, run: Run) -> None:
    result = run("cat", made, "-t", "no\x1b[31m", "-o", "jsonl")
    assert result.exit_code != 0
    assert "\x1b" not in result.stderr


def test_own_names_come_before_the_broker_s() -> None:
    known = ["CID_ONS-HTTP-PROXY", "CID_RMQ_SYS_TRANS", "SCHEDULE_TOPIC_XXXX", "shipping"]
    hint = str(unknown_name("group", "q", known)).split("; ")[1]
    assert hint.startswith("there are shipping, CID_ONS-HTTP-PROXY")
