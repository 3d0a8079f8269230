"""``trace``: every step of a message, in stores of a broker and our own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.services.stored import HALF_TOPIC, SCHEDULE_TOPIC
from rmqstore.toolbox.journey import trace_of

pytestmark = pytest.mark.pure


def steps(root: Path, key: str, **options: Any) -> list[tuple[str, str]]:
    return [(one.step, one.topic) for one in toolbox.trace(root, key, **options)]


def test_retried_until_dead(broker_store: Callable[[str], Any]) -> None:
    root = broker_store("broker-clean").root
    with rmqstore.open(root) as store:
        dead = store["%DLQ%orders-group"][0][0]
    expected = [
        ("stored", "orders"),
        ("delayed", SCHEDULE_TOPIC),
        ("retry", "%RETRY%orders-group"),
        ("dead", "%DLQ%orders-group"),
        ("passed", "orders"),
        ("passed", "%RETRY%orders-group"),
    ]
    found = toolbox.trace(root, dead.uniq_key)
    assert [(one.step, one.topic) for one in found] == expected
    assert found[3].physical_offset == dead.physical_offset
    assert {one.group for one in found[1:]} == {"orders-group"}
    assert steps(root, dead.msg_id) == expected  # by the store's id
    assert steps(root, dead.keys[0]) == expected
    assert steps(root, dead.uniq_key, topic="orders") == expected
    with pytest.raises(rmqstore.MessageNotFoundError, match="for topic 'payments'"):
        toolbox.trace(root, dead.uniq_key, topic="payments")


@pytest.mark.parametrize("name", ["broker-clean", "broker-killed"])
def test_each_half_message(broker_store: Callable[[str], Any], name: str) -> None:
    """Each state that the store finds for a half message is the end of its trace."""
    root = broker_store(name).root
    with rmqstore.open(root) as store:
        states = {half.uniq_key: state for half, state in store.transactions.halves(in_doubt=False)}
    ends = {"committed": "commit", "rolled back": "rollback", "in doubt": "half"}
    assert states
    for key, state in states.items():
        found = [step for step, _ in steps(root, key) if step != "passed"]
        assert found[0] == "half"
        if state in ends:
            assert found[-1] == ends[state], (key, state)
        else:  # given up: 4.9.3 copies it to a topic of its own
            assert found[-1] in ("dead", "rollback"), (key, state)


def test_delayed_and_delivered(broker_store: Callable[[str], Any]) -> None:
    root = broker_store("broker-clean").root
    with rmqstore.open(root) as store:
        delivered = [message.uniq_key for message in store["delayed"].messages()]
    for key in delivered:
        found = [one for one in steps(root, key) if one[0] != "passed"]
        assert found == [("delayed", SCHEDULE_TOPIC), ("delivered", "delayed")]


def test_our_own_store(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"0", queue_id=0, keys="k")
        store.begin("orders", b"1", queue_id=0, keys="half").commit()
        store.begin("orders", b"2", queue_id=0, keys="rolled").rollback()
        store.begin("orders", b"3", queue_id=0, keys="doubt")
        with store.consumer("orders", group="billing") as orders:
            next(iter(orders))
            orders.commit(sync=True)
    assert steps(tmp_path, "k") == [("stored", "orders"), ("passed", "orders")]
    assert steps(tmp_path, "half") == [("half", HALF_TOPIC), ("commit", "orders")]
    assert [step for step, _ in steps(tmp_path, "rolled")] == ["half", "rollback"]
    assert steps(tmp_path, "doubt") == [("half", HALF_TOPIC)]
    shutil.rmtree(tmp_path / "index")  # the log has all
    assert steps(tmp_path, "half") == [("half", HALF_TOPIC), ("commit", "orders")]


def test_reports_of_clients(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        put = store.put("orders", b"0", queue_id=0)
        key = store.at(put.physical_offset).uniq_key
        assert key is not None
        parts = [
            ["Pub", str(now - 9), "cn", "producers", "orders", key, "t", "", "h:1", "1", "3", "0",
             "OFF", "true"],
            ["SubBefore", str(now + 60_000), "cn", "billing", "R1", key, "0", ""],
            ["SubAfter", "R1", key, "7", "true", "", "0"],
            ["SubBefore", str(now + 50_000), "cn", "audit", "R3", key, "0", ""],
            ["SubAfter", "R3", key, "7", "false", "", "4"],
            ["SubAfter", "R2", "another", "7", "true", "", "0"],
        ]  # fmt: skip
        body = "".join("\x01".join(part) + "\x02" for part in parts).encode()
        store.put("RMQ_SYS_TRACE_TOPIC", body, keys=key)
    found = toolbox.trace(tmp_path, key)
    assert [(one.step, one.topic, one.group) for one in found] == [
        ("stored", "orders", "producers"),
        ("stored", "orders", None),
        ("passed", "orders", "billing"),
    ]
    assert found[0].detail.startswith("sent by ")
    assert found[2].time == now + 60_007
    assert found[2].detail.startswith("consumed in 7 ms")


def test_damage_leaves_the_other_steps(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        put = store.put("orders", b"first", queue_id=0, keys="k")
        store.put("orders", b"again", queue_id=0, keys="k")
    (log,) = (tmp_path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(put.physical_offset + 88)
        file.write(b"#")
    (tmp_path / "config" / "consumerOffset.json").write_text("{")
    (tmp_path / "config" / "consumerOffset.json.bak").write_text("{")
    damaged: list[rmqstore.StoreCorruptError] = []
    with rmqstore.open(tmp_path) as store:
        (step,) = trace_of(store, "k", damaged=damaged.append)
    assert (step.step, step.queue_offset) == ("stored", 1)
    assert ["commitlog" in str(one) for one in damaged] == [True, False]
    assert toolbox.trace(tmp_path, "k") == [step]


def test_a_deleted_topic(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"0", queue_id=0, keys="k")
        store.delete_topic("orders")
    assert steps(tmp_path, "k") == [("stored", "orders")]


def test_unknown_key(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"0")
        with pytest.raises(rmqstore.MessageNotFoundError, match="key or id 'nothing'"):
            toolbox.trace(tmp_path, "nothing")
