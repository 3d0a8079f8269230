"""Paths, names and ids on the command line: no verb shows a terminal what it would obey."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line

HOSTILE = "a\nrmqstore: forged\x1b[2J\x9b\u202e"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    root = tmp_path / HOSTILE
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"1", keys=["k"])
    return root


def plain(text: str) -> str:
    """The text, whose lines a terminal only shows."""
    assert all(one.isprintable() for one in text.split("\n"))
    assert "\nrmqstore: forged" not in text
    return text


@pytest.mark.parametrize(
    "verb",
    ["info", "topics", "queues", "cat", "groups", "lag", "dlq", "clean", "delays", "txn",
     "restore"],
)  # fmt: skip
def test_a_store_that_is_not_there(tmp_path: Path, run: Run, verb: str) -> None:
    said = one_line(run(verb, tmp_path / HOSTILE), 4)
    assert r"\x1b[2J\x9b\u202e" in plain(said)


def test_a_long_path_is_cut(tmp_path: Path, run: Run) -> None:
    said = one_line(run("info", "x\x1b" * 50_000), 4)
    assert " characters) ..." in plain(said)
    assert len(said) < 10_100
    assert said.endswith("'commitlog'\n") or "too long" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("cat", "-t", HOSTILE), 1),
        (("get", HOSTILE), 1),
        (("find", "--key", HOSTILE, "-t", "no\x1b"), 1),
        (("lag", "-g", HOSTILE), 1),
        (("put", HOSTILE), 2),
        (("cat", "--from", HOSTILE), 2),
        (("cat", "--sql", f"a = '{HOSTILE}"), 2),
        (("info", "-c", HOSTILE), 4),
        ((HOSTILE,), 2),
    ],
)
def test_an_argument(made: Path, run: Run, arguments: tuple[str, ...], code: int) -> None:
    verb, *options = arguments
    given = (verb, made, *options) if verb != HOSTILE else (verb,)
    plain(one_line(run(*given, input="x\n"), code))


def test_a_key_of_a_configuration(made: Path, run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "\x1b.conf"
    conf.write_text("flushDiskTyp\\u001be=SYNC_FLUSH\nmappedFileSizeCommitLgo\\n=1\n")
    plain(run("info", made, "-c", conf, "-o", "table").output)


def test_the_path_in_what_is_shown(made: Path, run: Run) -> None:
    for verb in ("info", "topics", "queues", "cat"):
        result = run(verb, made, "-o", "table")
        assert result.exit_code == 0
        plain(result.output)
