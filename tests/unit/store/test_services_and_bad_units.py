"""Messages that wait, and whose units are damaged: they stay listed, and none is lost."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreCorruptError
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from support.undelivered import undelivered

SMALL = StoreConfig.small(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=400)
COUNT = 50  # units: two files and a half
UNIT = struct.Struct(">qiq")
ZERO = bytes(20)
Wait = Callable[[Callable[[], object]], None]


def queue_files(root: Path, topic: str, queue_id: int = 0) -> list[Path]:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def unit_of(root: Path, topic: str, number: int) -> bytes:
    data = b"".join(file.read_bytes() for file in queue_files(root, topic))
    return data[20 * number :][:20]


def set_unit(root: Path, topic: str, number: int, unit: bytes) -> None:
    with queue_files(root, topic)[number // 20].open("r+b") as file:
        file.seek(20 * (number % 20))
        file.write(unit)


def zeroed(root: Path, topic: str, number: int) -> bytes:
    return ZERO


def negative_size(root: Path, topic: str, number: int) -> bytes:
    at, size, code = UNIT.unpack(unit_of(root, topic, number))
    return UNIT.pack(at, -size, code)


def negative_place(root: Path, topic: str, number: int) -> bytes:
    at, size, code = UNIT.unpack(unit_of(root, topic, number))
    return UNIT.pack(-1 - at, size, code)


def of_another(root: Path, topic: str, number: int) -> bytes:
    return unit_of(root, topic, number - 2)


Unit = Callable[[Path, str, int], bytes]
UNITS = [zeroed, negative_size, negative_place, of_another]


def damage(root: Path, topic: str, numbers: list[int], how: Unit = zeroed) -> dict[int, bytes]:
    """Damage units; what they were."""
    good = {number: unit_of(root, topic, number) for number in numbers}
    bad = {number: how(root, topic, number) for number in numbers}
    for number, unit in bad.items():
        set_unit(root, topic, number, unit)
    return good


def delayed_store(root: Path, level: int = 1) -> None:
    with undelivered(), rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(COUNT):
            store.put("t", b"%03d" % number, delay_level=level, queue_id=0)


def numbers(store: rmqstore.MessageStore) -> list[int]:
    return [int(message.body) for message in store["t"][0]] if "t" in store else []


def missing(hit: list[int]) -> list[int]:
    return [number for number in range(COUNT) if number not in hit]


def saved_offset(root: Path) -> int:
    text = (root / "config" / "delayOffset.json").read_text()
    return int(text.partition("1:")[2].partition("\n")[0].rstrip("}"))


def bad_ones(listed: list[Any], name: str) -> list[int]:
    return sorted(getattr(one, name) for one in listed if one.message is None)


HITS = [[1], [18], [5, 6, 7, 8, 9], [22, 38], list(range(1, 19))]


@pytest.mark.parametrize("how", UNITS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("config", [None, SMALL], ids=["inferred", "configured"])
def test_kinds_of_bad_units(
    tmp_path: Path, wait_until: Wait, how: Unit, end: str, config: StoreConfig | None
) -> None:
    root = tmp_path / "s"
    delayed_store(root)
    hit = [5, 6, 7, 8, 9]
    damage(root, SCHEDULE_TOPIC, hit, how)
    if end == "killed":
        (root / "abort").touch()
    with rmqstore.open(root, config=config) as store:
        listed = store.delayed()
        assert sorted(one.queue_offset for one in listed) == list(range(COUNT))
        # Of one that was killed, all are derived from the log.
        assert bad_ones(listed, "queue_offset") == (hit if end == "closed" else [])
        assert all((one.message is None) == (one.error is not None) for one in listed)
        assert all(" unit" in one.error for one in listed if one.error is not None)
    with rmqstore.open(root, "r+", config=config) as store:
        store.clock.advance(10)
        if end == "closed":
            wait_until(lambda: [one.queue_offset for one in store.delayed()] == hit)
            assert numbers(store) == missing(hit)
        else:  # a recovery completes the queue
            wait_until(lambda: not store.delayed())
            assert numbers(store) == list(range(COUNT))


@pytest.mark.parametrize("hit", HITS, ids=lambda hit: f"{hit[0]}-{hit[-1]}")
def test_delivery_is_never_noted_behind_a_bad_unit(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture, hit: list[int]
) -> None:
    root = tmp_path / "s"
    delayed_store(root)
    damage(root, SCHEDULE_TOPIC, hit)
    for _ in range(2):
        caplog.clear()
        with rmqstore.open(root, "r+") as store:
            store.clock.advance(10)
            wait_until(lambda: [one.queue_offset for one in store.delayed()] == hit)
            assert numbers(store) == missing(hit)
        assert saved_offset(root) == hit[0]
        said = [one.message for one in caplog.records if "cannot be delivered" in one.message]
        assert len(said) == len(hit)
        assert f"at queue offset {hit[0]} cannot" in said[0]
    with rmqstore.open(root, "r+", verify="full") as store:
        store.clock.advance(10)
        wait_until(lambda: not store.delayed())
        assert numbers(store) == [*missing(hit), *hit]
    assert saved_offset(root) == COUNT


def test_a_unit_that_is_there_again_while_the_store_is_open(
    tmp_path: Path, wait_until: Wait
) -> None:
    root = tmp_path / "s"
    delayed_store(root)
    good = damage(root, SCHEDULE_TOPIC, [3, 30])
    config = SMALL.replace(flush_delay_offset_interval=600_000)
    with rmqstore.open(root, "r+", config=config) as store:
        store.clock.advance(10)
        wait_until(lambda: len(store.delayed()) == 2)
        store.schedule.save()
        for number, unit in good.items():
            set_unit(root, SCHEDULE_TOPIC, number, unit)
        wait_until(lambda: not store.delayed())
        assert numbers(store) == [*missing([3, 30]), 3, 30]
        assert saved_offset(root) == 3
        shutil.copytree(root, tmp_path / "killed")
        with rmqstore.open(root) as reader:
            reader.clock.advance(10)
            assert reader.delayed() == []
    assert saved_offset(root) == COUNT
    with rmqstore.open(tmp_path / "killed", "r+") as store:
        store.clock.advance(10)
        assert store.delayed() == []
        assert len(numbers(store)) == COUNT


def test_blank_units_and_the_rest_of_a_file_are_no_messages(
    tmp_path: Path, wait_until: Wait
) -> None:
    root = tmp_path / "s"
    delayed_store(root)
    for number in (4, 5, 21):
        set_unit(root, SCHEDULE_TOPIC, number, UNIT.pack(0, 0x7FFFFFFF, 0))
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            assert len(store.delayed()) == COUNT - 3
            assert all(one.error is None for one in store.delayed())
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(10)
        wait_until(lambda: not store.delayed())
        assert numbers(store) == missing([4, 5, 21])
    assert saved_offset(root) == COUNT


def test_what_was_delivered_behind_bad_units_is_found_by_place_in_the_log(
    tmp_path: Path, wait_until: Wait
) -> None:
    """Bad units of the real topic: the search for delivered messages passes over them."""
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(COUNT):
            store.put("t", b"%03d" % number, queue_id=0, uniq_key=False)
        store.put("t", b"%03d" % COUNT, delay_level=1, queue_id=0, uniq_key=False)
        wait_until(lambda: not store.delayed())
    (root / "config" / "delayOffset.json").unlink()
    damage(root, "t", [24, 25, 26, 44])
    with rmqstore.open(root) as store:
        assert store.delayed() == []
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(10)
        assert store.delayed() == []
        assert store["t"][0].max_offset == COUNT + 1


# ---- transactions


def halves(root: Path, ended: tuple[int, ...] = ()) -> None:
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(COUNT):
            begun = store.begin("t", b"%03d" % number, queue_id=0, born_timestamp=1 + number)
            if number in ended:
                begun.rollback()


@pytest.mark.parametrize("how", UNITS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("hit", HITS[2:], ids=lambda hit: f"{hit[0]}-{hit[-1]}")
def test_half_messages_of_bad_units(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: Unit, hit: list[int]
) -> None:
    root = tmp_path / "s"
    halves(root)
    damage(root, HALF_TOPIC, hit, how)
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            listed = store.in_doubt()
            assert sorted(one.half_offset for one in listed) == list(range(COUNT))
            assert bad_ones(listed, "half_offset") == hit
            for one in listed:
                assert (one.message is None) == (one.error is not None)
                assert str(one.half_offset) in repr(one) or one.message is not None
    caplog.clear()
    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        for _ in range(3):
            store.clock.advance(61)
            store.housekeeper.run_due()
        assert numbers(store) == missing(hit)
        listed = store.in_doubt()
        assert [one.half_offset for one in listed] == hit
        said = [one.message for one in caplog.records if "half message" in one.message]
        assert len(said) == len(hit)
        with pytest.raises(StoreCorruptError, match=f"consumequeue/{HALF_TOPIC}/0"):
            listed[0].commit()
        listed[0].rollback()
        assert [one.half_offset for one in store.in_doubt()] == hit[1:]
    with rmqstore.open(root, "r+", config=config, verify="full") as store:
        store.clock.advance(61)
        store.housekeeper.run_due()
        assert store.in_doubt() == []
        assert numbers(store) == [*missing(hit), *hit[1:]]


def test_a_half_message_that_is_there_again_while_the_store_is_open(tmp_path: Path) -> None:
    root = tmp_path / "s"
    halves(root)
    good = damage(root, HALF_TOPIC, [3, 30, 31])
    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        assert bad_ones(store.in_doubt(), "half_offset") == [3, 30, 31]
        for number, unit in good.items():
            set_unit(root, HALF_TOPIC, number, unit)
        [again] = [one for one in store.in_doubt() if one.half_offset == 30]
        assert again.physical_offset == UNIT.unpack(good[30])[0]
        assert again.commit().queue_offset == 0
        store.clock.advance(61)
        store.housekeeper.run_due()
        assert store.in_doubt() == []
        assert numbers(store) == [30, *missing([30])]


@pytest.mark.parametrize("how", UNITS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("closings", [0, 1, 3])
def test_a_note_of_an_end_that_is_there_again(tmp_path: Path, how: Unit, closings: int) -> None:
    root = tmp_path / "s"
    halves(root, ended=tuple(range(40)))
    (root / "config" / "consumerOffset.json").unlink(missing_ok=True)
    damage(root, OP_TOPIC, [25, 26], how)
    for _ in range(closings):
        with rmqstore.open(root, "r+") as store:
            found = [one.half_offset for one in store.in_doubt()]
            assert found == [25, 26, *range(40, COUNT)]
    with rmqstore.open(root, "r+", verify="full") as store:
        assert [one.half_offset for one in store.in_doubt()] == list(range(40, COUNT))


# ---- the command line


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqstore", *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_line_lists_bad_units(tmp_path: Path) -> None:
    root = tmp_path / "s"
    delayed_store(root, level=18)
    halves(root)
    shutil.copytree(root, tmp_path / "good")
    schedule = queue_files(root, SCHEDULE_TOPIC, 17)[0]
    with schedule.open("r+b") as file:
        file.seek(100)
        file.write(bytes(40))
    damage(root, HALF_TOPIC, [7])
    for verb, count, bad in ((("delays",), COUNT, 2), (("txn", "--in-doubt"), COUNT, 1)):
        good = run(verb[0], tmp_path / "good", *verb[1:], "-o", "jsonl")
        assert (good.returncode, good.stderr) == (0, "")
        done = run(verb[0], root, *verb[1:], "-o", "jsonl")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rows) == count
        errors = [row for row in rows if "error" in row]
        assert len(errors) == bad
        assert all(row["physical_offset"] is None for row in errors)
        assert done.returncode == 4
        assert "damaged: " in done.stderr
        assert run(verb[0], root, *verb[1:], "-o", "table").returncode == 4
    done = run("info", root, "-o", "jsonl")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["delayed"], facts["in_doubt"]) == (4, COUNT, COUNT)
    assert "2 delayed messages that wait are damaged" in facts["damage"]
    assert "1 half message that waits is damaged" in facts["damage"]
