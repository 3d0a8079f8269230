"""Readers that are open while a topic, a queue or a group goes: they show what a later one does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import TopicNotFoundError
from support.serving import wait_until

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
    enable_lmq=True,
    enable_multi_dispatch=True,
)
TOPICS = ("gone", "kept", "empty")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[rmqstore.MessageStore]:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(60):
            for topic in ("gone", "kept"):
                store.put(topic, b"%d" % number, queue_id=number % 3, keys=f"k{number}")
        store.create_topic("empty")
        for topic in ("gone", "kept"):
            with store.consumer(topic, group=f"g-{topic}") as consumer:
                assert sum(1 for _ in consumer) == 60
                consumer.commit(sync=True)
        store.flush()
        yield store


def shown(store: rmqstore.MessageStore) -> dict[str, Any]:
    """Everything by which a user learns of topics, queues and groups."""
    found: dict[str, Any] = {
        "topics": {name: sorted(topic) for name, topic in store.topics.items()},
        "ids": {name: ids for name, ids in store.queue_ids().items() if ids},
        "lag": [(one.group, one.topic, one.queue_id, one.committed) for one in store.lag()],
        "deleted": "gone" in store,
        "notes": dict(store.deleted_topics),
    }
    for topic in TOPICS:
        for queue_id in (0, 1, 2, 7):
            got = store.get(topic, queue_id, 0, 100)
            found[f"{topic}/{queue_id}"] = (
                got.status, got.min_offset, got.max_offset, [m.body for m in got.messages],
                store.queue_bounds(topic, queue_id),
            )  # fmt: skip
        try:
            found[topic] = [len(queue) for queue in store[topic].values()]
        except TopicNotFoundError:
            found[topic] = None
    return found


def check_same(reader: rmqstore.MessageStore, *, gone: bool = True) -> None:
    """Within its refresh, the reader shows what one shows that is opened now."""
    with rmqstore.open(reader.path) as later:
        wanted = shown(later)
    wait_until(lambda: shown(reader) == wanted, 5)
    assert ("gone" in wanted["topics"]) != gone
    assert "kept" in wanted["topics"]


@pytest.mark.parametrize("used", [True, False])
def test_a_topic_deleted(owner: rmqstore.MessageStore, used: bool) -> None:
    with rmqstore.open(owner.path) as reader:
        if used:
            assert len(shown(reader)["gone/0"][3]) == 20
        owner.delete_topic("gone")
        check_same(reader)
        with pytest.raises(TopicNotFoundError):
            reader["gone"]
        owner.delete_topic("empty")
        check_same(reader)
        assert "empty" not in reader
    owner.close()


@pytest.mark.parametrize("count", [1, 5, 90])
def test_a_topic_made_again(owner: rmqstore.MessageStore, count: int) -> None:
    """With fewer, as many and more messages and queues than it had."""
    with rmqstore.open(owner.path) as reader:
        for again in range(2):
            shown(reader)
            owner.delete_topic("gone")
            if again:
                check_same(reader)
            for number in range(count):
                owner.put("gone", b"new %d" % number, queue_id=number % 2 * 7)
            owner.flush()
            check_same(reader, gone=False)
            assert reader.get("gone", 0, 0).messages[0].body == b"new 0"


def test_as_a_broker_deletes(owner: rmqstore.MessageStore) -> None:
    """The entry and the directories go, and no note is left; then single queues go."""
    owner.close()
    root = Path(owner.path)
    with rmqstore.open(root) as reader:
        shown(reader)
        file = root / "config/topics.json"
        table = json.loads(file.read_text())
        del table["topicConfigTable"]["gone"]
        file.write_text(json.dumps(table))
        shutil.rmtree(root / "consumequeue/gone")
        wait_until(lambda: "gone" not in reader, 5)
        check_same(reader)


def test_consumers_and_values_that_are_held(owner: rmqstore.MessageStore) -> None:
    """A queue or a consumer that is held ends; nothing raises but the topic's own lookup."""
    with rmqstore.open(owner.path) as reader:
        queue = reader["gone"][0]
        assert len(queue) == 20
        with reader.consumer("gone", group="other", start="first") as consumer:
            assert next(iter(consumer)).body
            owner.delete_topic("gone")
            wait_until(lambda: "gone" not in reader, 5)
            assert (queue.min_offset, queue.max_offset, len(queue)) == (0, 0, 0)
            assert list(queue) == []
            list(consumer)
            owner.put("gone", b"anew", queue_id=0)
            wait_until(lambda: len(queue) == 1, 5)
            assert queue[0].body == b"anew"


@pytest.mark.parametrize("count", [3, 20, 21, 50])
@pytest.mark.parametrize("start", ["first", "last", "group"])
def test_a_consumer_goes_on_in_a_topic_made_again(
    owner: rmqstore.MessageStore, count: int, start: Any
) -> None:
    """It had read 20 messages of each queue, and does not look between."""
    with rmqstore.open(owner.path) as reader:
        consumers = [reader.consumer("gone", group=group, start=start) for group in "gh"]
        others = [one.consumer("kept", group="g", start="first") for one in (reader, owner)]
        for consumer in consumers:
            assert sum(1 for _ in consumer) == (0 if start == "last" else 60)
        assert [sum(1 for _ in other) for other in others] == [60, 60]
        owner.delete_topic("gone")
        owner.create_topic("gone", 3)
        for number in range(3 * count):
            owner.put("gone", b"again %d" % number, queue_id=number % 3)
        owner.flush()
        wanted = sorted(b"again %d" % number for number in range(3 * count))
        found: list[list[bytes]] = [[], []]

        def all_found() -> bool:
            for consumer, bodies in zip(consumers, found, strict=True):
                bodies.extend(message.body for message in consumer)
            return min(map(len, found)) >= len(wanted)

        wait_until(all_found)
        assert [sorted(bodies) for bodies in found] == [wanted, wanted]
        assert [sum(1 for _ in other) for other in others] == [0, 0]


@pytest.mark.parametrize("how", ["topic", "queue", "all"])
def test_directories_removed_by_hand_below_an_owner(owner: rmqstore.MessageStore, how: str) -> None:
    """What is acknowledged afterwards is in the log: the next opening has all of it."""
    root = Path(owner.path)
    shutil.rmtree(root / {"topic": "consumequeue/gone", "queue": "consumequeue/gone/0"}.get(
        how, "consumequeue"))  # fmt: skip
    put = 0
    try:
        for number in range(60, 150):
            owner.put("gone", b"%d" % number, queue_id=number % 3, keys=f"k{number}")
            put = number + 1
    except rmqstore.StoreError as error:
        assert "consumequeue" in str(error)  # noqa: PT017
    try:
        owner.close()
    except (rmqstore.StoreError, OSError) as error:
        assert "consumequeue" in str(error)  # noqa: PT017
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            for queue_id in range(3):
                bodies = [m.body for m in store["gone"][queue_id]]
                wanted = [b"%d" % number for number in range(put) if number % 3 == queue_id]
                assert bodies[: len(wanted)] == wanted


def test_a_topic_deleted_whose_units_were_derived(
    owner: rmqstore.MessageStore, tmp_path: Path
) -> None:
    """The reader has made its queues up from the log of a killed store; then an owner comes."""
    owner.close()
    root = tmp_path / "killed"
    shutil.copytree(owner.path, root)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    for queue_id in range(3):
        path = root / f"consumequeue/gone/{queue_id}" / f"{0:020}"
        path.write_bytes(path.read_bytes()[:60].ljust(400, b"\0"))
    with rmqstore.open(root) as reader:
        assert len(shown(reader)["gone/0"][3]) == 20
        with rmqstore.open(root, "r+", config=CONFIG) as again:
            again.delete_topic("gone")
            check_same(reader)
        check_same(reader)
