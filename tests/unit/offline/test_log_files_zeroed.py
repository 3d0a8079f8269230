"""A log file whose beginning is zeroed: where a broker's recovery meets it, it cuts the log there.

Opening does not look there; beside the real 4.9.3: tests/interop/test_lost_files.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import offline
from rmqstore.cli import main
from support import damaged_store
from support.damaged_store import read, zero_beginning


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged_store.make(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def behind(root: Path, start: int) -> int:
    """Messages that are whole, and whose records are at or behind an offset."""
    with rmqstore.open(root) as store:
        places = {
            (name, queue_id, queue.min_offset + number)
            for name, topic in store.topics.items()
            for queue_id, queue in topic.items()
            for number, one in enumerate(queue.units()["physical_offset"])
            if one >= start
        }
    return len(places & read(root).keys())


@pytest.mark.parametrize("config", [None, damaged_store.CONFIG], ids=["none", "config"])
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("size", [4, 100, 5000, damaged_store.LOG_SIZE])
@pytest.mark.parametrize("number", [-2, -3, -4, 0])
def test_the_beginning_of_a_log_file(
    root: Path, number: int, size: int, state: str, config: rmqstore.StoreConfig | None
) -> None:
    start = zero_beginning(root, number, size)
    if state == "killed":
        damaged_store.killed(root)
    met = state == "killed" or number in (-2, -3)
    lost = behind(root, start) if met else 0
    found = offline.broker_start(root, config=config)
    assert (found.broker, found.messages_lost) == ("loses" if met else "starts", lost)
    if met:
        one = found.findings[0]
        assert (one.kind, one.offset, one.file) == ("bad-record", start, f"commitlog/{start:020d}")
        assert lost > 0
        assert one.line is not None
        assert "recover physics file end" in one.line


@pytest.mark.parametrize("number", [-2, -3])
def test_the_exit_code(root: Path, number: int) -> None:
    start = zero_beginning(root, number, 8)
    done = CliRunner().invoke(main, ["info", str(root), "-o", "jsonl"])
    assert done.exit_code == 4
    facts = json.loads(done.stdout)
    assert (facts["broker"], facts["messages_lost"]) == ("loses", behind(root, start))


def test_a_flipped_bit_of_the_first_body(root: Path) -> None:
    start = int(sorted((root / "commitlog").iterdir())[-3].name)
    damaged_store.flip(root, start + 100)
    found = offline.broker_start(root)
    assert (found.broker, found.messages_lost) == ("loses", behind(root, start))


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_damage_that_was_filled_is_passed_over(root: Path, state: str) -> None:
    start = zero_beginning(root, -3, 100)
    with rmqstore.open(root, "r+", on_corruption="fill", verify="full") as store:
        assert [one.start for one in store.recovery.ranges if one.kind == "filled"] == [start]
    if state == "killed":
        damaged_store.killed(root)
    assert offline.broker_start(root).broker == "starts"


def test_a_file_made_ahead_is_no_damage(root: Path) -> None:
    last = max(int(one.name) for one in (root / "commitlog").iterdir())
    ahead = root / f"commitlog/{last + damaged_store.LOG_SIZE:020d}"
    ahead.write_bytes(bytes(damaged_store.LOG_SIZE))
    assert offline.broker_start(root).broker == "starts"
    (root / "abort").touch()
    assert offline.broker_start(root).broker == "starts"
