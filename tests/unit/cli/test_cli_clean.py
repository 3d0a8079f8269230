"""``clean``: shows what would go, deletes it with ``--apply``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import rmqstore
from rmqstore.base.times import format_millis
from support.command_line import Run, one_line, rows

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16 << 10, mapped_file_size_consume_queue=400
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(300):
            store.clock.advance(60 if number == 150 else 0)
            store.put("t", b"%d" % number, queue_id=0)
    return tmp_path / "store"


def planned(result: Result) -> list[dict[str, Any]]:
    """Return the rows of a plan with something to do."""
    assert result.exit_code == 1, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_shows_then_deletes(root: Path, run: Run) -> None:
    with rmqstore.open(root) as store:
        before = store["t"][0][-1].store_timestamp
        wanted = store.delete_expired(before=before, dry_run=True)
    assert wanted.files
    text = format_millis(before)
    result = run("clean", root, "--before", text)
    assert result.exit_code == 1
    [row] = planned(result)
    assert row == {
        "files": wanted.files,
        "bytes": wanted.bytes,
        "messages": wanted.messages,
        "until": wanted.until,
        "queues": wanted.queues,
        "state": "deletable",
    }
    assert "--apply deletes this" in result.stderr
    assert planned(run("clean", root, "--before", text)) == [row]
    done = run("clean", root, "--before", text, "--apply")
    assert rows(done) == [row | {"state": "deleted"}]
    assert done.stderr == ""
    with rmqstore.open(root) as store:
        assert store.recovery.log_start == wanted.until
        assert len(store["t"][0]) == 300 - wanted.messages
    [row] = rows(run("clean", root, "--before", text, "--apply"))
    assert row["files"] == row["messages"] == 0
    table = run("clean", root, "--before", text, "-o", "table").stdout
    assert table.split()[:6] == ["files", "bytes", "messages", "until", "queues", "state"]


def test_a_configuration_has_the_hours(root: Path, run: Run, tmp_path: Path) -> None:
    assert "--before is needed" in one_line(run("clean", root), 2)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=400\n")
    [row] = rows(run("clean", root, "-c", conf))
    assert row["files"] == 0  # none is 72 hours old
    conf.write_text(conf.read_text() + "fileReservedTime=0\n")
    with rmqstore.open(root) as store:  # the last minute is in the future of this clock
        wanted = store.delete_expired(before=store["t"][0][149].store_timestamp + 1, dry_run=True)
    [row] = planned(run("clean", root, "-c", conf))
    assert 0 < row["files"] == wanted.files


def test_refusals(root: Path, run: Run) -> None:
    assert "--before" in run("clean", root, "--before", "soon").stderr
    assert run("clean", root, "--before", "soon").exit_code == 2
    assert run("clean", root / "none", "--before", "now").exit_code == 4
    with rmqstore.open(root, "r+"):
        assert "open" in one_line(run("clean", root, "--before", "now", "--apply"), 3)
        assert planned(run("clean", root, "--before", "now"))
