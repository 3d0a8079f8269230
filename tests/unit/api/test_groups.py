"""Groups, their offsets and their lag; when offsets are on the disk; files that cannot be read."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest

import rmqstore
from rmqstore.brokerfiles import fastjson
from rmqstore.consume import progress
from rmqstore.errors import (
    GroupNotFoundError,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
)
from rmqstore.files import paths

SMALL = rmqstore.StoreConfig.small()
FILES = (paths.CONSUMER_OFFSET_JSON, paths.SUBSCRIPTION_GROUP_JSON)


def consume(store: rmqstore.MessageStore, group: str, *, sync: bool = False) -> int:
    with store.consumer("orders", group=group) as orders:
        count = len(list(orders))
        orders.commit(sync=sync)
    return count


def written(store: rmqstore.MessageStore, name: str = paths.CONSUMER_OFFSET_JSON) -> object:
    file = Path(store.path, "config", name)
    return fastjson.loads(file.read_text()) if file.exists() else None


def test_groups_are_made_changed_and_deleted(store: rmqstore.MessageStore) -> None:
    assert dict(store.groups) == {}
    made = store.create_group("billing", retry_max=3)
    assert made == rmqstore.Group("billing", (), 3, True, True)
    assert store.create_group("billing", retry_max=5).retry_max == 5
    store.put("orders", b"1")
    assert consume(store, "audit") == 1
    assert store.groups["audit"].topics == ("orders",)
    assert list(store.groups) == ["audit", "billing"]
    store.delete_group("billing")
    store.delete_group("audit")
    assert list(store.groups) == ["audit"]  # it has offsets
    store.delete_group("audit", offsets=True)
    assert not store.groups
    assert not store.offsets
    assert written(store) == {"offsetTable": {}}
    with pytest.raises(GroupNotFoundError, match="no group 'audit'"):
        store.delete_group("audit")
    with pytest.raises(KeyError):
        store.groups["audit"]
    assert consume(store, "audit") == 1


def test_a_group_with_consumers_is_not_deleted(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"1")
    with (
        store.consumer("orders", group="billing"),
        pytest.raises(StoreError, match="has consumers"),
    ):
        store.delete_group("billing")
    store.delete_group("billing")


@pytest.mark.parametrize("retry_max", [-1, 1 << 31, 1.5, True, "3"])
def test_retries_that_cannot_be(store: rmqstore.MessageStore, retry_max: object) -> None:
    with pytest.raises((TypeError, ValueError), match="retry_max must be"):
        store.create_group("billing", retry_max=retry_max)  # type: ignore[arg-type]


def test_a_reader_changes_no_group(store: rmqstore.MessageStore) -> None:
    store.create_group("billing", retry_max=7)
    with rmqstore.open(store.path) as reader:
        assert reader.groups["billing"].retry_max == 7
        with pytest.raises(ReadOnlyStoreError):
            reader.create_group("x")
        with pytest.raises(ReadOnlyStoreError):
            reader.delete_group("billing")
        store.create_group("later")
        assert list(reader.groups) == ["billing", "later"]
    for name in ("groups", "offsets"):
        with pytest.raises(StoreClosedError):
            getattr(reader, name)
    with pytest.raises(StoreClosedError):
        reader.lag()


def test_unknown_fields_are_written_back(tmp_path: Path) -> None:
    file = tmp_path / "config" / paths.SUBSCRIPTION_GROUP_JSON
    file.parent.mkdir()
    entry = {
        "brokerId": 7, "consumeBroadcastEnable": False, "consumeEnable": True,
        "consumeMessageOrderly": True, "groupName": "billing", "retryMaxTimes": -1,
        "retryQueueNums": 2, "groupRetryPolicy": {"type": "CUSTOMIZED"},
    }  # fmt: skip
    whole = {
        "dataVersion": {"counter": 5, "timestamp": 9, "stateVersion": 3},
        "subscriptionGroupTable": {"billing": entry},
        "forbiddenTable": {"billing": {"t": 1}},
    }
    file.write_text(json.dumps(whole))
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        assert store.groups["billing"].retry_max == -1
        assert not store.groups["billing"].consume_broadcast_enable
        store.create_group("other")
        store.create_group("billing", retry_max=4)
    now = fastjson.loads(file.read_text())
    billing = now["subscriptionGroupTable"].pop("billing")
    del now["subscriptionGroupTable"]["other"]
    assert {name: billing[name] for name in entry} == entry | {"retryMaxTimes": 4}
    version = now.pop("dataVersion")
    assert (version["counter"], version["stateVersion"]) == (7, 3)
    assert now == {"subscriptionGroupTable": {}, "forbiddenTable": whole["forbiddenTable"]}


# When offsets are on the disk


@mock.patch.object(progress, "SAVE_SECONDS", 600)  # not within what the test takes
def test_offsets_are_written_at_times_and_at_close(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        for number in range(8):
            store.put("orders", b"1", queue_id=number % 4)
        assert consume(store, "billing") == 8
        assert written(store) is None
        store.housekeeper.run_due()
        assert written(store) is None
        store.clock.advance(600)
        store.housekeeper.run_due()
        assert written(store) == {"offsetTable": {"orders@billing": dict.fromkeys(range(4), 2)}}
        store.put("orders", b"1", queue_id=0)
        assert consume(store, "billing") == 1
        assert written(store)["offsetTable"]["orders@billing"][0] == 2  # type: ignore[index]
    assert written(store)["offsetTable"]["orders@billing"][0] == 3  # type: ignore[index]


def test_offsets_are_written_at_once_with_sync(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"1", queue_id=0)
    assert consume(store, "billing", sync=True) == 1
    assert written(store) == {"offsetTable": {"orders@billing": {0: 1}}}
    assert store.stats()["flushed_position"] == store.stats()["wrote_position"]


def test_a_commit_after_the_services_ended_is_written_at_once(
    store: rmqstore.MessageStore,
) -> None:
    store.put("orders", b"1", queue_id=0)
    store.services.stop()
    store.progress.commit("orders", "billing", 0, 1)
    assert written(store) == {"offsetTable": {"orders@billing": {0: 1}}}


@mock.patch.object(progress, "SAVE_SECONDS", 600)
def test_after_a_snapshot_commits_are_written_as_before(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put("orders", b"1", queue_id=0)
        assert consume(store, "billing") == 1
        store.snapshot(tmp_path / "copy")
        before = written(store)
        assert before == {"offsetTable": {"orders@billing": {0: 1}}}
        store.put("orders", b"1", queue_id=0)
        assert consume(store, "billing") == 1
        assert written(store) == before
        store.clock.advance(600)
        store.housekeeper.run_due()
        assert written(store) == {"offsetTable": {"orders@billing": {0: 2}}}


def test_a_file_that_cannot_be_written_is_tried_again_and_told_at_close(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path, "a", config=SMALL)
    store.put("orders", b"1", queue_id=0)
    assert consume(store, "billing") == 1
    blocker = tmp_path / "config" / "consumerOffset.json.tmp"
    blocker.mkdir()
    with pytest.raises(OSError, match=r"consumerOffset\.json"):
        store.progress.save()
    assert written(store) is None
    with pytest.raises(OSError, match=r"consumerOffset\.json"):
        store.close()
    assert store.closed
    blocker.rmdir()
    with rmqstore.open(tmp_path, "r+", config=SMALL) as again:
        assert consume(again, "billing") == 1
        blocker.mkdir()
        with pytest.raises(OSError, match=r"consumerOffset\.json"):
            again.progress.save()
        blocker.rmdir()
    assert written(store) == {"offsetTable": {"orders@billing": {0: 1}}}


def test_a_deleted_topic_takes_its_offsets_along(store: rmqstore.MessageStore) -> None:
    for _ in range(8):
        store.put("orders", b"1", queue_id=0)
    assert consume(store, "billing", sync=True) == 8
    store.delete_topic("orders")
    assert not store.offsets
    assert written(store) == {"offsetTable": {}}
    store.put("orders", b"2", queue_id=0)
    assert consume(store, "billing") == 1


def test_offsets_beyond_a_lost_end_are_taken_back(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        store.put("orders", b"1", queue_id=0)
    file = tmp_path / "config" / paths.CONSUMER_OFFSET_JSON
    file.write_text('{"offsetTable":{"orders@billing":{0:5,7:3},"gone@billing":{0:9}}}')
    (tmp_path / "abort").touch()  # as after a kill or a power cut
    with rmqstore.open(tmp_path, "r+", config=SMALL) as store:
        assert dict(store.offsets) == {
            ("orders", "billing"): {0: 1, 7: 0},
            ("gone", "billing"): {0: 0},
        }
        store.put("orders", b"2", queue_id=0)
        assert consume(store, "billing") == 1


# Both files: torn, quoted keys, the file before


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("broken", ["", "{", '{"offsetTable":5,"subscriptionGroupTable":5}', "no"])
def test_a_torn_file(tmp_path: Path, name: str, broken: str) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        for _ in range(2):
            store.put("orders", b"1", queue_id=0)
            consume(store, "billing", sync=True)
            store.create_group("billing", retry_max=5)
    file = tmp_path / "config" / name
    backup = file.with_name(name + ".bak")
    good = file.read_bytes()
    assert backup.exists()
    file.write_text(broken)
    backup.write_bytes(good)
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path, mode, config=SMALL) as store:
            assert store.offsets == {("orders", "billing"): {0: 2}}
            assert store.groups["billing"].retry_max == 5
    file.write_text(broken)
    backup.write_text("{ torn")
    with pytest.raises(StoreCorruptError) as caught:
        rmqstore.open(tmp_path, "r+", config=SMALL)
    assert str(file) in str(caught.value)
    assert str(backup) in str(caught.value)
    assert (file.read_text(), backup.read_text()) == (broken, "{ torn")
    with rmqstore.open(tmp_path, config=SMALL) as store:  # a dead disk can be looked at
        assert len(list(store["orders"][0])) == 2
        asked = {"groups": lambda: store.groups}
        if name == paths.CONSUMER_OFFSET_JSON:
            asked |= {"lag": store.lag, "offsets": lambda: store.offsets}
        for ask in asked.values():
            for _ in range(2):
                with pytest.raises(StoreCorruptError) as caught:
                    ask()
                assert str(file) in str(caught.value)
                assert str(backup) in str(caught.value)
        file.write_bytes(good)  # as its owner mends it
        assert store.offsets == {("orders", "billing"): {0: 2}}
        assert store.groups["billing"].retry_max == 5


@pytest.mark.parametrize("name", FILES)
def test_what_a_reader_has_read_stays_while_its_file_is_torn(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as owner:
        owner.put("orders", b"1", queue_id=0)
        consume(owner, "billing", sync=True)
        owner.create_group("billing", retry_max=5)
    with rmqstore.open(tmp_path, config=SMALL) as store:
        assert store.groups["billing"] == rmqstore.Group("billing", ("orders",), 5)
        file = tmp_path / "config" / name
        file.write_text("{ torn")
        file.with_name(name + ".bak").write_text("{ torn")
        assert store.groups["billing"] == rmqstore.Group("billing", ("orders",), 5)
        assert name in caplog.text


def test_quoted_and_unquoted_keys(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        store.put("orders", b"1", queue_id=0)
    file = tmp_path / "config" / paths.CONSUMER_OFFSET_JSON
    for text in ('{"offsetTable":{"orders@g":{"0":1}}}', '{"offsetTable":{"orders@g":{0:1}}}'):
        file.write_text(text)
        for mode in ("r", "r+"):
            with rmqstore.open(tmp_path, mode, config=SMALL) as store:
                assert store.offsets == {("orders", "g"): {0: 1}}


def test_light_queues_have_a_file_of_their_own(tmp_path: Path) -> None:
    light = SMALL.replace(enable_lmq=True, enable_multi_dispatch=True)
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        store.put("orders", b"1", queue_id=0)
        consume(store, "billing")
    with rmqstore.open(tmp_path, "r+", config=light) as store:
        assert store.offsets == {("orders", "billing"): {0: 1}}  # taken over
        store.progress.commit("%LMQ%a", "%LMQ%g", 0, 7)
    name = paths.LMQ_CONSUMER_OFFSET_JSON
    expected = {
        "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 7},
        "offsetTable": {"orders@billing": {0: 1}},
    }
    assert written(store, name) == expected
    both = {("orders", "billing"): {0: 1}, ("%LMQ%a", "%LMQ%g"): {0: 7}}
    for mode, config in itertools.product(("r", "r+"), (light, None)):
        with rmqstore.open(tmp_path, mode, config=config) as store:
            assert store.offsets == both  # without a configuration, by the newer of the files
    os.utime(tmp_path / "config" / name, (1, 1))
    os.utime(tmp_path / "config" / f"{name}.bak", (1, 1)) if (
        tmp_path / "config" / f"{name}.bak"
    ).exists() else None
    with rmqstore.open(tmp_path) as store:
        assert store.offsets == {("orders", "billing"): {0: 1}}


# Lag


def test_lag_counts_from_units_and_store_times(store: rmqstore.MessageStore) -> None:
    draw = random.Random(7)
    stored: dict[int, list[rmqstore.PutResult]] = {0: [], 1: []}
    for _ in range(60):
        queue_id = draw.randrange(2)
        body = bytes(draw.randrange(300))
        stored[queue_id].append(store.put("orders", body, queue_id=queue_id))
        store.clock.advance(draw.random() * 100)
    for committed in (0, 1, 13, len(stored[0]) - 1, len(stored[0]), len(stored[0]) + 5):
        store.progress.commit("orders", "billing", 0, committed)
        behind = [store.at(done.physical_offset) for done in stored[0][committed:]]
        expected = rmqstore.Lag(
            "billing",
            "orders",
            0,
            committed,
            0,
            len(stored[0]),
            len(behind),
            sum(message.store_size for message in behind),
            timedelta(
                milliseconds=behind[-1].store_timestamp - behind[0].store_timestamp if behind else 0
            ),
        )
        found, of_uncommitted = store.lag()
        assert found == expected
        assert (of_uncommitted.queue_id, of_uncommitted.committed) == (1, 0)
        assert of_uncommitted.messages == len(stored[1])
        store.progress.save()
        with rmqstore.open(store.path) as reader:
            assert reader.lag("billing", "orders") == [expected, of_uncommitted]
    assert expected.messages == 0


def test_lag_is_sorted_and_chosen(store: rmqstore.MessageStore) -> None:
    for topic, group, queue_id in itertools.product(("b", "a"), ("y", "x"), (1, 0)):
        store.put(topic, b"1", queue_id=queue_id)
        store.progress.commit(topic, group, queue_id, 0)
    keys = [(lag.group, lag.topic, lag.queue_id) for lag in store.lag()]
    assert keys == list(itertools.product(("x", "y"), ("a", "b"), (0, 1)))
    assert [lag.topic for lag in store.lag("x")] == ["a", "a", "b", "b"]
    assert [lag.group for lag in store.lag(topic="b")] == ["x", "x", "y", "y"]
    assert store.lag("none") == store.lag(topic="none") == []
    store.progress.commit("../x", "x", 0, 4)
    store.progress.commit("never", "x", 0, 4)
    assert [(lag.max_offset, lag.messages) for lag in store.lag("x")][:2] == [(0, 0), (2, 2)]
    for wrong in ({"topic": 5}, {"group": 5}):
        with pytest.raises(TypeError):
            store.lag(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", ["a.b", "bill ing", "g" * 200, "%LMQ%x/y", "gruppe\u00e4"])
def test_a_group_that_no_client_may_name(
    tmp_path: Path, mode: Literal["r", "r+"], name: str
) -> None:
    """It is on the disk: what reads takes its name, and what would make it does not."""
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        store.put("orders", b"1", queue_id=0)
    table = {f"orders@{name}": {"0": 0}, "orders@x@y": {"0": 1}}
    file = tmp_path / "config" / paths.CONSUMER_OFFSET_JSON
    file.write_text(json.dumps({"offsetTable": table}))
    with rmqstore.open(tmp_path, mode) as store:
        assert list(store.groups) == [name] == [lag.group for lag in store.lag()]
        assert [lag.messages for lag in store.lag(name)] == [1]
        with pytest.raises(ValueError, match=r"group must be 1 to 120 of \["):
            store.lag("x@y")
        with pytest.raises(ValueError, match=r"group must be 1 to 120 of \["):
            store.consumer("orders", group=name)
        if mode == "r+":
            with pytest.raises(ValueError, match=r"name must be 1 to 120 of \["):
                store.create_group(name)
            store.progress.commit("orders", "other", 0, 1)
    written = fastjson.loads(file.read_text())["offsetTable"]
    assert written.keys() >= table.keys()
    assert written["orders@x@y"] == {"0": 1}


@pytest.mark.parametrize("damaged", [[5], [9], [5, 6, 7], [5, 9], range(5, 10)])
def test_lag_passes_over_damaged_messages(
    store: rmqstore.MessageStore, damaged: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Messages and bytes are those of the units, the time is that of good ones, if any."""
    for topic in ("a", "z"):
        stored = []
        for _ in range(10):
            stored.append(store.put(topic, b"x", queue_id=0))
            store.clock.advance(1)
        store.progress.commit(topic, "x", 0, 5)
    want = store.lag()
    places = [store["a"][0][at].physical_offset for at in range(10)]
    times = [one.store_timestamp for one in store["a"][0]]
    store.close()
    with (Path(store.path) / "commitlog" / f"{0:020d}").open("r+b") as file:
        for at in damaged:
            file.seek(places[at] + 4)
            file.write(b"damaged")
    good = [times[at] for at in range(5, 10) if at not in damaged]
    with rmqstore.open(store.path) as reader:
        of_damaged, of_another = reader.lag()
        assert of_another == want[1]
        behind = good[-1] - good[0] if good else 0
        assert of_damaged == dataclasses.replace(want[0], behind=timedelta(milliseconds=behind))
    assert "lag of a, queue 0" in caplog.text


@pytest.mark.parametrize("count", [10, 2000])  # added up without and with NumPy
@pytest.mark.parametrize("lost", [[5], [5, 6, 7], [6], range(5, 9)])
def test_lag_passes_over_lost_messages(
    store: rmqstore.MessageStore, lost: list[int], count: int
) -> None:
    """A message that recovery filled counts, without bytes and time."""
    stored = []
    for at in range(10):
        stored.append(store.put("a", b"x", queue_id=0))
        store.clock.advance(at)
    store.put_many("a", [b"x"] * (count - 10), queue_id=0)
    store.progress.commit("a", "x", 0, 5)
    good = [one for one in store["a"][0] if one.queue_offset >= 5 and one.queue_offset not in lost]
    millis = good[-1].store_timestamp - good[0].store_timestamp
    store.close()
    with (Path(store.path) / "commitlog" / f"{0:020d}").open("r+b") as file:
        for at in lost:
            file.seek(stored[at].physical_offset + 88)
            file.write(b"~")
    want = rmqstore.Lag(
        *("x", "a", 0, 5, 0, count, count - 5),
        sum(one.store_size for one in good),
        timedelta(milliseconds=millis),
    )
    with rmqstore.open(
        store.path, "r+", config=SMALL, on_corruption="fill", verify="full"
    ) as filled:
        assert filled.lag() == [want]
    for config in (None, SMALL):
        with rmqstore.open(store.path, config=config) as reader:
            assert reader.lag() == [want]


def test_lag_of_many_messages_is_added_up(store: rmqstore.MessageStore) -> None:
    done = store.put_many("orders", [b"x" * (n % 50) for n in range(5000)], queue_id=0)
    store.progress.commit("orders", "billing", 0, 10)
    (lag,) = store.lag()
    sizes = [store.at(int(offset)).store_size for offset in done.physical_offset[10:]]
    assert (lag.messages, lag.bytes) == (4990, sum(sizes))


def test_groups_of_a_real_brokers_store(
    tmp_path: Path, broker_copy: Callable[[str, Path], object]
) -> None:
    broker_copy("broker-clean", tmp_path)
    root = tmp_path / "broker-clean"
    before = fastjson.loads((root / "config/consumerOffset.json").read_text())
    flat = {
        (*key.split("@"), int(queue_id)): offset
        for key, queues in before["offsetTable"].items()
        for queue_id, offset in queues.items()
    }
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            found = {(lag.topic, lag.group, lag.queue_id): lag.committed for lag in store.lag()}
            assert found == flat
            assert store.groups["orders-group"].topics == ("%RETRY%orders-group", "orders")
            assert store.groups["orders-group"].retry_max == 16
            with store.consumer("orders", group="orders-group") as orders:
                assert list(orders) == []
            with store.consumer("orders", group="orders-group", start="first") as orders:
                assert len(list(orders)) == 1001
