"""Paths, names and ids on the command line: no verb shows a terminal what it would obey."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line
from support.terminals import on_terminal

LATIN = os.fsdecode(b"Z\xfcrich")
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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("find", "-k", LATIN), "--key"),
        (("find", "-k", "k", "-t", LATIN), "--topic"),
        (("get", LATIN), "ID"),
        (("cat", "--tags", LATIN), "--tags"),
        (("cat", "--sql", f"a = '{LATIN}'"), "--sql"),
        (("lag", "-g", LATIN), "--group"),
        (("put", "orders", "--keys", LATIN), "--keys"),
        (("put", "orders", "--tags", LATIN), "--tags"),
        (("put", "orders", "-p", f"a={LATIN}"), "--property"),
        (("put", LATIN), "TOPIC"),
    ],
)
@pytest.mark.parametrize("config", [True, False])
def test_text_that_is_not_utf8(
    tmp_path: Path, conf: Path, run: Run, arguments: tuple[str, ...], name: str, config: bool
) -> None:
    """Paths of any bytes are taken beside it."""
    root = tmp_path / LATIN
    rmqstore.open(root, "a", config=rmqstore.StoreConfig.from_file(conf)).close()
    file = conf.rename(tmp_path / f"{LATIN}.conf")
    verb, *rest = arguments
    options = ["-c", file] if config else []
    said = one_line(run(verb, root, *rest, *options, input="x\n"), 2)
    assert said.startswith(f"rmqstore: {name} must be UTF-8, got ")
    assert "Z\\udcfcrich" in said


def test_paths_that_are_not_utf8(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    root, copy = tmp_path / LATIN, tmp_path / f"copy {LATIN}"
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"1", keys=["k"])
    info = run("info", root)
    assert info.exit_code == 0
    assert json.loads(info.stdout_bytes.decode())["path"] == str(root)
    assert run("snapshot", root, copy).exit_code == 0
    for given in (["--store", copy], [copy]):
        assert json.loads(run("info", *given).stdout_bytes.decode())["messages"] == 1
    monkeypatch.setenv("RMQSTORE_PATH", str(copy))
    for form in ("table", "csv"):
        assert run("info", "-o", form).exit_code == 0
    assert run("cat", "-f", f"{LATIN}%s").stdout_bytes == b"Z\xfcrich1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cat", "-n", "9" * 20), "is not in the range 0<=x<=9223372036854775807"),
        (("find", "-k", "k", "-n", "9" * 20), "is not in the range 1<=x<=9223372036854775807"),
        (("put", "orders", "-q", "2147483648"), "is not in the range 0<=x<=2147483647"),
        (("cat", "--from", "-999999999999w"), "--from must be at most 292 million years ago"),
        (("cat", "--until", "-999999999999d"), "--until must be at most 292 million years ago"),
        (("find", "-k", "k", "--until", "-999999999999w"), "--until must be at most"),
        (("clean", "--before", "-999999999999w"), "--before must be at most"),
    ],
)
def test_numbers_that_are_too_large(
    made: Path, run: Run, arguments: tuple[str, ...], says: str
) -> None:
    verb, *options = arguments
    assert says in one_line(run(verb, made, *options, input="x\n"), 2)
    assert run("cat", made, "-n", 2**63 - 1, "--from", "-999999999999h").exit_code == 0


def test_a_key_of_a_configuration(made: Path, run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "\x1b.conf"
    conf.write_text("flushDiskTyp\\u001be=SYNC_FLUSH\nmappedFileSizeCommitLgo\\n=1\n")
    plain(run("info", made, "-c", conf, "-o", "table").output)


def test_the_path_in_what_is_shown(made: Path, run: Run) -> None:
    for verb in ("info", "topics", "queues", "cat"):
        result = run(verb, made, "-o", "table")
        assert result.exit_code == 0
        plain(result.output)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_whose_encoding_lacks_a_character(tmp_path: Path, encoding: str) -> None:
    """A message of somebody ended the verb with a traceback, in the middle of its output."""
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", "caf\u00e9 \u8ba2".encode(), keys=["\u8ba2"])
    for verb in (["get", tmp_path / "s", "orders/0@0"], ["cat", tmp_path / "s"]):
        shown = on_terminal(100, *verb, PYTHONIOENCODING=encoding)
        assert (shown.code, shown.errors) == (0, "")
        assert any(r"\u8ba2" in line for line in shown.lines)


def test_the_traceback_of_a_defect(tmp_path: Path) -> None:
    code = f"""
import rmqstore
def fail(*arguments, **options):
    raise ValueError({HOSTILE!r})
rmqstore.open = fail
from rmqstore.cli import main
main()
"""
    shown = on_terminal(100, "info", tmp_path, code=code)
    assert shown.code == 1
    first, *lines = shown.errors.rstrip("\n").split("\n")
    assert first == "Traceback (most recent call last):"
    assert lines[-1] == r"  rmqstore: forged\x1b[2J\x9b\u202e"
    assert all(one.startswith("  ") and one.isprintable() for one in lines)
