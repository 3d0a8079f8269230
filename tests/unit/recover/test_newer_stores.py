"""What RocketMQ 5 leaves in a store: named by a reader, refused by a writer, nothing is changed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import rmqstore
from rmqstore.files.newer import find_newer
from support import oracle, oracle_store
from support.damaged_store import poke

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=100,
    max_index_num=400,
)
COUNT = 40
LONG = "L" * 200

# Files that RocketMQ 5 has with a feature in use, and what of it is named.
FEATURES: dict[str, tuple[dict[str, bytes], str, str]] = {
    "RocksDB queues": ({"consumequeue/CURRENT": b"MANIFEST-000005\n"}, "consumequeue", "RocksDB"),
    "batch queues": (
        {"batchconsumequeue/orders/0/00000000000000000000": bytes(46)},
        "batchconsumequeue",
        "batch consume queues of orders",
    ),
    "timer": (
        {"timerwheel": bytes(64), "timerlog/00000000000000000000": b"\0\0\0\x34" + bytes(60)},
        "timerlog",
        "timer wheel",
    ),
    "compaction": (
        {
            "compaction/position-checkpoint": b"{}",
            "compaction/compactionLog/t/0/00000000000000000000": bytes(8),
        },
        "compaction/compactionLog",
        "compacted topics",
    ),
    "compacted queues": (
        {"compaction/compactionCq/t/0/00000000000000000000": bytes(8)},
        "compaction/compactionCq",
        "compacted topics",
    ),
    "tiered storage": (
        {"config/tieredStoreMetadata.json": b"{}"},
        "config/tieredStoreMetadata.json",
        "tiered storage",
    ),
    "configuration in RocksDB": (
        {"config/topics/CURRENT": b"MANIFEST-000005\n"},
        "config/topics",
        "configuration in RocksDB",
    ),
}

# What every 5.3.3 store leaves, of no consequence.
HARMLESS = {
    "abort.bak": b"",
    "compaction/position-checkpoint": b'{"queueOffsetMap":{}}',
    "timerwheel": bytes(64),
    "timerlog/00000000000000000000": bytes(520),
    "timercheck": bytes(4096),
    "timermetrics": b"{}",
    "config/consumerOrderInfo.json": b"{}",
    "config/topicQueueMapping.json": b"{}",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for n in range(COUNT):
            store.put("orders", b"%d" % n, queue_id=n % 2, keys=[f"k{n}"])
    return root


def add(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def unchanged(before: dict, after: dict) -> bool:
    return {n: (e[1], e[3]) for n, e in before.items()} == {
        n: (e[1], e[3]) for n, e in after.items()
    }


def assert_refused(root: Path, *texts: str, config: rmqstore.StoreConfig | None = CONFIG) -> None:
    before = oracle_store.snapshot(root)
    for mode in ("r+", "a"):
        for on_corruption in ("raise", "fill"):
            with pytest.raises(rmqstore.IncompatibleStoreError) as caught:
                rmqstore.open(root, mode, config=config, on_corruption=on_corruption)
            for text in (*texts, "RocketMQ 5", "mode 'r'"):
                assert text in str(caught.value)
            assert unchanged(before, oracle_store.snapshot(root))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_named_and_refused(root, feature, caplog):
    files, place, what = FEATURES[feature]
    add(root, {**HARMLESS, **files})
    assert_refused(root, str(root / place), what)
    with rmqstore.open(root) as store:
        (note,) = store.recovery.notes
        assert note.startswith(f"{place}: ")
        assert what in note
        assert note in caplog.text
        assert sum(len(queue) for queue in store["orders"].values()) == COUNT


def test_several_features_are_counted(root):
    for files, _, _ in FEATURES.values():
        add(root, files)
    assert len(find_newer(str(root))) == len(FEATURES)
    assert_refused(root, "and 6 more")
    with rmqstore.open(root) as store:
        assert len(store.recovery.notes) == len(FEATURES)


def test_what_every_newer_store_leaves_is_no_reason(root, caplog):
    add(root, HARMLESS)
    assert find_newer(str(root)) == []
    with rmqstore.open(root) as store:
        assert store.recovery.notes == ()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.put("orders", b"more", queue_id=0)
        assert len(store["orders"][0]) == COUNT // 2 + 1
    assert not caplog.records


def test_what_cannot_be_looked_at_is_no_reason(tmp_path):
    assert find_newer(str(tmp_path / "nothing")) == []


@pytest.mark.parametrize("at", [24, 32])
@pytest.mark.parametrize("more", [0, 1, 1 << 40, 1 << 56])
def test_a_checkpoint_that_claims_a_longer_log(root, at, more):
    with rmqstore.open(root) as store:
        end = store.recovery.log_end
    with (root / "checkpoint").open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(">q", end + more))
    refused = more == 1  # one byte of a page without a note is damage: nothing is lost by it
    if refused:
        assert_refused(root, str(root / "checkpoint"), f"({end}, not {end + 1})")
    with rmqstore.open(root) as store:
        assert store.recovery.log_end == end
    if not refused:
        with rmqstore.open(root, "r+", config=CONFIG) as store:
            store.put("orders", b"more", queue_id=0)


def test_a_short_checkpoint(root):
    (root / "checkpoint").write_bytes((root / "checkpoint").read_bytes()[:24])
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert len(store["orders"][0]) == COUNT // 2


def newer_record(at: int, topic: str = LONG, **fields: object) -> bytes:
    return oracle.encode_record(
        topic, b"newer" * 9, physical_offset=at, properties=b"KEYS\x01newer", version=2, **fields
    )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["none", "cut", "body", "head", "behind a hole"])
def test_a_record_of_the_second_version_is_never_cut(root, clean, damage):
    """Also where it is damaged, or what is before it: 4.9.3 takes it for the log's end."""
    with rmqstore.open(root) as store:
        end = store.recovery.log_end
    at = end + 200 if damage == "behind a hole" else end
    data = bytearray(newer_record(at))
    if damage == "cut":
        data[-30:] = bytes(30)
    if damage == "body":
        data[90] ^= 0xFF
    if damage == "head":
        data[0:4] = b"\x7f\xff\xff\xff"
    if damage == "behind a hole":
        poke(root, end, b"\x01" * 30)
    poke(root, at, bytes(data))
    if not clean:
        (root / "abort").touch()
    assert_refused(root, "commitlog", f"offset {at}")


@pytest.mark.parametrize("length", [128, 200, 255, 256, 1000, 32767])
def test_topics_of_any_length_are_read(root, length):
    """Queues of a topic too long for a directory are made from the log."""
    topic = "x" * length
    with rmqstore.open(root) as store:
        start = at = store.recovery.log_end
    count = 1 if start + 3 * (length + 200) > 1 << 16 else 3
    for n in range(count):
        data = newer_record(at, topic, queue_id=1, queue_offset=n, store_timestamp=1 << 40)
        poke(root, at, data)
        at += len(data)
    (root / "config" / "topics.json").unlink()  # else it would be a deleted topic's
    before = oracle_store.snapshot(root)
    with rmqstore.open(root) as store:
        assert topic in store.topics
        queue = store[topic][1]
        assert [message.queue_offset for message in queue] == list(range(count))
        assert {message.topic for message in queue} == {topic}
        assert store.get(topic, 1, 0).messages[0].physical_offset == start
        assert len(store.query(topic, "newer")) == count
        assert store.query(topic[:-1], "newer") == []
        assert sum(len(queue) for queue in store["orders"].values()) == COUNT
        assert [message.topic for message in store[topic].messages()] == [topic] * count
        assert store.queue_bounds(topic, 1) == (0, count)
    assert oracle_store.snapshot(root) == before
    assert_refused(root, f"offset {start}")


@pytest.mark.parametrize("feature", ["RocksDB queues", "configuration in RocksDB", None])
def test_a_topic_that_only_rocksdb_has_was_not_deleted(root, feature):
    """topics.json may be an old one: it tells deleted topics only where nothing else has them."""
    with rmqstore.open(root) as store:
        at = store.recovery.log_end
    poke(root, at, newer_record(at, "new", store_timestamp=1 << 40))
    add(root, FEATURES[feature][0] if feature else {})
    with rmqstore.open(root) as store:
        assert ("new" in store.topics) == (feature is not None)
        assert len(store.get("new", 0, 0).messages) == (feature is not None)


def test_a_directory_of_the_longest_name(root):
    """A directory's name may be as long as the system lets it be."""
    with rmqstore.open(root) as store:
        at = store.recovery.log_end
        topic = "y" * 255
        poke(root, at, data := newer_record(at, topic, store_timestamp=1 << 40))
        folder = root / "consumequeue" / topic / "0"
        folder.mkdir(parents=True)
        unit = oracle.pack_unit(at, len(data), 0)
        (folder / f"{0:020d}").write_bytes(unit + bytes(6000 - len(unit)))
    with rmqstore.open(root) as store:
        (message,) = store[topic][0]
        assert message.topic == topic
        assert store[topic][0].units()["physical_offset"].tolist() == [at]


def test_a_long_topic_in_topics_json_takes_no_message(root):
    """As a 5.x broker may have left it: its entry stays, a record of 4.9.3 cannot name it."""
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"][LONG] = {
        **table["topicConfigTable"]["orders"],
        "topicName": LONG,
    }
    path.write_text(json.dumps(table))
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert LONG in store.topics
        for put in (
            lambda: store.put(LONG, b"x"),
            lambda: store.put_many(LONG, [b"x"]),
            lambda: store.put_batch(LONG, [b"x"]),
            lambda: store.put(LONG, b"x", delay_level=1),
        ):
            with pytest.raises(rmqstore.MessageIllegalError, match="1 to 127"):
                put()
        assert sum(len(queue) for queue in store["orders"].values()) == COUNT
        store.put("orders", b"x", queue_id=0)
    assert LONG in json.loads(path.read_text())["topicConfigTable"]
