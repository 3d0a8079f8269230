"""JSON files of which no copy is whole: made from the log, or named with what is to be done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from conftest import BrokerStore
from rmqstore import offline
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.brokerfiles.groups import GroupConfig, GroupTable
from rmqstore.toolbox import repair, undo
from support import repairs

DELAYS, GROUPS = "delayOffset.json", "subscriptionGroup.json"
OFFSETS, FILTERS = "consumerOffset.json", "consumerFilter.json"
SCHEDULED = "SCHEDULE_TOPIC_XXXX"
TORN = {"torn": b'{"offs', "empty": b"", "null": b"null"}


@pytest.fixture
def root(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> Path:
    return Path(shutil.copytree(broker_store("broker-clean").root, tmp_path / "s"))


def spoil(root: Path, name: str, data: bytes = TORN["torn"]) -> None:
    for one in (name, f"{name}.bak"):
        (root / "config" / one).write_bytes(data)


@pytest.mark.parametrize("how", TORN)
def test_delays_go_on_at_the_first_one_that_was_not_delivered(root: Path, how: str) -> None:
    spoil(root, DELAYS, TORN[how])
    before = repairs.tree(root)
    [planned, _] = repair(root).actions
    assert (planned.action, planned.file) == ("rebuild-json", f"config/{DELAYS}")
    assert planned.message.endswith("by the log, 5 delayed messages are still to be delivered")
    assert repairs.tree(root) == before
    done = repair(root, apply=True)
    assert done.left == 0
    assert DelayTable.load(root).offsets == {1: 10, 2: 5, 3: 13, 18: 0}
    with rmqstore.open(root) as store:
        assert [one.level for one in store.delayed()] == [18] * 5
    assert offline.broker_start(root).broker == "starts"
    assert repair(root).actions == ()
    undo(root, str(done.journal))
    assert repairs.tree(root) == before


def test_a_delayed_message_whose_delivery_is_in_doubt_is_not_passed_over(root: Path) -> None:
    with rmqstore.open(root) as store:
        waiting = store[SCHEDULED][0][3]
        [place] = [
            one.physical_offset
            for one in store.scan()
            if one.uniq_key == waiting.uniq_key and one.topic != SCHEDULED
        ]
    size = 1 << 20
    with (root / f"commitlog/{place - place % size:020d}").open("r+b") as log:
        log.seek(place % size + 88)  # of the body
        log.write(b"\xff")
    spoil(root, DELAYS)
    done = repair(root, apply=True)
    [made] = [one for one in done.actions if one.file.endswith(DELAYS)]
    assert made.message.endswith(
        "12 delayed messages are still to be delivered, 6 of which were, and are once more"
    )
    assert DelayTable.load(root).offsets == {1: 3, 2: 5, 3: 13, 18: 0}


def test_a_message_that_was_put_twice_and_delivered_once(tmp_path: Path) -> None:
    root = tmp_path / "s"
    levels = rmqstore.StoreConfig.small(message_delay_level="1d")
    with rmqstore.open(root, "a", config=levels) as store:
        for _ in range(2):
            store.put("t", b"same", queue_id=0, delay_level=1, uniq_key=False)
        waiting = store[SCHEDULED][0][0]
    made = dict(waiting.properties)
    with rmqstore.open(root, "r+", config=levels) as store:
        store.core.put_stored(
            "t", 0, b"same", "\2".join(f"{name}\1{text}" for name, text in made.items()),
            flag=0, sys_flag=waiting.sys_flag, born_timestamp=waiting.born_timestamp,
            born_host=waiting.born_host, store_host=waiting.store_host, reconsume_times=0,
            prepared_transaction_offset=0, moved=True, wait=False,
        )  # fmt: skip
    spoil(root, DELAYS)
    repair(root, config=levels, apply=True)
    assert DelayTable.load(root).offsets[1] <= 1


def test_groups_are_those_that_the_log_and_their_offsets_name(root: Path) -> None:
    spoil(root, GROUPS)
    before = repairs.tree(root)
    done = repair(root, apply=True)
    [made] = [one for one in done.actions if one.file.endswith(GROUPS)]
    assert made.action == "rebuild-json"
    assert "orders-group, sql-group by retry topics and offsets, with a broker's defaults" in (
        made.message
    )
    entries = list(GroupTable.load(root))
    assert [one.name for one in entries] == ["orders-group", "sql-group"]
    assert all(one.to_json() == GroupConfig(one.name).to_json() for one in entries)
    assert offline.broker_start(root).broker == "starts"
    undo(root, str(done.journal))
    assert repairs.tree(root) == before
    spoil(root, OFFSETS)  # now by retry topics and dead letters
    repair(root, apply=True)
    assert {one.name for one in GroupTable.load(root)} >= {"orders-group"}


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize(
    ("name", "remedy"),
    [(OFFSETS, "rmqstore offsets STORE by-time -g GROUP"), (FILTERS, "consumers register them")],
)
def test_what_no_log_has_is_set_aside(root: Path, name: str, remedy: str, how: str) -> None:
    spoil(root, name, TORN[how])
    before = repairs.tree(root)
    done = repair(root, apply=True)
    [one] = [one for one in done.actions if one.file.endswith(name)]
    assert one.action == "set-aside-json"
    assert remedy in one.message
    assert not (root / "config" / name).exists()
    assert offline.broker_start(root).broker == "starts"
    undo(root, str(done.journal))
    assert repairs.tree(root) == before


def test_the_files_are_read_by_other_tools(root: Path) -> None:
    spoil(root, GROUPS)
    repair(root, apply=True)
    entries = json.loads((root / "config" / GROUPS).read_text())["subscriptionGroupTable"]
    assert entries["sql-group"]["retryMaxTimes"] == 16
