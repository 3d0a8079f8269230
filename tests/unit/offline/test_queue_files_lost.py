"""Files of queues that are gone or zeroed: messages that a broker's start leaves unseen.

The numbers are those of the real 4.9.3; beside it: tests/interop/test_lost_files.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import offline
from rmqstore.cli import main
from rmqstore.offline import start_losses
from support import damaged_store
from support.queue_files import CLOSED, FILES, KILLED, PER_FILE, harm

COUNT = FILES * PER_FILE  # messages of a queue


def make(root: Path, queues: int = 2, **fields: object) -> Path:
    config = damaged_store.CONFIG.replace(**fields)
    lights = {"lite_topics": ["one"]} if fields else {}
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(COUNT * queues):
            store.put("T", b"%d" % number, queue_id=number % queues, **lights)
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


@pytest.mark.parametrize("config", [None, damaged_store.CONFIG], ids=["none", "config"])
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("name", CLOSED)
def test_messages_that_a_broker_does_not_show(
    root: Path, name: str, state: str, config: rmqstore.StoreConfig | None
) -> None:
    harm(root / "consumequeue/T/0", name)
    if state == "killed":
        (root / "abort").touch()
    lost = (KILLED if state == "killed" else CLOSED)[name]
    found = offline.broker_start(root, config=config)
    assert (found.broker, found.messages_lost) == ("loses" if lost else "starts", lost)
    for one in found.findings:
        if one.severity == "lost":
            assert one.file.startswith("consumequeue/T/0")
            assert "opening the store to write here completes the queue" in one.message
    with rmqstore.open(root, "r+"):
        pass
    assert offline.broker_start(root, config=config).broker == "starts"


@pytest.mark.parametrize(
    ("name", "kind", "first", "text"),
    [
        ("gone 0", "queue-file-missing", 0, "no file of 20 units from queue offset 0 on"),
        ("gone 1 2", "queue-file-missing", 20, "no file of 40 units from queue offset 20 on"),
        ("zeros 0", "unit-missing", 0, "zeros for 20 units from queue offset 0 on"),
        ("last of 0", "unit-missing", 19, "zeros for 1 unit from queue offset 19 on"),
    ],
)
def test_the_finding_and_the_exit_code(
    root: Path, name: str, kind: str, first: int, text: str
) -> None:
    harm(root / "consumequeue/T/0", name)
    done = CliRunner().invoke(main, ["info", str(root), "-o", "jsonl"])
    assert done.exit_code == 4
    facts = json.loads(done.stdout)
    [one] = facts["findings"]
    assert (facts["broker"], one["kind"], one["offset"]) == ("loses", kind, first * 20)
    assert one["file"] == f"consumequeue/T/0/{first // PER_FILE * PER_FILE * 20:020d}"
    assert text in one["message"]


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("removed", [1, 2, 4, 6])
def test_files_that_retention_removed_are_no_loss(tmp_path: Path, removed: int, state: str) -> None:
    root = damaged_store.make(tmp_path / "store")
    for path in sorted((root / "commitlog").iterdir())[:removed]:
        path.unlink()
    if state == "killed":
        (root / "abort").touch()
    with rmqstore.open(root) as store:
        low = store["Topic1"][0].min_offset
    assert low > 0
    assert offline.broker_start(root).broker == "starts"
    start, first = 0, root / f"consumequeue/Topic1/0/{0:020d}"
    while start + PER_FILE <= low:  # as retention does
        first.unlink()
        start += PER_FILE
        first = root / f"consumequeue/Topic1/0/{start * 20:020d}"
        assert offline.broker_start(root).broker == "starts"
    first.unlink()  # the only file that has the messages from low on
    found = offline.broker_start(root)
    assert (found.broker, found.messages_lost) == ("loses", start + PER_FILE - low)


def test_of_a_light_queue(tmp_path: Path) -> None:
    root = make(tmp_path / "store", queues=1, enable_multi_dispatch=True, enable_lmq=True)
    harm(root / "consumequeue/%LMQ%one/0", "gone 1")
    found = offline.broker_start(root)
    assert (found.broker, found.messages_lost) == ("loses", PER_FILE)


def test_beside_an_owner(root: Path) -> None:
    harm(root / "consumequeue/T/0", "gone 1")
    with damaged_store.owned(root):
        found = offline.broker_start(root)
    assert (found.broker, found.messages_lost) == ("loses", PER_FILE)


def test_of_a_whole_file_two_units_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    pread: Callable[[int, int, int], bytes] = os.pread

    def counted(fd: int, size: int, at: int) -> bytes:
        reads.append(at)
        return pread(fd, size, at)

    monkeypatch.setattr(start_losses.os, "pread", counted)
    assert offline.broker_start(root).broker == "starts"
    assert len(reads) <= 2 * 2 * FILES + 10
