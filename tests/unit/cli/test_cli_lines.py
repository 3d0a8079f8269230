"""What ``cat``, ``get`` and ``find`` write for programs: when, and what of it before an error."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rmqstore
from rmqstore.cli import main
from rmqstore.cli.message_lines import MessageLines
from rmqstore.config.store_config import StoreConfig
from rmqstore.lines import json_lines
from support.damaged_store import poke

pytestmark = pytest.mark.pure

SYS_FLAG = 36  # byte of a record
COMPRESSED = b"\0\0\0\1"
TOGETHER = 256  # messages that are made into lines at a time


def run(*args: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in args])


def queue_offsets(shown: str, output: str) -> list[int]:
    if output == "csv":
        return [int(row["queue_offset"]) for row in csv.DictReader(io.StringIO(shown))]
    return [json.loads(line)["queue_offset"] for line in shown.splitlines()]


@pytest.mark.parametrize("output", ["jsonl", "csv"])
@pytest.mark.parametrize("count", [1, TOGETHER - 1, TOGETHER, 2 * TOGETHER + 1])
def test_every_message_once_and_in_order(tmp_path: Path, output: str, count: int) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        store.put_many("t", [b"%d" % number for number in range(count)], queue_id=0)
    shown = run("cat", tmp_path / "store", "-o", output)
    assert shown.exit_code == 0
    assert queue_offsets(shown.stdout, output) == list(range(count))
    some = run("cat", tmp_path / "store", "-o", output, "-n", count - 1)
    assert queue_offsets(some.stdout, output) == list(range(count - 1))


@pytest.mark.parametrize("form", [["-o", "jsonl"], ["-o", "csv"], ["-f", r"%J\n"]])
@pytest.mark.parametrize("bad", [0, 3, TOGETHER, TOGETHER + 5])
def test_messages_around_one_whose_body_cannot_be_inflated(
    tmp_path: Path, form: list[str], bad: int
) -> None:
    bodies = [zlib.compress(b"%d" % number) for number in range(TOGETHER + 9)]
    bodies[bad] = b"no stream"
    config = StoreConfig.small()
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        offsets = store.put_many("t", bodies, queue_id=0).physical_offset.tolist()
    for offset in offsets:
        poke(tmp_path / "store", offset + SYS_FLAG, COMPRESSED, config.mapped_file_size_commit_log)
    shown = run("cat", tmp_path / "store", *form)
    assert shown.exit_code == 4
    assert "the compressed body cannot be inflated" in shown.stderr
    assert queue_offsets(shown.stdout, form[1]) == list(range(len(bodies)))
    whole = run("cat", tmp_path / "store", *form, "--body", "none")
    assert (whole.exit_code, len(queue_offsets(whole.stdout, form[1]))) == (0, len(bodies))


@pytest.mark.parametrize("output", ["jsonl", "csv"])
def test_follow_shows_each_message_when_it_comes(tmp_path: Path, output: str) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.put("t", b"first", queue_id=0)
        command = [sys.executable, "-m", "rmqstore", "cat", str(root), "--follow", "-o", output]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
            try:
                assert following.stdout is not None
                if output == "csv":
                    assert following.stdout.readline().startswith(b"topic,")
                for body in (b"first", b"second", b"third"):
                    if body != b"first":
                        store.put("t", body, queue_id=1)
                    assert body in following.stdout.readline()
            finally:
                following.kill()


def test_no_two_inflated_bodies_are_held_together() -> None:
    """Each may be far larger than its record."""
    together: list[list[int]] = []

    def note(messages: list[Any]) -> bytes:
        together.append([message.sys_flag for message in messages])
        return b""

    with MessageLines(note) as lines:
        lines.all(SimpleNamespace(store_size=100, sys_flag=n % 3 == 2) for n in range(30))
    assert sum(map(len, together)) == 30
    assert all(sum(flags) <= 1 and (True not in flags[:-1]) for flags in together)


def test_messages_are_detached_while_they_are_written(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        store.put_many("t", [b"%d" % number * 50 for number in range(2000)], queue_id=0)
        wanted = json_lines(list(store.scan()), "auto")

        def detach(messages: list[rmqstore.Message]) -> None:
            for message in messages:
                message.detach()

        for _ in range(20):
            messages = list(store.scan())
            thread = threading.Thread(target=detach, args=(list(messages),))
            thread.start()
            shown = json_lines(messages, "auto")
            messages.clear()
            thread.join()
            assert shown == wanted
