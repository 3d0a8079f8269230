"""``unconsumed``: exactly the messages behind a group's offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import toolbox

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(12):
            store.put("orders", b"%d" % number, queue_id=number % 3)
            store.put("audit", b"%d" % number, queue_id=0)
        for topic, taken in (("orders", 5), ("audit", 12)):
            with store.consumer(topic, group="billing") as consumer:
                messages = iter(consumer)
                for _ in range(taken):
                    message = next(messages)
                if topic == "orders":
                    consumer.retry(message)
                consumer.commit()
    return tmp_path


def test_against_the_offsets(root: Path) -> None:
    with rmqstore.open(root) as store:
        offsets = {
            (topic, queue_id): offset
            for (topic, group), queues in store.offsets.items()
            for queue_id, offset in queues.items()
        }
        topics = {topic for topic, _ in offsets}
        expected = [  # a queue without an offset is read from its beginning
            message.physical_offset
            for message in store.scan()
            if (
                message.topic in topics
                and message.queue_offset >= offsets.get((message.topic, message.queue_id), 0)
            )
            or message.properties.get("REAL_TOPIC") == "%RETRY%billing"
        ]
        found = [one.physical_offset for one in toolbox.unconsumed(root, "billing")]
    assert found == expected == sorted(found)
    assert len(found) == 7 + 1
    of_orders = [one.topic for one in toolbox.unconsumed(root, "billing", "orders")]
    assert of_orders == ["orders"] * 7
    assert list(toolbox.unconsumed(root, "billing", "audit")) == []


def test_a_retry_that_waits(tmp_path: Path) -> None:
    """It is in the schedule's topic until its delay is over, and no group's lag counts it."""
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(3):
            store.put("orders", b"%d" % number, queue_id=0)
        with store.consumer("orders", group="billing") as consumer:
            first = next(iter(consumer))
            consumer.retry(first, delay_level=18)
            consumer.commit()
        store.put("orders", b"late", delay_level=18)  # nobody has consumed it, and nobody could
    found = list(toolbox.unconsumed(tmp_path, "billing"))
    assert [(one.topic, one.body) for one in found] == [
        ("orders", b"1"),
        ("orders", b"2"),
        ("%RETRY%billing", b"0"),
    ]
    assert found[2].properties["RETRY_TOPIC"] == "orders"
    assert [one.body for one in toolbox.unconsumed(tmp_path, "billing", "orders")] == [b"1", b"2"]


def test_unknown_groups(root: Path) -> None:
    with pytest.raises(rmqstore.GroupNotFoundError, match=r"'bill' has no offset; did you mean"):
        list(toolbox.unconsumed(root, "bill"))
    with pytest.raises(rmqstore.GroupNotFoundError, match="for topic 'missing'"):
        list(toolbox.unconsumed(root, "billing", "missing"))
    with pytest.raises(ValueError, match="on_corruption must be"):
        toolbox.unconsumed(root, "billing", on_corruption="stop")  # type: ignore[arg-type]


def test_damage(root: Path) -> None:
    every = list(toolbox.unconsumed(root, "billing", "orders"))
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(every[2].physical_offset + 88)  # the body
        file.write(b"\xff")
    with pytest.raises(rmqstore.StoreCorruptError):
        list(toolbox.unconsumed(root, "billing", "orders"))
    found = list(toolbox.unconsumed(root, "billing", "orders", on_corruption="skip"))
    assert found == every[:2] + every[3:]


def test_light_queues(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(3):
            store.put("orders", b"%d" % number, queue_id=0, lite_topics=["a"])
        with store.consumer("%LMQ%a", group="light") as consumer:
            next(iter(consumer))
            consumer.commit()
    found = list(toolbox.unconsumed(tmp_path, "light"))
    assert [(one.topic, one.body) for one in found] == [("orders", b"1"), ("orders", b"2")]
    assert toolbox.statistics(tmp_path, "%LMQ%a").messages == 3
