"""Transactions: the records that they leave, ends that happen once, checks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import rmqstore
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError, PutError, ReadOnlyStoreError, StoreError
from rmqstore.services.stored import (
    HALF_TOPIC,
    MAX_TIME_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    properties_text,
)
from rmqstore.types import PutStatus

SMALL = StoreConfig.small()
GROUP = "CID_RMQ_SYS_TRANS"
Wait = Callable[[Callable[[], object]], None]


def bodies(store: rmqstore.MessageStore, topic: str = "t") -> list[bytes]:
    return [message.body for message in store.scan(topic)]


def in_doubt(store: rmqstore.MessageStore) -> list[bytes]:
    return [one.message.body for one in store.in_doubt()]


def test_records_as_a_producer_and_a_broker_leave_them(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        begun = store.begin(
            "t", b"x", producer_group="p", tags="A", keys="k", properties={"a": "b"}, queue_id=2,
            flag=7, born_host="10.0.0.1:5",
        )  # fmt: skip
        half = store.at(begun.prepared_offset)
        assert (half.topic, half.queue_id, half.queue_offset) == (HALF_TOPIC, 0, 0)
        assert half.properties == {
            "a": "b", "KEYS": "k", "TAGS": "A", "UNIQ_KEY": begun.uniq_key, "TRAN_MSG": "true",
            "PGROUP": "p", "REAL_TOPIC": "t", "REAL_QID": "2",
        }  # fmt: skip
        assert half.sys_flag == 0
        assert (begun.half_offset, begun.msg_id) == (0, half.msg_id)
        assert not store.get("t", 2, 0).messages
        [one] = store.in_doubt()
        assert (one.message.topic, one.message.queue_id, one.producer_group) == ("t", 2, "p")
        assert one.checks == 0
        assert timedelta() <= one.age < timedelta(minutes=1)
        done = begun.commit()
        assert (done.queue_id, done.queue_offset, done.uniq_key) == (2, 0, begun.uniq_key)
        [real] = store.get("t", 2, 0).messages
        assert real.physical_offset == done.physical_offset
        assert (real.sys_flag, real.prepared_transaction_offset) == (8, half.physical_offset)
        assert real.properties == half.properties
        for name in ("body", "flag", "born_timestamp", "born_host", "reconsume_times"):
            assert getattr(real, name) == getattr(half, name), name
        store.begin("t", b"y").rollback()
        ops = list(store[OP_TOPIC][0])
        assert [(op.body, op.properties) for op in ops] == [
            (b"0", {"WAIT": "true", "TAGS": "d"}),
            (b"1", {"WAIT": "true", "TAGS": "d"}),
        ]
        assert bodies(store) == [b"x"]
        assert store.in_doubt() == []
        assert store[HALF_TOPIC].write_queue_nums == store[OP_TOPIC].write_queue_nums == 1
    offsets = OffsetTable.load(tmp_path / "s").offsets
    assert offsets[HALF_TOPIC, GROUP] == {0: 2}
    assert offsets[OP_TOPIC, GROUP] == {0: 2}


@pytest.mark.parametrize("more", [{}, {"tags": "T", "keys": ["a", "b"]}, {"uniq_key": False}])
@pytest.mark.parametrize("checksum", [False, True])
def test_sizes_at_the_limit(tmp_path: Path, more: dict, checksum: bool) -> None:
    config = SMALL.replace(record_checksum=checksum, max_message_size=2000)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        one = store.begin("topic", b"", queue_id=12345, **more)
        room = 2000 - store.at(one.prepared_offset).store_size
        two = store.begin("topic", bytes(room), queue_id=12345, **more)
        assert store.at(two.prepared_offset).store_size == 2000
        with pytest.raises(MessageIllegalError):
            store.begin("topic", bytes(room + 1), queue_id=12345, **more)


def test_bad_arguments(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        for wrong in (
            {"producer_group": ""}, {"producer_group": "a\1b"}, {"producer_group": " "},
            {"producer_group": "../a"}, {"producer_group": "a" * 121}, {"delay_level": 1},
            {"properties": {"PGROUP": "x"}}, {"queue_id": 0, "queue_key": "k"},
            {"lite_topics": ["%LMQ%a"]}, {"lite_topics": []},
        ):  # fmt: skip
            with pytest.raises(ValueError, match=next(iter(wrong))):
                store.begin("t", b"x", **wrong)
        for other in (7, None, b"p"):
            with pytest.raises(TypeError, match="producer_group"):
                store.begin("t", b"x", producer_group=other)
        for topic in (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC):
            with pytest.raises(MessageIllegalError, match=topic):
                store.begin(topic, b"x")
        with pytest.raises(TypeError, match="topic"):
            store.begin(["t"], b"x")
        assert store.topics == {}
    with rmqstore.open(tmp_path / "s", "r") as store, pytest.raises(ReadOnlyStoreError):
        store.begin("t", b"x")


def test_each_ends_once(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        with store.begin("t", b"committed") as one:
            pass
        with pytest.raises(ZeroDivisionError), store.begin("t", b"rolled back") as two:
            raise ZeroDivisionError
        with store.begin("t", b"by hand") as three:
            three.rollback()
        four = store.begin("t", b"in doubt")
        [doubtful] = store.in_doubt()
        doubtful.commit()
        for ended in (one, two, three, four, doubtful):
            for end in (ended.commit, ended.rollback):
                with pytest.raises(StoreError, match="has ended"):
                    end()
        assert bodies(store) == [b"committed", b"in doubt"]


def test_after_reopening(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        begun = [store.begin("t", b"%d" % number) for number in range(6)]
        begun[1].commit()
        begun[4].rollback()
        assert in_doubt(store) == [b"0", b"2", b"3", b"5"]
    with rmqstore.open(root, "r") as store:
        assert in_doubt(store) == [b"0", b"2", b"3", b"5"]
        with pytest.raises(ReadOnlyStoreError):
            store.in_doubt()[0].commit()
    with rmqstore.open(root, "r+") as store:
        one, two, three, _ = store.in_doubt()
        assert one.commit().physical_offset == max(m.physical_offset for m in store.scan("t"))
        three.rollback()
        assert in_doubt(store) == [b"2", b"5"]
        two.commit()
    with rmqstore.open(root, "r") as store:
        assert in_doubt(store) == [b"5"]
        assert sorted(bodies(store)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("uniq_key", [True, False])
def test_a_kill_between_commit_and_its_note(tmp_path: Path, index: bool, uniq_key: bool) -> None:
    code = f"""
import os, sys, rmqstore
config = rmqstore.StoreConfig.small(message_index_enable={index})
store = rmqstore.open(sys.argv[1], "a", config=config)
for number in range(3):
    store.begin("t", b"same", uniq_key={uniq_key}, queue_id=0, born_timestamp=number + 1)
store.transactions.put_op = lambda *arguments, **named: os._exit(9)
store.in_doubt()[1].commit()
"""
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "s"], check=False).returncode == 9
    config = SMALL.replace(message_index_enable=index)
    with rmqstore.open(tmp_path / "s", "r+", config=config) as store:
        assert len(store.in_doubt()) == 3
        [stored] = store.scan("t")
        results = [one.commit() for one in store.in_doubt()]
        assert results[1].physical_offset == stored.physical_offset
        assert results[1].msg_id == stored.msg_id
        assert store.in_doubt() == []
        assert sorted(m.born_timestamp for m in store.scan("t")) == [1, 2, 3]


def test_a_commit_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        begun = store.begin("t", b"x")
        put, failing = store.core.put_stored, [OP_TOPIC, "t"]

        def refuse(topic: str, *arguments: object, **more: object) -> object:
            if failing and topic == failing[-1]:
                failing.pop()
                raise PutError("no space", status=PutStatus.DISK_FULL)
            return put(topic, *arguments, **more)

        store.core.put_stored = refuse
        for _ in range(2):
            with pytest.raises(PutError):
                begun.commit()
        begun.commit()
        assert bodies(store) == [b"x"]
        assert store.in_doubt() == []


def test_checks(tmp_path: Path, wait_until: Wait) -> None:
    answers: dict[bytes, str | None] = {b"commit": "commit", b"rollback": "rollback"}
    asked: list[tuple[bytes, int]] = []

    def check(one: rmqstore.InDoubt) -> str | None:
        asked.append((one.message.body, one.checks))
        assert one.message.topic == "t"
        assert one.producer_group == "rmqstore"
        return answers.get(one.message.body)

    config = SMALL.replace(
        transaction_check=check, transaction_check_max=3, transaction_timeout=40_000
    )
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config) as store:
        first = store.begin("t", b"unknown", flag=5)
        store.begin("t", b"commit")
        store.begin("t", b"rollback")
        store.clock.advance(40)
        fresh = store.begin("t", b"fresh")
        assert asked == []
        store.clock.advance(21)  # the fresh one is younger than 40 s
        wait_until(lambda: len(asked) == 3 and len(store.in_doubt()) == 2)
        assert asked == [(b"unknown", 1), (b"commit", 1), (b"rollback", 1)]
        assert bodies(store) == [b"commit"]
        [real] = store.scan("t")
        renewed = store.at(real.prepared_transaction_offset)
        assert renewed.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert renewed.queue_offset > 3
        fresh.commit()
        for times in (2, 3):
            store.clock.advance(60)
            wait_until(lambda times=times: (b"unknown", times) in asked)
            assert [one.checks for one in store.in_doubt()] == [times]
        store.clock.advance(60)
        wait_until(lambda: MAX_TIME_TOPIC in store and not store.in_doubt())
        assert len(asked) == 5
        [given_up] = store[MAX_TIME_TOPIC].messages()
        assert (given_up.body, given_up.flag) == (b"unknown", 5)
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
        with pytest.raises(StoreError, match="has ended"):
            first.commit()
        assert store.transactions.fresh == set()  # nor is anything else kept of those that ended
        assert [m.properties.get("TRANSACTION_CHECK_TIMES") for m in store[HALF_TOPIC][0]] == [
            None, None, None, None, "1", "1", "1", "2", "3",
        ]  # fmt: skip
    offsets = OffsetTable.load(root).offsets
    assert offsets[HALF_TOPIC, GROUP] == {0: 9}
    assert offsets[OP_TOPIC, GROUP] == {0: 3}


@pytest.mark.parametrize("check", [None, lambda one: None])
def test_progress_is_noted_meanwhile(
    tmp_path: Path, wait_until: Wait, check: Callable[[rmqstore.InDoubt], None] | None
) -> None:
    root = tmp_path / "s"
    config = SMALL.replace(transaction_check=check)
    with rmqstore.open(root, "a", config=config) as store:
        for _ in range(20):
            store.begin("t", b"x").commit()
        store.begin("t", b"in doubt")
        store.clock.advance(6)
        wait_until(lambda: store.offsets.get((HALF_TOPIC, GROUP)) == {0: 20})
        wait_until(lambda: store.offsets.get((OP_TOPIC, GROUP)) == {0: 20})
        [queue] = store.transactions._read_queues()
        assert not queue._ops
        store.clock.advance(6)
        wait_until(lambda: OffsetTable.load(root).offsets.get((OP_TOPIC, GROUP)) == {0: 20})
    with rmqstore.open(root, "r+", config=config) as store:
        [one] = store.in_doubt()
        one.commit()
        store.clock.advance(6)
        wait_until(lambda: store.offsets.get((HALF_TOPIC, GROUP)) == {0: 21})


def test_what_retention_removed_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        lost = [store.begin("t", b"lost") for _ in range(3)]
        lost[0].commit()
        [doubtful, _] = store.in_doubt()
        size = SMALL.mapped_file_size_commit_log
        while store.put("filler", bytes(2000)).physical_offset < 2 * size:
            pass
        begun = store.begin("t", b"kept")
        assert store.delete_expired(before=store.clock.now() + 3_600_000).files >= 1
        assert store[HALF_TOPIC][0].min_offset == 3
        assert in_doubt(store) == [b"kept"]
        assert in_doubt(store) == [b"kept"]
        [warning] = [one for one in caplog.records if "half messages" in one.message]
        assert "removed 2 half messages" in warning.message
        assert store.transactions.fresh == {(0, 3)}  # "kept"
        for end in (lost[1].commit, lost[2].rollback, doubtful.commit):
            with pytest.raises(StoreError, match="retention has removed the half message"):
                end()
        with pytest.raises(StoreError, match="has ended"):
            lost[0].commit()
        store.transactions.note_ended()
        assert store.offsets[HALF_TOPIC, GROUP] == {0: 3}
        begun.commit()
        store.transactions.note_ended()
        assert store.offsets[HALF_TOPIC, GROUP] == {0: 4}
    with rmqstore.open(root, "r+") as store:
        assert store.in_doubt() == []


def test_an_older_copy_ends_the_newest(tmp_path: Path, wait_until: Wait) -> None:
    asked: list[int] = []
    config = SMALL.replace(transaction_check=lambda one: asked.append(one.checks))
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        begun = store.begin("t", b"x")
        [old] = store.in_doubt()
        for times in (1, 2):
            store.clock.advance(61)
            wait_until(lambda times=times: asked == list(range(1, times + 1)))
        assert len(store.in_doubt()) == 1
        begun.commit()
        assert store.in_doubt() == []
        assert bodies(store) == [b"x"]
        with pytest.raises(StoreError, match="has ended"):
            old.rollback()


def test_a_callback_that_fails_is_asked_again(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [RuntimeError("no"), "perhaps", None, "commit"]

    def check(one: rmqstore.InDoubt) -> str | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with rmqstore.open(tmp_path / "s", "a", config=SMALL.replace(transaction_check=check)) as store:
        store.begin("t", b"x")
        for left in (3, 2, 1, 0):
            store.clock.advance(61)
            wait_until(lambda left=left: len(answers) == left)
        wait_until(lambda: not store.in_doubt())
        assert bodies(store) == [b"x"]
    assert "RuntimeError" in caplog.text
    assert "'perhaps'" in caplog.text


def test_immunity(tmp_path: Path, wait_until: Wait) -> None:
    asked: list[bytes] = []
    config = SMALL.replace(transaction_check=lambda one: asked.append(one.message.body))
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        properties = {"TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "t", "REAL_QID": "0"}
        immune = properties | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}
        store.core.put_stored(HALF_TOPIC, 0, b"immune", properties_text(immune))
        store.core.put_stored(HALF_TOPIC, 0, b"other", properties_text(properties))
        store.clock.advance(61)
        wait_until(lambda: asked)
        assert asked == [b"other"]
        store.clock.advance(60)
        wait_until(lambda: len(asked) == 3)
        assert sorted(asked) == [b"immune", b"other", b"other"]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_of_a_real_producer(broker_store: Callable[[str], Path], mode: str) -> None:
    root = broker_store("broker-killed")
    with rmqstore.open(root, mode) as store:
        found = store.in_doubt()
        names = [b"transaction %d" % number for number in range(2, 30, 3)]
        assert [one.message.body for one in found] == names
        assert {one.producer_group for one in found} == {"TxProducer"}
        assert {one.checks for one in found} == {3}
        assert {one.message.topic for one in found} == {"tx"}
        if mode == "r+":
            before = len(bodies(store, "tx"))
            for one in found[::2]:
                one.commit()
            for one in found[1::2]:
                one.rollback()
            assert len(bodies(store, "tx")) == before + 5
    with rmqstore.open(root, "r") as store:
        assert len(store.in_doubt()) == (10 if mode == "r" else 0)


def test_nothing_is_in_doubt_behind_the_group_s_offset(
    broker_store: Callable[[str], Path],
) -> None:
    with rmqstore.open(broker_store("broker-clean"), "r") as store:
        assert store.in_doubt() == []
        assert len(store[HALF_TOPIC][0]) == 180
