"""Topics whose names no client may use any more, as brokers before 4.7 let them make: shown."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import MessageIllegalError
from rmqstore.files import paths
from support.stored_names import CONFIG, COUNT, NAMES, write_log

PATHS = ["../x", "a/b", "/", "..", ".", "a\0b", "\ud800"]


def check(store: rmqstore.MessageStore, names: list[str]) -> None:
    assert sorted(store) == sorted(names)
    for name in names:
        wanted = [b"%d" % number for number in range(COUNT)]
        assert name in store
        assert [m.body for m in store.get(name, 1, 0, 100).messages] == wanted
        assert [m.topic for m in store[name][1]] == [name] * COUNT
        assert [m.body for m in store.scan(name)] == wanted
        assert [m.body for m in store.query(name, "k3")] == [b"3"]
        assert store[name][1][4].body == b"4"
        assert store[name][1].offset_at(1_700_000_005_000) == 5
        assert len(store[name][1]) == COUNT


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of these topics, its queues written by a recovery."""
    root = tmp_path_factory.mktemp("made") / "store"
    write_log(root, NAMES)
    with rmqstore.open(root, "r+", config=CONFIG):
        pass
    return root


def test_derived_and_rebuilt(tmp_path: Path) -> None:
    """From the log alone: in memory, and on the disk; then the queues that lie there."""
    write_log(tmp_path, NAMES)
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        check(store, NAMES)
        assert store.stats()["skipped_records"] == 0
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        check(store, NAMES)
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == sorted(NAMES)
    for mode in ("r", "r+", "a"):
        with rmqstore.open(tmp_path, mode) as store:  # type: ignore[arg-type]
            assert store.recovery.clean
            check(store, NAMES)


def test_dispatched_behind_the_queues(made: Path, tmp_path: Path) -> None:
    """As after a kill: the queues' ends are lost, and are dispatched anew."""
    root = tmp_path / "store"
    write_log(root, NAMES)
    with rmqstore.open(root, "r+", config=CONFIG):
        pass
    for name in NAMES:
        path = root / "consumequeue" / name / "1" / f"{0:020}"
        path.write_bytes(path.read_bytes()[:40].ljust(400, b"\0"))
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    with rmqstore.open(root) as store:
        check(store, NAMES)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        check(store, NAMES)


@pytest.mark.parametrize("name", ["a.b", " ", "\u00e9", "a\nb", "*"])
def test_what_a_client_may_not_name_is_not_made(made: Path, tmp_path: Path, name: str) -> None:
    """4.9.3 refuses it at its send processor, whether there is a topic of that name or not."""
    write_log(tmp_path, NAMES)
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        calls: list[Any] = [
            lambda: store.put(name, b"x"),
            lambda: store.put_many(name, [b"x"]),
            lambda: store.create_topic(name),
            lambda: store.begin(name, b"x", producer_group="g"),
        ]
        for call in calls:
            with pytest.raises(MessageIllegalError, match=r"must be 1 to 127 of"):
                call()
        check(store, NAMES)


def test_deleted(tmp_path: Path) -> None:
    write_log(tmp_path, NAMES)
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        for name in NAMES[::2]:
            store.delete_topic(name)
        check(store, NAMES[1::2])
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == sorted(
        NAMES[1::2]
    )
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    for mode in ("r", "r+", "r"):
        with rmqstore.open(tmp_path, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            check(store, NAMES[1::2])


@pytest.mark.parametrize("name", ["a.b", "\u00e9", "a b"])
def test_consumed(tmp_path: Path, name: str) -> None:
    write_log(tmp_path, NAMES)
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        with store.consumer(name, group="g") as consumer:
            assert [m.body for m in consumer] == [b"%d" % i for i in range(COUNT)]
            consumer.commit()
        assert [(one.topic, one.committed, one.messages) for one in store.lag()] == [
            (name, COUNT, 0)
        ]
    with rmqstore.open(tmp_path) as store:
        assert [(one.topic, one.committed) for one in store.lag()] == [(name, COUNT)]


def test_copied(made: Path, tmp_path: Path) -> None:
    with rmqstore.open(made) as store:
        store.snapshot(tmp_path / "copy")
    with rmqstore.open(tmp_path / "copy", "r+") as store:
        check(store, NAMES)


# What is a path


@pytest.mark.parametrize("name", PATHS[:6])
def test_a_record_whose_topic_is_a_path(tmp_path: Path, name: str) -> None:
    """It is passed over and counted, found by its offset, and makes nothing anywhere."""
    root = tmp_path / "1" / "2" / "store"
    write_log(root, ["plain", name])
    for mode in ("r", "r+", "r+"):
        with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            assert sorted(store) == ["plain"]
            assert len(store["plain"][1]) == COUNT
            assert sum(1 for _ in store.scan()) == 2 * COUNT
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == ["plain"]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert [path.name for path in (tmp_path / "1" / "2").iterdir()] == ["store"]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_directories_that_are_no_topic(tmp_path: Path, mode: Any) -> None:
    """Bytes that are no UTF-8 name none, as no record does; neither do those without a queue."""
    write_log(tmp_path, ["plain"])
    with rmqstore.open(tmp_path, "r+", config=CONFIG):
        pass
    within = os.fsencode(tmp_path / "consumequeue")
    for name in (b"caf\xe9", b"\xff", b"lost+found", b".snapshots"):
        queue = "1" if name == b"\xff" else "x"
        Path(os.fsdecode(within + b"/" + name), queue).mkdir(parents=True)
    with rmqstore.open(tmp_path, mode, config=CONFIG) as store:
        check(store, ["plain"])


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_long_name_of_rocketmq_5(tmp_path: Path, mode: Any) -> None:
    """A directory of its name is shown to readers; a writer refuses such a store, as before."""
    write_log(tmp_path, ["plain"])
    with rmqstore.open(tmp_path, "r+", config=CONFIG):
        pass
    long = "t." * 100
    queue = tmp_path / "consumequeue" / long / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020}").write_bytes(bytes(400))
    if mode == "r":
        with rmqstore.open(tmp_path) as store:
            assert sorted(store) == sorted(["plain", long])
            assert store.get(long, 0, 0).messages == []
    else:
        with pytest.raises(rmqstore.IncompatibleStoreError, match="a topic longer than 127"):
            rmqstore.open(tmp_path, mode)


def test_the_two_rules() -> None:
    for name in NAMES:
        assert paths.is_stored_topic_name(name)
        assert paths.is_topic_name(name) == (name in ("plain", "x" * 127))
    for name in (*PATHS, ""):
        assert not paths.is_stored_topic_name(name)
        assert not paths.is_topic_name(name)


def test_entries_of_topics_json(tmp_path: Path) -> None:
    """A topic without messages is shown by its entry; an entry that is a path is not."""
    write_log(tmp_path, ["plain"])
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        store.create_topic("other")
    file = tmp_path / "config/topics.json"
    text = file.read_text()
    for name in ("a.b", "../x"):
        added = json.loads(text)
        entry = dict(added["topicConfigTable"]["other"], topicName=name)
        added["topicConfigTable"][name] = entry
        text = json.dumps(added)
    file.write_text(text)
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            assert sorted(store) == ["a.b", "other", "plain"]
    assert '"../x"' in file.read_text()


@pytest.mark.parametrize("name", [name for name in NAMES if "@" in name])
def test_no_group_comes_on_in_a_topic_whose_offsets_cannot_be_written(
    made: Path, tmp_path: Path, name: str
) -> None:
    """``@`` separates topic and group in the file of all groups."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.put("other", b"x", queue_id=0)
        with store.consumer("other", group="g") as other:
            assert [message.body for message in other] == [b"x"]
            other.commit()
        for refused in (
            lambda: store.consumer(name, group="g"),
            lambda: store.progress.commit(name, "g", 0, 1),
        ):
            with pytest.raises(ValueError, match="topic must not be empty or contain '@'"):
                refused()
    with rmqstore.open(root) as reader:
        assert reader.offsets == {("other", "g"): {0: 1}}
        with reader.consumer(name, group="g") as read:
            assert len(list(read)) == COUNT
