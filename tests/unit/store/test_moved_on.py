"""Limits are checked where a message is handed in; what was acknowledged is moved on anyway."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, SCHEDULE_TOPIC, properties_text
from support.undelivered import undelivered

LOG_SIZE = 1 << 16
SMALL = StoreConfig.small(mapped_file_size_commit_log=LOG_SIZE)
LIMITED = SMALL.replace(max_message_size=2000)
TOPICS = ["t", "t" * 19, "t" * 20, "t" * 24, "t" * 25, "t" * 127]
PROPERTIES_MOST = 32767
Wait = Callable[[Callable[[], object]], None]


def bodies(store: rmqstore.MessageStore, topic: str) -> list[bytes]:
    return [message.body for message in store[topic].messages()] if topic in store else []


def check_round(store: rmqstore.MessageStore) -> None:
    """Have each transaction in doubt checked once."""
    store.clock.advance(61)
    store.housekeeper.run_due()


def most_taken(hand_in: Callable[[int], object], most: int) -> int:
    """The largest size that is taken, by bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        try:
            hand_in(middle)
            low = middle
        except MessageIllegalError:
            high = middle - 1
    return low


@pytest.mark.parametrize("topic", TOPICS, ids=len)
@pytest.mark.parametrize("config", [LIMITED, SMALL], ids=["max_message_size", "file"])
def test_a_delayed_message_that_is_taken_is_delivered(
    tmp_path: Path, wait_until: Wait, topic: str, config: StoreConfig
) -> None:
    room = min(config.max_message_size, LOG_SIZE - 8)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        taken: list[int] = []

        def put(size: int) -> None:
            store.put(topic, bytes(size), delay_level=1, uniq_key=False)
            taken.append(size)

        most = most_taken(put, room)
        store.clock.advance(2)
        wait_until(lambda: not store.delayed())
        found = list(store[topic].messages())
        assert sorted(len(one.body) for one in found) == sorted(taken)
        largest = max(found, key=lambda one: len(one.body))
        waited = max(store[SCHEDULE_TOPIC].messages(), key=lambda one: len(one.body))
        assert len(largest.body) == most
        assert max(largest.store_size, waited.store_size) == room


@pytest.mark.parametrize("topic", TOPICS, ids=len)
@pytest.mark.parametrize("config", [LIMITED, SMALL], ids=["max_message_size", "file"])
def test_a_transaction_that_begins_can_be_put_back_and_committed(
    tmp_path: Path, topic: str, config: StoreConfig
) -> None:
    asked: list[int] = []

    def check(one: rmqstore.InDoubt) -> str | None:
        asked.append(one.checks)
        return "commit" if one.checks == 2 else None

    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config) as store:
        taken: list[int] = []

        def begin(size: int) -> None:
            store.begin(topic, bytes(size), uniq_key=False, queue_id=0)
            taken.append(size)

        most = most_taken(begin, LOG_SIZE)
        store.in_doubt()[0].commit()
        half = max(store[HALF_TOPIC].messages(), key=lambda one: len(one.body))
        assert len(half.body) == most
    with rmqstore.open(root, "r+", config=config.replace(transaction_check=check)) as store:
        for _ in range(2):
            check_round(store)
        assert asked == [1] * (len(taken) - 1) + [2] * (len(taken) - 1)
        assert store.in_doubt() == []
        assert sorted(len(one.body) for one in store[topic].messages()) == sorted(taken)


def test_a_transaction_whose_properties_leave_room_for_checks_only_is_given_up(
    tmp_path: Path,
) -> None:
    config = SMALL.replace(transaction_check=lambda one: None, transaction_check_max=2)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:

        def begin(size: int) -> None:
            store.begin("t", b"x", properties={"p": "x" * (1 + size)}, uniq_key=False)

        most_taken(begin, PROPERTIES_MOST)
        count = len(store.in_doubt())
        for _ in range(3):
            check_round(store)
        assert store.in_doubt() == []
        assert len(store[MAX_TIME_TOPIC][0]) == count


@pytest.mark.parametrize("group", ["g", "g" * 120], ids=len)
def test_what_is_given_back_is_tried_again_and_then_a_dead_letter(
    tmp_path: Path, wait_until: Wait, group: str
) -> None:
    config = LIMITED.replace(message_delay_level="1s 2s")
    retries, dead = f"%RETRY%{group}", f"%DLQ%{group}"
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.create_topic("t", 1)
        store.create_group(group, retry_max=2)
        for size in range(1700, 1900, 7):
            try:
                store.put("t", bytes(size), queue_id=0)
            except MessageIllegalError:
                break
        count = len(store["t"][0])
        assert count > 10
        with store.consumer("t", group=group) as consumer:
            for done in (0, count, 2 * count):
                wait_until(lambda done=done: done == 0 or len(store[retries][0]) == done)
                taken = [consumer.retry(message) for message in consumer]
                assert len(taken) == count
                consumer.commit()
                store.clock.advance(3)
        assert len(store[dead][0]) == count
        assert store.delayed() == []
        assert sorted(bodies(store, dead)) == sorted(bodies(store, "t"))


@pytest.mark.parametrize("lowered", [100, 1999])
def test_a_limit_that_is_lowered_stops_nothing(
    tmp_path: Path, wait_until: Wait, lowered: int
) -> None:
    root = tmp_path / "s"
    large = bytes(30_000)
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.create_group("g", retry_max=1)
        store.put("t", large, delay_level=1, queue_id=0)
        store.put("given", large, queue_id=0)
        store.begin("committed", large)
        store.begin("checked", large, born_timestamp=1)
    config = SMALL.replace(max_message_size=lowered, transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        with pytest.raises(MessageIllegalError):
            store.put("t", large)
        for _ in range(2):
            with store.consumer("given", group="g") as consumer:
                [message] = consumer
                consumer.retry(message, delay_level=1)
                consumer.commit()
            store.clock.advance(2)
            wait_until(lambda: not store.delayed())
        [one] = [one for one in store.in_doubt() if one.message.topic == "committed"]
        one.commit()
        check_round(store)
        assert store.in_doubt() == []
        for topic in ("t", "committed", "checked", "%RETRY%g", "%DLQ%g"):
            assert bodies(store, topic) == [large], topic


def half_in_a_brokers_store(store: rmqstore.MessageStore, room: int) -> None:
    """Put a half message whose properties leave so much room, as 4.9.3 takes them."""
    given = {"TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "t", "REAL_QID": "0", "UNIQ_KEY": "u"}
    length = PROPERTIES_MOST - room - len(properties_text(given | {"p": ""}))
    given["p"] = "x" * length
    properties = pa.array([list(given.items())], pa.map_(pa.string(), pa.string()))
    store.put_table(
        pa.table({
            "topic": [HALF_TOPIC], "queue_id": pa.array([0], pa.int32()),
            "body": pa.array([b"large"], pa.binary()), "properties": properties,
            "born_timestamp": pa.array([1], pa.timestamp("ms", "UTC")),
        })
    )  # fmt: skip


@pytest.mark.parametrize("answer", ["commit", "rollback", None])
def test_a_half_message_that_cannot_be_put_back_is_asked_for_where_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: str | None
) -> None:
    """It is logged once if it stays, and the others are asked about in the same round."""
    asked: list[bytes] = []

    def check(one: rmqstore.InDoubt) -> str | None:
        asked.append(one.message.body)
        return answer if one.message.body == b"large" else "commit"

    config = SMALL.replace(transaction_check=check)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.begin("t", b"before", born_timestamp=1)
        half_in_a_brokers_store(store, 5)
        store.begin("t", b"behind", born_timestamp=1)
        rounds = 1 if answer else 3
        for _ in range(rounds):
            check_round(store)
        assert asked == [b"before", b"large", b"behind"] + [b"large"] * (rounds - 1)
        assert len(store.in_doubt()) == (answer is None)
        expected = (
            [b"before", b"large", b"behind"] if answer == "commit" else [b"before", b"behind"]
        )
        assert bodies(store, "t") == expected
        if answer is None:
            [one] = store.in_doubt()
            assert "32767" in one.error
            assert one.message.body == b"large"
            one.commit()
            assert bodies(store, "t")[-1] == b"large"
    said = [one.message for one in caplog.records if "cannot be checked" in one.message]
    assert len(said) == (answer is None)
    assert all("half message at" in one for one in said)


def test_checks_that_fail_end_no_round(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails of one: putting it back, or its commit."""
    asked: list[bytes] = []

    def check(one: rmqstore.InDoubt) -> str:
        asked.append(one.message.body)
        return "commit"

    config = SMALL.replace(transaction_check=check)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for body in (b"a", b"b", b"c"):
            store.begin("t" if body != b"b" else "u", body, born_timestamp=1)
        put, failing = store.core.put_stored, {"u", HALF_TOPIC}

        def refuse(topic: str, *arguments: object, **more: object) -> object:
            if topic in failing and (topic == "u" or arguments[1] == b"a"):
                raise RuntimeError(f"no {topic}")
            return put(topic, *arguments, **more)

        store.core.put_stored = refuse
        for _ in range(3):
            check_round(store)
        assert asked == [b"b", b"c", b"b", b"b"]
        assert [one.error for one in store.in_doubt()] == [f"no {HALF_TOPIC}", "no u"]
        assert bodies(store, "t") == [b"c"]
        failing.clear()
        check_round(store)
        assert store.in_doubt() == []
        assert bodies(store, "t") == [b"c", b"a"]
        assert bodies(store, "u") == [b"b"]
    said = [one.message for one in caplog.records if "cannot be checked" in one.message]
    assert len(said) == 2


def test_a_checksum_that_does_not_fit_is_left_out(tmp_path: Path, wait_until: Wait) -> None:
    """Where record_checksum is set since."""
    root = tmp_path / "s"
    with undelivered(), rmqstore.open(root, "a", config=SMALL) as store:

        def put(size: int) -> None:
            store.put("t", b"x", delay_level=1, properties={"p": "x" * (1 + size)}, queue_id=0)

        most_taken(put, PROPERTIES_MOST)
        count = len(store.delayed())
    with rmqstore.open(root, "r+", config=SMALL.replace(record_checksum=True)) as store:
        store.clock.advance(2)
        wait_until(lambda: not store.delayed())
        checked = ["__CRC32#" in one.properties for one in store["t"].messages()]
        assert len(checked) == count
        assert checked.count(False) > 0
        assert checked.count(True) > 0
    with rmqstore.open(root, verify="full") as store:
        assert store.recovery.notes[-1].endswith("nothing was found")


@pytest.mark.parametrize("topic", [HALF_TOPIC, SCHEDULE_TOPIC])
def test_no_message_waits_for_a_topic_in_which_messages_wait(tmp_path: Path, topic: str) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        with pytest.raises(MessageIllegalError, match=f"got '{topic}'"):
            store.put(topic, b"x", delay_level=1)
        with pytest.raises(MessageIllegalError, match=f"got '{topic}'"):
            store.begin(topic, b"x")
        assert list(store) == []


STORED_NAMES = ["a.b", "a b", "a:b", "*", "\u00e9", "..a", "\u00e9" * 63, "a\\b"]


@pytest.mark.parametrize("topic", STORED_NAMES)
def test_a_topic_that_no_client_may_name_gets_what_a_broker_acknowledged(
    tmp_path: Path, wait_until: Wait, topic: str
) -> None:
    """Delayed, committed and put back; the topic goes on in the next opening, for readers too."""
    real = {"REAL_TOPIC": topic, "REAL_QID": "1"}
    half = {"TRAN_MSG": "true", "PGROUP": "p", **real}
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for _ in range(2):
            store.core.put_stored(SCHEDULE_TOPIC, 0, b"x", properties_text({"DELAY": "1", **real}))
            store.core.put_stored(HALF_TOPIC, 0, b"x", properties_text(half))
        assert [one.message.topic for one in store.delayed()] == [topic] * 2
        assert [one.message.topic for one in store.in_doubt()] == [topic] * 2
        with pytest.raises(MessageIllegalError):
            store.core.put_stored(topic, 0, b"x", "")
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(2)
        wait_until(lambda: not store.delayed())
        check_round(store)  # nobody answers: both are put back
        assert len(store.in_doubt()) == 2
        for one in store.in_doubt():
            one.commit()
        assert bodies(store, topic) == [b"x"] * 4
        with pytest.raises(MessageIllegalError):
            store.put(topic, b"x")
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:  # type: ignore[arg-type]
            assert store.in_doubt() == store.delayed() == []
            assert bodies(store, topic) == [b"x"] * 4
            assert [message.queue_id for message in store.scan(topic)] == [1] * 4


@pytest.mark.parametrize("topic", ["../x", "a/b", ".", "..", "/", "\u00e9" * 64, "x" * 128])
def test_a_path_and_a_name_too_long_for_a_record_are_no_topic(
    tmp_path: Path, topic: str, wait_until: Wait
) -> None:
    """They stay where they are, and what is behind them is moved on."""
    real = {"REAL_TOPIC": topic, "REAL_QID": "0"}
    half = {"TRAN_MSG": "true", "PGROUP": "p", **real}
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.core.put_stored(SCHEDULE_TOPIC, 0, b"x", properties_text({"DELAY": "1", **real}))
        store.core.put_stored(HALF_TOPIC, 0, b"x", properties_text(half))
        store.put("t", b"good", delay_level=1)
        store.clock.advance(2)
        wait_until(lambda: bodies(store, "t"))
        assert [one.message.body for one in store.in_doubt()] == [b"x"]
        assert {*store} <= {"t", SCHEDULE_TOPIC, HALF_TOPIC}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_light_queues_of_a_client_s_message_that_waits(tmp_path: Path, wait_until: Wait) -> None:
    """Names that its delivery refuses, and offsets that would not fit, are refused at once."""
    config = SMALL.replace(enable_multi_dispatch=True, enable_lmq=True)
    real = "\x02DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010"
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for names in ("%LMQ%a b", "../x", "%LMQ%"):
            for topic in (SCHEDULE_TOPIC, HALF_TOPIC):
                with pytest.raises(MessageIllegalError, match="INNER_MULTI_DISPATCH"):
                    store.core.put_stored(topic, 0, b"x", f"INNER_MULTI_DISPATCH\x01{names}{real}")
        names = ",".join(f"%LMQ%{number}" for number in range(60))
        taken = []

        def put(size: int) -> None:
            text = f"INNER_MULTI_DISPATCH\x01{names}\x02p\x01{'x' * (1 + size)}{real}"
            store.core.put_stored(SCHEDULE_TOPIC, 0, b"x", text)
            taken.append(size)

        assert most_taken(put, PROPERTIES_MOST) > 0
        store.clock.advance(2)
        wait_until(lambda: not store.delayed())
        assert len(store["t"][0]) == len(taken)
        assert len(store["%LMQ%59"][0]) == len(taken)


def test_what_the_settings_refuse_for_now_is_delivered_once_they_allow_it(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    """Those behind it are delivered meanwhile, and not again by the next owner."""
    root = tmp_path / "s"
    lmq = SMALL.replace(enable_multi_dispatch=True, enable_lmq=True)
    real = "\x02DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010"
    with undelivered(), rmqstore.open(root, "a", config=lmq) as store:
        store.put("t", b"before", delay_level=1, queue_id=0)
        store.core.put_stored(SCHEDULE_TOPIC, 0, b"light", f"INNER_MULTI_DISPATCH\x01%LMQ%a{real}")
        for number in range(3):
            store.put("t", b"%d" % number, delay_level=1, queue_id=0)
    rest = [b"before", b"0", b"1", b"2"]
    for mode in ("closed", "again"):
        with rmqstore.open(root, "r+", config=lmq.replace(enable_lmq=False)) as store:
            store.clock.advance(5)
            wait_until(lambda: [one.error is not None for one in store.delayed()] == [True])
            [one] = store.delayed()
            assert (one.message.body, one.level, one.queue_offset) == (b"light", 1, 1)
            assert "enable_lmq" in one.error
            assert bodies(store, "t") == rest, mode
        text = (root / "config" / "delayOffset.json").read_text()
        assert json.loads(re.sub(r"(\d+):", r'"\1":', text))["offsetTable"] == {"1": 1}
    assert len([one for one in caplog.records if "cannot be delivered" in one.message]) == 2
    with rmqstore.open(root, "r", config=lmq) as store:
        store.clock.advance(5)
        assert [one.message.body for one in store.delayed()] == [b"light"]
    with rmqstore.open(root, "r+", config=lmq) as store:
        store.clock.advance(5)
        wait_until(lambda: not store.delayed())
        assert bodies(store, "t") == [*rest, b"light"]
        assert bodies(store, "%LMQ%a") == [b"light"]
    with rmqstore.open(root, "r+", config=lmq) as store:
        assert store.delayed() == []
        assert bodies(store, "t") == [*rest, b"light"]


def test_an_impossible_destination_stays_listed(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    discarded = [
        {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
    ]
    nowhere = [
        {"REAL_TOPIC": "../t", "REAL_QID": "0"},
        {"REAL_TOPIC": "t", "REAL_QID": "x"},
        {"REAL_TOPIC": "t"},
        {"REAL_QID": "0"},
    ]
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        for one in (*discarded, *nowhere):
            store.core.put_stored(SCHEDULE_TOPIC, 0, b"bad", properties_text({"DELAY": "1", **one}))
        store.put("t", b"good", delay_level=1)
        assert len(store.delayed()) == len(discarded) + len(nowhere) + 1
        store.clock.advance(2)
        wait_until(lambda: bodies(store, "t") == [b"good"])
        assert HALF_TOPIC not in store
    for mode in ("r+", "r"):
        with rmqstore.open(tmp_path / "s", mode) as store:  # type: ignore[call-overload]
            wait_until(lambda: len(store.delayed()) == len(nowhere))
            if mode == "r+":
                wait_until(lambda: all(one.error for one in store.delayed()))
                assert "for no queue" in (store.delayed()[0].error or "")
    said = [record.getMessage() for record in caplog.records]
    assert sum("is discarded" in text for text in said) == len(discarded)
    assert sum("for no queue" in text for text in said) == 2 * len(nowhere)  # once an opening


@pytest.mark.long
@pytest.mark.parametrize("due", [False, True], ids=["not due", "due"])
def test_a_message_given_back_twice_comes_twice(
    tmp_path: Path, wait_until: Wait, *, due: bool
) -> None:
    """A consumer that was killed gives it back again: the two are equal but for their places."""
    root = tmp_path / "s"
    slow = SMALL.replace(message_delay_level="20s")

    def give_back(store: rmqstore.MessageStore) -> None:
        with store.consumer("t", group="g", start="first") as consumer:
            for message in consumer:
                if message.reconsume_times == 0:  # not the one that was given back
                    consumer.retry(message, delay_level=1)

    with rmqstore.open(root, "a", config=slow) as store:
        if due:  # by the time of the next opening, which itself has to find it due
            store.clock.advance(-3600)
        store.put("t", b"x")
        give_back(store)
        store.clock.advance(15)
        give_back(store)
        store.clock.advance(6)
        wait_until(lambda: bodies(store, "%RETRY%g") == [b"x"])
        assert len(store.delayed()) == 1
    with rmqstore.open(root) as store:
        assert len(store.delayed()) == 1
    with rmqstore.open(root, "r+", config=slow) as store:
        store.clock.advance(20)
        wait_until(lambda: bodies(store, "%RETRY%g") == [b"x", b"x"])
        assert store.delayed() == []
