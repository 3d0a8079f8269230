"""The command that ``verify`` names next: it mends what was found, and loses no message."""

from __future__ import annotations

import json
import shlex
import shutil
import struct
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore import toolbox
from support import damaged_store
from support.command_line import Run

OFFSETS = "config/consumerOffset.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = damaged_store.with_group(tmp_path_factory.mktemp("made") / "store")
    with rmqstore.open(root, "r+") as store, store.begin("Topic1", b"half", queue_id=0):
        pass
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def offsets(root: Path) -> dict[tuple[str, str], dict[int, int]]:
    with rmqstore.open(root) as store:
        return {place: dict(queues) for place, queues in store.offsets.items() if queues}


def set_offsets(root: Path, table: dict[str, dict[str, int]]) -> None:
    (root / OFFSETS).write_text(json.dumps({"offsetTable": table}))


def follow(run: Run, root: Path) -> None:
    """Run the command that ``verify`` names, with ``--apply``."""
    fix = toolbox.verify(root, jobs=1).fix
    assert fix is not None
    program, *words = shlex.split(fix)
    assert program == "rmqstore"
    result = run(*words, "--apply")
    assert result.exit_code == 0, result.output


def test_offsets_of_other_queues_stay(run: Run, root: Path) -> None:
    set_offsets(root, {"Topic1@billing": {"0": 9999, "1": 3}, "Topic1@audit": {"0": 2, "1": 8888}})
    with rmqstore.open(root) as store:
        ends = [queue.max_offset for queue in store["Topic1"].values()]
    report = toolbox.verify(root, jobs=1)
    assert [one.kind for one in report.problems] == ["offset-beyond-end"] * 2
    assert report.fix == f"rmqstore offsets {root} set -g audit -t Topic1 -q 1 --to last"
    table = run("verify", root, "-o", "table").stdout.splitlines()
    assert table[-1].split(maxsplit=1) == ["then", "verify again: 1 offset more to set"]
    follow(run, root)
    follow(run, root)
    assert toolbox.verify(root, jobs=1).clean
    assert offsets(root) == {
        ("Topic1", "billing"): {0: ends[0], 1: 3},
        ("Topic1", "audit"): {0: 2, 1: ends[1]},
    }


def test_open_transactions_are_checked_again(run: Run, root: Path) -> None:
    half = ("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS")
    set_offsets(root, {"@".join(half): {"0": 77}})
    follow(run, root)
    assert offsets(root) == {half: {0: 0}}
    assert toolbox.verify(root, jobs=1).clean


def test_an_offset_of_a_queue_that_is_not_there(root: Path) -> None:
    set_offsets(root, {"Topic1@billing": {"7": 1}})
    report = toolbox.verify(root, jobs=1)
    assert (report.clean, report.fix) == (False, None)


def test_lag_names_groups_beyond_the_end(run: Run, root: Path) -> None:
    assert run("lag", root).stderr == ""
    set_offsets(root, {"Topic1@billing": {"0": 9999}})
    result = run("lag", root)
    assert json.loads(result.stdout.splitlines()[0])["messages"] == 0
    assert "1 queue with a group beyond the end" in result.stderr


def test_the_configuration_is_named_again(run: Run, root: Path, tmp_path: Path) -> None:
    """A log elsewhere is found by it alone."""
    (root / "commitlog").rename(tmp_path / "a log")
    conf = tmp_path / "my broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path / 'a log'}\n")
    set_offsets(root, {"Topic1@billing": {"0": 9999}})
    words = f"rmqstore offsets {root} set -g billing -t Topic1 -q 0 --to last -c '{conf}'"
    assert toolbox.verify(root, jobs=1, config=conf).fix == words
    assert json.loads(run("verify", root, "-c", conf).stdout.splitlines()[-1])["fix"] == words
    _, *rest = shlex.split(words)
    assert run(*rest, "--apply").exit_code == 0
    assert toolbox.verify(root, jobs=1, config=conf).clean


def test_what_a_repair_took_out_is_named_with_its_undo(run: Run, root: Path) -> None:
    before = (root / OFFSETS).read_bytes()
    (root / "commitlog/.DS_Store").write_bytes(b"x")
    follow(run, root)
    [note] = toolbox.verify(root, jobs=1).problems
    [journal] = root.glob("rmqstore-repair-*")
    assert (note.kind, note.file) == ("quarantine", journal.name)
    command = f"rmqstore repair {root} --undo {journal.name}"
    assert f"'{command}' puts them back" in note.message
    assert run(*shlex.split(command)[1:]).exit_code == 0
    assert (root / "commitlog/.DS_Store").read_bytes() == b"x"
    assert (root / OFFSETS).read_bytes() == before


def test_beside_an_owner_nothing_is_named(run: Run, root: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        store.put("Topic1", b"x", queue_id=0)
        soon = int(time.time() + 10) * 1000
        with (root / "checkpoint").open("r+b") as file:  # the index was saved long ago
            file.write(struct.pack(">qqq", soon, soon, 1))
        result = run("verify", root, "-o", "table")
        report = toolbox.verify(root, jobs=1)
        assert "index-behind" in [one.kind for one in report.problems]
        assert (report.clean, report.fix, result.exit_code) == (True, None, 0)
        (root / "commitlog/.DS_Store").write_bytes(b"x")
        result = run("verify", root, "-o", "table")
        last = result.stdout.splitlines()[-1]
        assert last.split(maxsplit=1) == ["next", "stop the process that has it, then verify again"]


def test_a_value_that_a_broker_passes_over(run: Run, root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC\nmappedFileSizeCommitLog=1G\ncleanFileForciblyEnable=no\n")
    page = str(tmp_path / "page.html")
    for words in (["verify"], ["plan"], ["info"], ["lag"], ["report", page], ["repair"]):
        result = run(words[0], root, *words[1:], "-c", conf)
        assert result.exit_code == 0, result.output
        if words[0] != "report":
            assert "line 1: flushDiskType is 'SYNC', must be" in result.stderr
            assert "line 2: mappedFileSizeCommitLog is '1G'" in result.stderr
            assert "a 4.9.3 broker takes it as false" in result.stderr
    with pytest.warns(rmqstore.RmqStoreWarning, match="a 4.9.3 broker"):
        assert toolbox.verify(root, jobs=1, config=conf).clean
    for words in (["put", "Topic1"], ["clean", "--before", "now", "--apply"]):
        refused = run(words[0], root, *words[1:], "-c", conf, input="x\n")
        assert refused.exit_code == 2
        assert "flushDiskType is 'SYNC'" in refused.stderr
    conf.write_text("mappedFileSizeCommitLog=77\n")  # which a broker takes
    assert run("verify", root, "-c", conf).exit_code == 2


def test_queues_that_the_next_start_makes(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/Topic1/0")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    report = toolbox.verify(root, jobs=1)
    assert [(one.kind, one.file) for one in report.problems if one.kind != "abort"] == [
        ("queue-unsaved", "consumequeue/Topic1/0")
    ]
    assert (report.clean, report.fix, report.broker) == (True, None, "starts")
    with rmqstore.open(root, "r+"):
        pass
    assert (root / "consumequeue/Topic1/0").is_dir()
    assert toolbox.verify(root, jobs=1).clean
    shutil.rmtree(root / "consumequeue/Topic1/0")
    assert "queue-missing" in [one.kind for one in toolbox.verify(root, jobs=1).problems]
