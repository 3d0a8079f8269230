"""``repair`` and ``rebuild`` as people type them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import rmqstore
from support import repairs
from support.command_line import Run, one_line, rows
from support.terminals import on_terminal

ACTION = ["action", "file", "offset", "bytes", "saved_to", "done"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repairs.make(tmp_path / "s", count=200)
    return tmp_path / "s"


def test_repair(run: Run, root: Path) -> None:
    done = run("repair", root)
    assert (done.stdout, done.exit_code) == ("", 0)
    assert "nothing to repair" in done.stderr
    repairs.DAMAGE["ds-store-in-log"](root)
    before = repairs.tree(root)
    planned = run("repair", root)
    assert planned.exit_code == 1
    assert planned.stderr.endswith(f"to repair it: rmqstore repair {root} --apply\n")
    moved, closed = [json.loads(line) for line in planned.stdout.splitlines()]
    assert list(moved) == ACTION
    assert (moved["action"], moved["file"], moved["offset"]) == (
        "move-foreign", "commitlog/.DS_Store", None)  # fmt: skip
    assert (moved["saved_to"], moved["done"]) == (None, False)
    assert closed["action"] == "close"
    applied = run("repair", root, "--apply")
    assert applied.exit_code == 0
    moved, closed = rows(applied)
    assert moved["done"]
    assert (root / str(moved["saved_to"])).read_bytes() == b"x"
    [journal] = [one.name for one in root.iterdir() if one.name.startswith("rmqstore-repair-")]
    command = f"rmqstore repair {root} --undo {journal}"
    assert applied.stderr.endswith(f"to put them back: {command}\n")
    assert run("repair", root).exit_code == 0
    undone = run("repair", root, "--undo", journal, "-o", "table")
    assert undone.exit_code == 0
    assert "lost" not in undone.stdout
    assert undone.stderr == "rmqstore: 3 changes undone: the files are as they were before\n"
    assert repairs.tree(root) == before
    assert "--undo must be a journal of" in one_line(run("repair", root, "--undo", journal), 2)
    assert "takes no --apply" in one_line(run("repair", root, "--undo", "x", "--apply"), 2)
    table = run("repair", root, "-o", "table")
    assert table.stdout.splitlines()[0].split()[:2] == ["action", "file"]


def test_what_is_left_is_exit_code_1(run: Run, root: Path) -> None:
    (root / "consumequeue/orders/9").symlink_to(root / "nowhere")
    for words in ((), ("--apply",)):
        done = run("repair", root, *words)
        assert done.exit_code == 1
        assert '"action":"none"' in done.stdout
        assert done.stderr == "rmqstore: nothing was changed\n"
        assert "mount its disk" in done.stdout


def test_rebuild(run: Run, root: Path) -> None:
    done = run("rebuild", root)
    assert done.exit_code == 0
    assert "as the log has them" in done.stderr
    found = rows(done)
    assert {one["rebuilt"] for one in found} == {"queue", "index"}
    assert all(one["same"] for one in found)
    assert list(found[0]) == ["rebuilt", "file", "units", "same"]
    assert list(found[-1]) == ["rebuilt", "file", "entries", "same"]
    repairs.DAMAGE["queue-units-zeroed"](root)
    done = run("rebuild", root)
    assert done.exit_code == 1
    assert done.stderr.endswith(f"to make them anew: rmqstore rebuild {root} --apply\n")
    done = run("rebuild", root, "--queues")
    assert done.stderr.endswith(f": rmqstore rebuild {root} --queues --apply\n")
    assert run("rebuild", root, "--index").exit_code == 0
    done = run("rebuild", root, "--queues", "--jobs", "1", "--apply")
    assert done.exit_code == 0
    assert [one["file"] for one in rows(done) if not one["same"]] == [repairs.queue_file(0)]
    assert run("rebuild", root).exit_code == 0
    [journal] = [one.name for one in root.iterdir() if one.name.startswith("rmqstore-repair-")]
    assert done.stderr.endswith(f"to put them back: rmqstore repair {root} --undo {journal}\n")


def test_a_store_in_use_and_none(run: Run, root: Path) -> None:
    with rmqstore.open(root, "r+"):
        for verb in ("repair", "rebuild"):
            assert "open for writing" in one_line(run(verb, root, "--apply"), 3)
        assert "open for writing" in one_line(run("repair", root, "--undo", "x"), 3)
        (root / "index/20260101000000000").write_bytes(b"")
        planned = run("rebuild", root)
        assert planned.exit_code == 1
        assert "files differ; the store is in use by process" in planned.stderr
        (root / "index/20260101000000000").unlink()
        planned = run("repair", root)
        assert (planned.stdout, planned.exit_code) == ("", 0)
        assert "the store is in use by process" in planned.stderr
    for verb in ("repair", "rebuild"):
        one_line(run(verb, root.parent / "none"), 4)


@pytest.mark.parametrize("width", [80, 120])
def test_a_reason_is_folded_and_never_cut(root: Path, width: int) -> None:
    repairs.DAMAGE["bak-in-log"](root)
    (root / "consumequeue/orders/9").symlink_to(root / "nowhere")
    conf = root / "broker.conf"
    conf.write_text("fileReservedTime=0\nstorePathRootDir=/nowhere\nfileReservedTimes=72\n")
    for verb in (["repair", root], ["config", "lint", conf, root]):
        reasons = [
            one.get("message" if verb[0] == "repair" else "problem")
            for one in map(json.loads, on_terminal(200, *verb, "-o", "jsonl").lines)
        ]
        shown = on_terminal(width, *verb).lines
        assert max(map(len, shown)) <= width
        text = "".join("".join(shown).split())  # a path may be longer than a line
        assert any(reasons)
        assert all("".join(one.split()) in text for one in reasons if one), shown


@pytest.mark.parametrize("damage", ["flips-and-queues-gone", "hole-over-many", "middle-missing"])
def test_the_lost_messages_are_counted(run: Run, tmp_path: Path, damage: str) -> None:
    root = tmp_path / "m"
    repairs.make(root)
    repairs.DAMAGE[damage](root)
    before = repairs.readable(root)
    planned, done = run("repair", root), run("repair", root, "--apply")
    lost = repairs.COUNT - len(before)
    for shown in (planned, done):
        assert f"{lost} messages in" in shown.stderr
        assert f"are lost for good: {lost} become dummies" in shown.stderr
        assert "body of zeros with the property RMQSTORE_LOST" in shown.stderr
        counted = [one for one in map(json.loads, shown.stdout.splitlines()) if "lost" in one]
        assert sum(one["lost"] for one in counted) == lost
        assert sum(one["dummies"] for one in counted) == lost
    now = repairs.readable(root)
    assert len(now) == len(before) + lost == repairs.COUNT


@pytest.mark.parametrize("verb", ["repair", "rebuild"])
def test_a_queue_is_named_by_its_topic(root: Path, verb: str) -> None:
    with rmqstore.open(root, "r+") as store:
        for _ in range(150):
            store.put("a_longer_name", b"x", queue_id=0)
    for number in range(2):
        repairs.patch(f"consumequeue/a_longer_name/0/{2000 * number:020}", 20, bytes(20))(root)
    text = "\n".join(on_terminal(80, verb, root).lines)
    found = re.findall(r" (\S*a_longer_name\S*(?: at \d+)?) ", text)
    assert found == ["a_longer_name/0", "a_longer_name/0 at 2000"]
