"""Messages given back come again, under their topic, to the consumers of that topic."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.consume.consumer import Consumer
from support.consumed import bodies, fill
from support.damaged_store import flip
from support.sends import wait_for

WAIT = 60.0
LOG_SIZE = 1 << 16
LATE = 18  # hours: what a test delivers by hand, the service does not as well
SMALL = rmqstore.StoreConfig.small(mapped_file_size_commit_log=LOG_SIZE)


# Retries


def redeliver(store: rmqstore.MessageStore, queue_offset: int) -> None:
    """Deliver a delayed message as the schedule service does when it is due."""
    message = store["SCHEDULE_TOPIC_XXXX"][LATE - 1][queue_offset]
    properties = message.properties
    store.core.put_stored(
        properties["REAL_TOPIC"],
        int(properties["REAL_QID"]),
        message.body,
        "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
    )


def test_retried_messages_come_under_their_topic(store: rmqstore.MessageStore) -> None:
    fill(store, 4)
    store.put("payments", b"50")
    orders = store.consumer("orders", group="billing", tags="paid")
    payments = store.consumer("payments", group="billing")
    for message in [*orders, *payments]:
        assert orders.retry(message, delay_level=LATE).queue_id == LATE - 1
    orders.commit()
    payments.commit()
    for number in range(3):
        redeliver(store, number)
    again = list(orders)
    assert [(message.topic, message.reconsume_times) for message in again] == [("orders", 1)] * 2
    assert [message.body for message in again] == [b"1", b"3"]
    copy = pickle.loads(pickle.dumps(again[0]))
    assert (copy.topic, copy.queue_id, copy.body) == ("orders", 0, b"1")
    assert copy == again[0]
    orders.commit()
    assert store.offsets["%RETRY%billing", "billing"] == {0: 2}
    (payment,) = payments
    assert payment.topic == "payments"
    payments.close()
    orders.close()
    assert store.offsets["%RETRY%billing", "billing"] == {0: 2}
    with store.consumer("payments", group="billing") as payments:
        assert bodies(payments) == [50]  # it was not committed
        payments.commit()
    assert store.offsets["%RETRY%billing", "billing"] == {0: 3}


def test_no_consumer_of_another_topic_passes_a_retry(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    store.put("payments", b"50")
    with store.consumer("payments", group="billing") as payments:
        payments.retry(next(iter(payments)), delay_level=LATE)
        payments.commit()
    orders = store.consumer("orders", group="billing")
    for message in orders:
        orders.retry(message, delay_level=LATE)
    orders.commit()
    for number in range(9):
        redeliver(store, number)
    assert len(list(orders)) == 8
    orders.commit()
    assert ("%RETRY%billing", "billing") not in store.offsets
    with store.consumer("payments", group="billing") as payments:
        assert bodies(payments) == [50]
        payments.commit()
    assert store.offsets["%RETRY%billing", "billing"] == {0: 9}
    assert list(orders) == []


def test_two_consumers_get_each_retry_once(store: rmqstore.MessageStore) -> None:
    fill(store, 40)
    first = store.consumer("orders", group="billing")
    for message in first:
        first.retry(message, delay_level=LATE)
    first.commit()
    for number in range(40):
        redeliver(store, number)
    second = store.consumer("orders", group="billing")
    one, other = iter(first), iter(second)
    of_first = bodies(next(one) for _ in range(15))
    of_second = bodies(next(other) for _ in range(15))
    assert not set(of_first) & set(of_second)
    second.close()  # what it has taken comes again
    assert sorted(of_first + bodies(first)) == list(range(40))


def test_two_consumers_that_begin_at_once_get_each_retry_once(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 4)
    with store.consumer("orders", group="billing") as orders:
        for message in orders:
            orders.retry(message, delay_level=LATE)
        orders.commit()
    for number in range(4):
        redeliver(store, number)
    both = threading.Barrier(2)
    queue_ids = Consumer._queue_ids

    def together(consumer: Consumer) -> set[int]:
        if not hasattr(consumer, "_epoch"):  # it is being made
            both.wait(WAIT)
        return queue_ids(consumer)

    monkeypatch.setattr(Consumer, "_queue_ids", together)
    made: list[Consumer] = []

    def make() -> None:
        made.append(store.consumer("orders", group="billing"))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    again = [message.body for one in made for message in one]
    assert sorted(again) == [b"0", b"1", b"2", b"3"]
    for one in made:
        one.commit()
        one.close()
    assert store.offsets["%RETRY%billing", "billing"] == {0: 4}


def test_many_retries_that_wait_are_read_again(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.consume.retries._WAITING_MOST", 3)
    fill(store, 20)
    store.create_topic("payments", 1)
    orders = store.consumer("orders", group="billing")
    payments = store.consumer("payments", group="billing")
    for message in orders:
        orders.retry(message, delay_level=LATE)
    orders.commit()
    for number in range(20):
        redeliver(store, number)
    assert list(payments) == []
    seen = []
    for message in orders:
        seen.append(int(message.body))
        orders.commit()
    assert sorted(seen) == list(range(20))
    assert store.offsets["%RETRY%billing", "billing"] == {0: 20}


@pytest.mark.parametrize("enabled", [False, True])  # then the retry is in the light queue as well
def test_a_retry_of_a_light_queue_comes_again_to_its_consumers(
    tmp_path: Path, enabled: bool
) -> None:
    config = rmqstore.StoreConfig.small().replace(enable_lmq=enabled, enable_multi_dispatch=enabled)
    retries = "%RETRY%g"
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.put("o", b"1", queue_id=0, lite_topics=["z"])
        with store.consumer("%LMQ%z", group="g") as light:
            first = next(iter(light))
            light.retry(first, delay_level=1)
            light.commit()
        store.clock.advance(2)
        until = time.monotonic() + WAIT
        while not (store.core.bounds(retries, 0) or (0, 0))[1]:
            assert time.monotonic() < until
            time.sleep(0.01)
        store.create_topic("elsewhere", 1)
        with store.consumer("elsewhere", group="g") as other:
            assert list(other) == []
        light = store.consumer("%LMQ%z", group="g")
        (again,) = light
        assert (again.topic, again.body, again.reconsume_times) == (first.topic, b"1", 1)
        light.close()
        with store.consumer("o", group="g") as own:  # it was not committed, and is of this one too
            assert {message.reconsume_times for message in own} == {0, 1}
        with store.consumer("%LMQ%z", group="g") as light:
            assert [message.body for message in light] == [b"1"]
            light.commit()
        assert store.offsets[retries, "g"] == {0: 1}
        assert store.offsets["%LMQ%z", "g"] == {0: 1 + enabled}
        with store.consumer("%LMQ%z", group="g") as light:
            assert list(light) == []


def test_a_retry_that_nobody_reads_holds_few_others_up(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored again, at the end, as it is, and comes once its topic is read."""
    monkeypatch.setattr("rmqstore.consume.retries._PASSED_MOST", 10)
    retries = "%RETRY%billing"
    store.create_topic(retries, 1)
    store.put("payments", b"50", keys="k1", tags="paid", properties={"own": "x"})
    for number in range(3):
        store.put("payments", b"%d" % (51 + number))
    with store.consumer("payments", group="billing") as payments:
        for message in payments:
            payments.retry(message, delay_level=LATE)
        payments.commit()
    for number in range(4):
        redeliver(store, number)
    before = list(store[retries][0])
    fields = ("body", "properties", "flag", "sys_flag", "born_timestamp", "born_host", "store_host",
              "reconsume_times", "prepared_transaction_offset")  # fmt: skip
    seen = []
    store.create_topic("orders", 1)
    for _ in range(4):
        with store.consumer("orders", group="billing") as orders:
            for number in range(20):
                store.core.put_stored(retries, 0, b"%d" % number, "RETRY_TOPIC\x01orders")
                for message in orders:
                    seen.append(int(message.body))
                    orders.commit()
                (queue,) = orders._retries._queues.values()
                assert len(queue.done) <= 10
        end = store[retries][0].max_offset
        assert end - store.offsets[retries, "billing"][0] <= 10 + 4
    assert len(seen) <= 80 + 4 * (10 + 4)
    assert set(seen) == set(range(20))
    copies = [message for message in store[retries][0] if message.body in {b"50", b"51"}]
    assert 2 < len(copies) <= 2 * (1 + 80 // 10)
    for copy in copies:
        (first,) = (message for message in before if message.body == copy.body)
        assert [getattr(copy, name) for name in fields] == [getattr(first, name) for name in fields]
    with store.consumer("payments", group="billing") as payments:
        assert bodies(payments) == [50, 51, 52, 53]
        payments.commit()
    with store.consumer("payments", group="billing") as payments:
        assert bodies(payments) == []


def retried(root: Path, count: int) -> list[int]:
    """Make a store with retries of two topics in turn; where they are in the log."""
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(count):
            store.put("payments" if number % 2 else "orders", b"%d" % number, queue_id=0)
        for topic in ("orders", "payments"):
            with store.consumer(topic, group="billing") as consumer:
                for message in consumer:
                    consumer.retry(message, delay_level=LATE)
                consumer.commit()
        for number in range(count):
            redeliver(store, number)
        store.put_many("others", [b"x" * 5000] * 40)
        places = {int(one.body): one.physical_offset for one in store["%RETRY%billing"][0]}
        return [places[number] for number in range(count)]


def taken(store: rmqstore.MessageStore, *, commit: bool = True) -> list[int]:
    """Take all retries of both topics, in two rounds."""
    seen = []
    consumers = [store.consumer(topic, group="billing") for topic in ("orders", "payments")]
    for _ in range(2):
        for consumer in consumers:
            seen += bodies(consumer)
            if commit:
                consumer.commit()
    for consumer in consumers:
        consumer.close()
    return sorted(seen)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize("config", [None, SMALL])
@pytest.mark.parametrize("hit", [[0], [1], [7], [0, 1, 2], [2, 3, 6], range(8)], ids=str)
def test_damaged_retries_hold_no_others_up(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: Any,
    config: rmqstore.StoreConfig | None,
    hit: Sequence[int],
) -> None:
    places = retried(tmp_path, 8)
    first = min(places[at] for at in hit)
    good = [at for at in range(8) if at not in hit]
    for at in hit:
        flip(tmp_path, places[at] + 88, LOG_SIZE)
    for killed in (False, True):
        if killed:
            (tmp_path / "abort").touch()
        caplog.clear()
        with rmqstore.open(tmp_path, mode, config=config) as store:
            assert taken(store, commit=mode != "r") == good
            said = [one.message for one in caplog.records if "stays where it is" in one.message]
            assert len(said) == len(hit)
            assert all(any(f"offset {places[at]}:" in one for one in said) for at in hit)
            if mode != "r":
                done = store.offsets.get(("%RETRY%billing", "billing"), {0: 0})[0]
                assert done == sorted(places).index(first)
                good = [at for at in good if places[at] > first]  # the others are committed
    for at in hit:
        flip(tmp_path, places[at] + 88, LOG_SIZE)  # which mends it
    with rmqstore.open(tmp_path, "r+", config=config) as store:
        assert set(hit) <= set(taken(store))
        assert store.offsets["%RETRY%billing", "billing"] == {0: 8}
    with rmqstore.open(tmp_path, "r+", config=config) as store:
        assert taken(store) == []


def test_a_damaged_retry_is_passed_over_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqstore.consume.retries._PASSED_MOST", 5)
    places = retried(tmp_path, 20)
    flip(tmp_path, places[2] + 88, LOG_SIZE)
    with rmqstore.open(tmp_path, "r+") as store:
        assert taken(store) == [at for at in range(20) if at != 2]
        assert store.offsets["%RETRY%billing", "billing"] == {0: 20}
    assert f"offset {places[2]}:" in caplog.text
    assert "is passed over" in caplog.text
    with rmqstore.open(tmp_path, "r+") as store:
        assert taken(store) == []


def test_a_filled_retry_holds_no_progress_up(tmp_path: Path) -> None:
    places = retried(tmp_path, 8)
    flip(tmp_path, places[2] + 88, LOG_SIZE)
    good = [at for at in range(8) if at != 2]
    with rmqstore.open(tmp_path, "r+") as store:
        assert taken(store) == good
    with rmqstore.open(tmp_path, "r+", on_corruption="fill", verify="full") as store:
        assert set(taken(store)) < set(good)
        assert store.offsets["%RETRY%billing", "billing"] == {0: 8}
    with rmqstore.open(tmp_path, "r+") as store:
        assert taken(store) == []


@pytest.mark.parametrize("taken", [False, True])
def test_a_reader_goes_on_where_its_owner_makes_the_retry_topic_anew(tmp_path, taken):
    retries = "%RETRY%billing"
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as owner:

        def put(topic: str, body: bytes) -> None:
            stop = owner.queue_bounds(retries, 0)[1]
            owner.core.put_stored(retries, 0, body, f"RETRY_TOPIC\1{topic}", wait=False)
            wait_for(lambda: owner.queue_bounds(retries, 0)[1] > stop)

        owner.create_topic(retries, 1)
        for topic in ("other", "orders"):
            owner.put(topic, b"1")
            put(topic, b"2")
        with (
            rmqstore.open(owner.path) as reader,
            reader.consumer("orders", group="billing") as orders,
            reader.consumer("other", group="billing") as other,
        ):
            assert sorted(bodies(orders)) == [1, 2]
            assert not taken or sorted(bodies(other)) == [1, 2]
            owner.delete_topic(retries)
            owner.create_topic(retries, 1)
            put("orders", b"3")  # the queue is shorter than it was
            wait_for(lambda: 3 in bodies(orders))
            assert bodies(other) == ([] if taken else [1])
