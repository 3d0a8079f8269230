"""``verify`` and ``plan`` as people type them."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import rmqstore
from support import damaged_store
from support.command_line import Run, one_line

pytestmark = pytest.mark.pure


def rows(result: Result) -> list[dict[str, Any]]:
    """Parse JSON lines, whatever the exit code."""
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged_store.make(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def test_a_good_store(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("rmqstore.toolbox.checks.verify")
    monkeypatch.setattr(module, "_SMALL", -1)
    result = run("verify", root)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        '{"broker":"starts","line":null,"messages_lost":0}',
        '{"checked":{"records":21,"queues":2,"units":12,"index_files":2,"files":22},"fix":null}',
    ]
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[0] == f"{root}: a 4.9.3 broker would start"
    assert table[1].startswith("checked  21 records, 12 units of 2 queues, 2 index files, 22 files")
    assert table[2] == "next     nothing: there is nothing to mend"
    whole = rows(run("verify", root, "--full", "--jobs", "1"))
    assert whole[-1]["checked"]["records"] == damaged_store.COUNT


def test_a_damaged_store(run: Run, root: Path) -> None:
    (root / "commitlog/.DS_Store").write_bytes(b"x")
    (root / "checkpoint").unlink()
    result = run("verify", root)
    assert result.exit_code == 1
    first, one, two, last = rows(result)
    assert list(first) == ["broker", "line", "messages_lost"]
    assert first["broker"] == "refuses"
    assert str(first["line"]).endswith("please check it manually")
    assert list(one) == ["severity", "kind", "file", "offset", "message"]
    assert (one["severity"], one["kind"]) == ("stop", "foreign-file")
    assert (two["severity"], two["kind"]) == ("warn", "checkpoint")
    assert last["fix"] == f"rmqstore repair {root}"
    conf = root.with_name("a broker.conf")
    conf.write_text("")
    *_, last = rows(run("verify", root, "-c", conf))
    assert last["fix"] == f"rmqstore repair {root} -c '{conf}'"
    csv = run("verify", root, "-o", "csv").stdout.splitlines()
    assert csv[0] == "severity,kind,file,offset,message"
    assert len(csv) == 3
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[0] == f"{root}: a 4.9.3 broker would not start"
    assert [line.split()[0] for line in table[1:]] == [
        "its",
        "stop",
        "warn",
        "checked",
        "unseen",
        "next",
    ]


def test_many_problems_are_bounded(run: Run, root: Path) -> None:
    for number in range(30):
        (root / f"index/foreign-{number}").write_bytes(b"x")
    table = run("verify", root, "-o", "table").stdout
    assert "and 10 more: -o jsonl has them all" in table
    assert len(rows(run("verify", root))) == 32


@pytest.mark.parametrize("to", ["pipe", "/dev/full"])
def test_output_that_cannot_be_written(root: Path, to: str) -> None:
    (root / "checkpoint").unlink()
    if to == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(to, os.O_WRONLY)
    command = [sys.executable, "-m", "rmqstore", "verify", root]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    if to == "pipe":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 4
        assert done.stderr == "rmqstore: standard output: No space left on device\n"


def test_notes_are_no_problems(run: Run, root: Path) -> None:
    (root / "abort").touch()
    result = run("verify", root)
    assert (result.exit_code, rows(result)[1]["kind"]) == (0, "abort")
    with rmqstore.open(root, "r+"):
        result = run("verify", root)
        assert (result.exit_code, rows(result)[1]["kind"]) == (0, "lock")


def test_no_store(run: Run, tmp_path: Path) -> None:
    assert "give the directory" in one_line(run("verify", tmp_path / "nothing"), 4)
    (tmp_path / "empty").mkdir()
    one_line(run("verify", tmp_path / "empty"), 4)
    one_line(run("plan", tmp_path / "empty"), 4)
    assert "--jobs" in run("verify", tmp_path, "--jobs", "0").stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal(root: Path, columns: int) -> None:
    (root / "commitlog/.DS_Store").write_bytes(b"x")
    (root / "consumequeue/.DS_Store").write_bytes(b"x")
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "rmqstore", "verify", root], stdout=side, env=environment
    ) as process:
        os.close(side)
        text = b""
        while True:
            try:
                some = os.read(main, 65536)
            except OSError:
                break
            if not some:
                break
            text += some
    os.close(main)
    assert process.returncode == 1
    lines = text.decode().splitlines()
    if b"\x1b[" in text:  # with rich
        red = [line for line in lines if "\x1b[1;31m" in line]
        assert len(red) == 2  # the verdict, and what stops it
        assert not any("warn" in line for line in red)
    plain = re.sub("\x1b\\[[0-9;]*m", "", text.decode())
    [command] = [line for line in plain.splitlines() if line.startswith("next")]
    assert command.split(maxsplit=1)[1] == f"rmqstore repair {root}"
    [quoted] = [line for line in plain.splitlines() if line.startswith("its log")]
    assert quoted.endswith("please check it manually")
    folded = [line for line in plain.splitlines()[1:] if line not in (command, quoted)]
    widths = [len(line) for line in folded]
    longest = max(len(word) for word in plain.split())
    assert max(widths) <= max(columns, longest + 12)


def test_plan(run: Run, root: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(path, (1e9, 1e9) if number < 2 else None)
    result = run("plan", root, "--at", "2026-05-04T12:00")
    assert result.exit_code == 0
    found = rows(result)
    assert [one["event"] for one in found] == ["start", *["delete"] * 4, "disk"]
    assert list(found[0]) == [
        "event", "at", "why", "files", "bytes", "messages", "oldest_kept", "groups", "delayed",
        "in_doubt",
    ]  # fmt: skip
    assert list(found[-1]) == ["event", "used", "full_at"]
    assert found[0]["at"] == "2026-05-04T12:00:00.000Z"
    assert len(found[1]["files"]) == 2
    assert str(found[1]["oldest_kept"]).endswith("Z")
    table = run("plan", root, "-o", "table").stdout
    assert "% full" in table.splitlines()[0]
    assert "delete " in table
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1\nfoo=1\n")
    result = run("plan", root, "-c", conf)
    assert "fileReservedTime=1" in json.loads(result.stdout.splitlines()[1])["why"]
    assert result.stderr.count("'foo'") == 1
    assert run("plan", root, "-o", "csv").stdout.startswith("event,at,why,files,bytes,messages")
    assert "--at must be" in one_line(run("plan", root, "--at", "soon"), 2)


@pytest.mark.parametrize("killed", [False, True])
def test_messages_that_are_lost_already(run: Run, root: Path, killed: bool) -> None:
    """As many as repair replaces by dummies."""
    (root / f"commitlog/{3 * damaged_store.LOG_SIZE:020}").unlink()
    if killed:
        (root / "abort").touch()
    lost = rmqstore.toolbox.repair(root).lost
    assert lost > 5
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[0] == f"{root}: a 4.9.3 broker would start; {lost} messages are lost already"
    first = rows(run("verify", root))[0]
    assert (first["broker"], first["messages_lost"]) == ("starts", 0)


def test_what_is_done_by_hand_is_the_last_word(run: Run, root: Path, five_store: Any) -> None:
    table = run("verify", five_store.root, "-o", "table").stdout.splitlines()
    assert table[0] == (
        f"{five_store.root}: of RocketMQ 5: a 4.9.3 broker must not start on it, and would lose "
        "1,500 messages"
    )
    assert "bytes 0 to 2037 of the log are a record of RocketMQ 5" in "".join(table)
    assert table[-1].startswith("next     run RocketMQ 5 on it")
    (root / "consumequeue/Topic1/9").symlink_to("nowhere")
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[-1] == "next     see to these by hand, then verify again"
    shutil.rmtree(root / "commitlog")
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[-1].endswith(f"rmqstore verify {root} -c broker.conf")
