"""Offsets of groups in a stopped store: shown, set, by time, cloned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("orders", 2)
        for number in range(10):
            store.put("orders", b"%d" % number, queue_id=number % 2)
        with store.consumer("orders", group="billing") as orders:
            messages = iter(orders)
            for _ in range(7):
                next(messages)
            orders.commit()
    return tmp_path


def table(root: Path, group: str) -> dict[int, int]:
    with rmqstore.open(root) as store:
        return dict(store.offsets.get(("orders", group), {}))


def files(root: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()
    }


def test_set(root: Path) -> None:
    before = table(root, "billing")
    untouched = files(root)
    planned = toolbox.offsets_set(root, "billing", "first")
    assert [(one.queue_id, one.was, one.now) for one in planned] == [
        (0, before[0], 0),
        (1, before[1], 0),
    ]
    assert files(root) == untouched  # a plan writes nothing
    assert toolbox.offsets_set(root, "billing", "first", apply=True) == planned
    assert table(root, "billing") == {0: 0, 1: 0}
    changed = {name for name, data in files(root).items() if untouched.get(name) != data}
    assert changed == {"config/consumerOffset.json", "config/consumerOffset.json.bak"}
    kept = json.loads((root / "config/consumerOffset.json.bak").read_text().replace("{0:", '{"0":')
                      .replace(",1:", ',"1":'))  # fmt: skip
    assert kept["offsetTable"]["orders@billing"] == {str(k): v for k, v in before.items()}
    assert toolbox.offsets_set(root, "billing", "first", apply=True) == []  # nothing left to do
    toolbox.offsets_set(root, "billing", 3, queue_id=1, apply=True)
    assert table(root, "billing") == {0: 0, 1: 3}
    with rmqstore.open(root, "r+") as store, store.consumer("orders", group="billing") as orders:
        assert sum(1 for _ in orders) == 7


def test_new_group_and_clone(root: Path) -> None:
    toolbox.offsets_set(root, "new", "last", topic="orders", apply=True)
    assert table(root, "new") == {0: 5, 1: 5}
    toolbox.offsets_clone(root, "copy", "billing", apply=True)
    assert table(root, "copy") == table(root, "billing")
    assert [one.now for one in toolbox.offsets_get(root, "copy")] == [
        *table(root, "billing").values()
    ]


def test_by_time(root: Path) -> None:
    with rmqstore.open(root) as store:
        moment = store["orders"][1][2].store_timestamp
        expected = {number: store["orders"][number].offset_at(moment) for number in (0, 1)}
    toolbox.offsets_by_time(root, "late", moment, topic="orders", apply=True)
    assert table(root, "late") == expected


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (("billing", 6), ValueError, r"to must be 0 to 5 in orders/0, got 6"),
        (("billing", -1), ValueError, r"to must be 0 to 5"),
        (("billing", "middle"), ValueError, "to must be"),
        (("billing", 1.5), TypeError, "to must be"),
        (("bill", "last"), rmqstore.GroupNotFoundError, "did you mean 'billing'"),
    ],
)
def test_refused(root: Path, call: Any, error: type[Exception], text: str) -> None:
    untouched = files(root)
    with pytest.raises(error, match=text):
        toolbox.offsets_set(root, *call, apply=True)
    assert files(root) == untouched


def test_more_refusals(root: Path) -> None:
    for options, error in (
        ({"topic": "order"}, rmqstore.TopicNotFoundError),
        ({"queue_id": 9}, rmqstore.MessageNotFoundError),
    ):
        with pytest.raises(error):
            toolbox.offsets_set(root, "billing", "last", apply=True, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'@'"):
        toolbox.offsets_set(root, "a@b", "last", topic="orders", apply=True)
    with pytest.raises(rmqstore.GroupNotFoundError):
        toolbox.offsets_get(root, "nobody")
    with pytest.raises(rmqstore.GroupNotFoundError, match="'order'; did you mean 'orders'"):
        toolbox.offsets_get(root, "billing", topic="order")
    with pytest.raises(rmqstore.GroupNotFoundError, match=r"for topic 'orders' in queue 9$"):
        toolbox.offsets_get(root, "billing", topic="orders", queue_id=9)
    with pytest.raises(rmqstore.GroupNotFoundError):
        toolbox.offsets_clone(root, "copy", "nobody", apply=True)


def test_beside_an_owner(root: Path) -> None:
    with rmqstore.open(root, "r+"):
        planned = toolbox.offsets_set(root, "billing", "first")
        assert planned
        with pytest.raises(rmqstore.StoreLockedError, match="open for writing elsewhere"):
            toolbox.offsets_set(root, "billing", "first", apply=True)
    assert toolbox.offsets_set(root, "billing", "first", apply=True) == planned
