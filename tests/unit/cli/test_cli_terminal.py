"""Conventions of all verbs that show rows: widths, colours, JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli.text import width_of
from rmqstore.config.store_config import StoreConfig
from support import terminals
from support.command_line import Run
from support.terminals import on_terminal

pytestmark = pytest.mark.pure

LONG = "a-topic-with-a-rather-long-name-of-a-team-that-likes-these"
ROWS = {
    "topics": ["topics", "--all"],
    "queues": ["queues"],
    "du": ["du", "--by", "topic,queue,tag,day"],
    "cat": ["cat", "-n", "5"],
    "find": ["find", "--key", "all"],
    "grep": ["grep", "order", "--jobs", "1", "-n", "9"],
    "trace": ["trace", "k0"],
    "groups": ["groups", "--lag", "--all"],
    "lag": ["lag"],
    "unconsumed": ["unconsumed", "-g", "billing"],
    "offsets": ["offsets", "get", "-g", "billing"],
    "dlq": ["dlq"],
    "delays": ["delays"],
    "txn": ["txn"],
    "clean": ["clean", "--before", "now"],
    "stats": ["stats", "orders"],
    "info": ["info"],
    "get": ["get", "orders/0@0"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal") / "store"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        for number in range(20):
            text = b"order %d " % number * 20
            store.put("orders", text, queue_id=number % 2, keys=f"k{number} all", tags="t")
            store.put(LONG, text, queue_id=number % 4, tags=f"tag{number % 3}")
            store.put(LONG, b"later", delay_level=10, keys=f"d{number}")
        for number in range(3):
            store.begin(LONG, b"half", keys=f"h{number}")
        for group in ("billing", "audit"):
            store.create_group(group, retry_max=0)
            with store.consumer("orders", group=group) as orders:
                messages = iter(orders)
                for _ in range(4):
                    orders.retry(next(messages))
                orders.commit()
    return path


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.long)])
@pytest.mark.parametrize("verb", [one for one in ROWS if one != "get"])  # it shows all of a body
def test_a_sound_store_on_a_terminal(
    root: Path, verb: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "_STYLE", re.compile("(?!)"))  # keeps styles
    name, *words = ROWS[verb]
    first = [words.pop(0)] if verb in ("grep", "trace", "offsets", "stats", "get") else []
    shown = on_terminal(columns, name, root, *first, *words)
    assert shown.code == 0, shown.errors
    text = "\n".join(shown.lines)
    assert not re.search("\x1b\\[[0-9;]*31m", text)  # red is for damage
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in shown.lines]
    wide = lines[1:] if verb == "info" else lines  # its first line has a path
    assert max(map(width_of, wide)) <= columns
    if verb not in ("info", "offsets", "stats", "clean"):
        assert len(lines) > 2


def test_red_is_for_damage(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    (copy / "commitlog" / "notes.txt").touch()  # a broker does not start beside it
    monkeypatch.setattr(terminals, "_STYLE", re.compile("(?!)"))
    shown = on_terminal(80, "info", copy)
    assert shown.code == 4
    assert re.search("\x1b\\[[0-9;]*31m", shown.lines[0])


@pytest.mark.parametrize("verb", ROWS)
def test_json_has_one_spacing(run: Run, root: Path, verb: str) -> None:
    name, *words = ROWS[verb]
    first = [words.pop(0)] if verb in ("grep", "trace", "offsets", "stats", "get") else []
    result = run(name, root, *first, *words, "-o", "jsonl")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines
    for line in lines:
        assert line == json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["queues", "-t", "orders"], "topic"),
        (["cat", "-t", "orders"], "topic"),
        (["find", "--key", "all", "-t", "orders"], "topic"),
        (["unconsumed", "-g", "billing", "-t", "orders"], "topic"),
        (["lag", "-g", "billing"], "group"),
        (["lag", "-t", "orders"], "topic"),
        (["dlq", "-g", "billing"], "group"),
        (["groups", "-g", "billing"], "group"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, list) else one,
)
def test_what_was_typed_is_no_column(run: Run, root: Path, words: list[str], name: str) -> None:
    verb, *options = words
    shown = on_terminal(200, verb, root, *options)
    assert name not in shown.lines[shown.lines[0].startswith("in all rows: ")].split()
    assert f" {name} " not in shown.lines[0]
    # Elsewhere every column is there.
    assert name in run(verb, root, *options, "-o", "csv").stdout.splitlines()[0].split(",")
