"""Symbolic links in a store: followed wherever they stand, and named where they lead nowhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import IncompatibleStoreError, StoreError, StoreNotFoundError

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=10,
    max_index_num=40,
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=1024,
)
COUNT = 100
NOW = 50


def put(store: rmqstore.MessageStore, numbers: range) -> None:
    for number in numbers:
        store.put("Topic1", b"%03d" % number * 20, queue_id=number % 2, keys=f"k{number}", tags="A")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with some files of each kind, and notes of every kind in config/."""
    root = tmp_path_factory.mktemp("made") / "store"
    for _ in range(2):  # so that there is a .bak
        with rmqstore.open(root, "a", config=CONFIG) as store:
            put(store, range(NOW) if not len(store.topics) else range(NOW, COUNT))
            with store.consumer("Topic1", group="g") as consumer:
                consumer.commit()
            store.create_topic(f"gone{len(store.topics)}")
            store.delete_topic(f"gone{len(store.topics) - 1}")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def files(root: Path, directory: str) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in (root / directory).iterdir() if path.is_file()
    )


# What of a store is a link, by name: paths below the store, all of which are.
SITES: dict[str, Callable[[Path], list[str]]] = {
    "root": lambda root: ["."],
    "commitlog": lambda root: ["commitlog"],
    "first log file": lambda root: files(root, "commitlog")[:1],
    "middle log file": lambda root: files(root, "commitlog")[2:3],
    "last log file": lambda root: files(root, "commitlog")[-1:],
    "all log files": lambda root: files(root, "commitlog"),
    "consumequeue": lambda root: ["consumequeue"],
    "topic": lambda root: ["consumequeue/Topic1"],
    "queue": lambda root: ["consumequeue/Topic1/1"],
    "first queue file": lambda root: files(root, "consumequeue/Topic1/0")[:1],
    "last queue file": lambda root: files(root, "consumequeue/Topic1/0")[-1:],
    "all queue files": lambda root: files(root, "consumequeue/Topic1/0"),
    "ext": lambda root: ["consumequeue_ext"],
    "ext topic": lambda root: ["consumequeue_ext/Topic1"],
    "ext files": lambda root: files(root, "consumequeue_ext/Topic1/0"),
    "index": lambda root: ["index"],
    "index files": lambda root: files(root, "index"),
    "config": lambda root: ["config"],
    "json": lambda root: files(root, "config"),
    "topics.json": lambda root: ["config/topics.json"],
    "topics.json.bak": lambda root: ["config/topics.json.bak"],
    "lock": lambda root: ["lock"],
    "checkpoint": lambda root: ["checkpoint"],
    "deleted topics": lambda root: ["rmqstore-deleted.json"],
    "every file": lambda root: [
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()
    ],
}


def contents(root: Path) -> dict[Path, bytes]:
    """What is in a store: of each file its bytes, of each link where it leads."""
    found = {}
    for within, directories, names in os.walk(root):
        for path in (Path(within, name) for name in [*directories, *names]):
            if path.is_symlink():
                found[path] = os.readlink(path).encode()  # noqa: PTH115
            elif path.is_file():
                found[path] = path.read_bytes()
    return found


def move_and_link(root: Path, names: list[str], *, how: str = "absolute") -> dict[Path, Path]:
    """Move each to another directory, and leave a link; by link what it leads to."""
    assert names
    made = {}
    for number, name in enumerate(names):
        path = root / name
        target = root.parent / f"disk{number}" / path.name
        target.parent.mkdir()
        shutil.move(path, target)
        to: Path | str = target
        if how == "relative":
            to = os.path.relpath(target, path.parent)
        elif how == "chain":
            to = target.with_name(f"{target.name}.link")
            to.symlink_to(target.name)
        path.symlink_to(to)
        made[path] = target
    return made


def check(store: rmqstore.MessageStore, count: int) -> None:
    """Every way of reading shows all of it."""
    for queue_id in (0, 1):
        queue = store["Topic1"][queue_id]
        assert [int(m.body[:3]) for m in queue] == list(range(queue_id, count, 2))
    assert sorted(int(m.body[:3]) for m in store.scan("Topic1")) == list(range(count))
    assert sum(1 for _ in store.scan()) >= count
    for number in (0, count // 2, count - 1):
        assert [int(m.body[:3]) for m in store.query("Topic1", f"k{number}")] == [number]


@pytest.mark.parametrize("how", ["absolute", "relative", "chain"])
@pytest.mark.parametrize("site", SITES)
def test_followed(root: Path, site: str, how: str) -> None:
    """In every mode, with a configuration and without; what is written goes to the target."""
    links = move_and_link(root, SITES[site](root), how=how)
    for config in (None, CONFIG):
        with rmqstore.open(root, config=config) as store:
            check(store, COUNT)
            assert store.recovery.clean
            assert not store.recovery.notes
            assert not store.recovery.damaged_files
    count = COUNT
    for mode in ("r+", "a"):
        with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            assert store.recovery.clean
            assert store.recovery.units_written == 0
            check(store, count)
            put(store, range(count, count + 30))
            count += 30
            store.create_topic(f"new{mode[0]}")
            check(store, count)
    assert all(path.is_symlink() for path in links)
    assert all(target.exists() for target in links.values())
    with rmqstore.open(root) as store:
        check(store, count)
        assert {"newr", "newa"} <= set(store)
    names = json.loads((root / "config/topics.json").read_text())["topicConfigTable"]
    assert {"newr", "newa"} <= set(names)


@pytest.mark.parametrize("site", ["commitlog", "last log file", "all queue files", "every file"])
def test_recovered_through_links(root: Path, site: str) -> None:
    """After a kill: `abort` and no watermark, so that everything is looked at."""
    (root / "abort").write_bytes(b"")
    (root / "checkpoint").unlink()
    queue_file = root / files(root, "consumequeue/Topic1/0")[-1]
    queue_file.write_bytes(bytes(200))
    move_and_link(root, SITES[site](root))
    with rmqstore.open(root) as store:
        check(store, COUNT)
    with rmqstore.open(root, "r+", config=CONFIG, verify="full") as store:
        assert not store.recovery.clean
        check(store, COUNT)
        put(store, range(COUNT, COUNT + 10))
        check(store, COUNT + 10)
    assert not os.path.lexists(root / "abort")


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_a_lock_by_any_path(root: Path, tmp_path: Path, mode: Any) -> None:
    """One store, whatever links lead to it, has one owner."""
    move_and_link(root, ["lock"])
    (tmp_path / "by").symlink_to(tmp_path)
    with rmqstore.open(root, "r+", config=CONFIG):
        for other in (root, tmp_path / "by/store"):
            with pytest.raises(rmqstore.StoreLockedError):
                rmqstore.open(other, mode, config=CONFIG)


# Files replaced and removed


def test_a_json_file_is_replaced_beside_its_target(root: Path, tmp_path: Path) -> None:
    links = move_and_link(root, ["config/topics.json", "config/topics.json.bak"])
    before = [target.read_bytes() for target in links.values()]
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.create_topic("new")
    main, backup = links.values()
    assert b'"new"' in main.read_bytes()
    assert backup.read_bytes() == before[0]
    assert all(path.is_symlink() for path in links)
    assert sorted(path.name for path in tmp_path.glob("disk*/*")) == [main.name, backup.name]


@pytest.mark.parametrize("name", ["consumerOffset.json", "topics.json", "subscriptionGroup.json"])
@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "none"])
def test_a_json_file_that_is_its_own_bak(root: Path, name: str, config: Any) -> None:
    def change(topic: str, group: str) -> None:
        with rmqstore.open(root, "r+", config=config) as store:
            store.create_topic(topic)
            store.create_group(group, retry_max=7)
            with store.consumer("Topic1", group=group) as consumer:
                assert len(list(consumer)) == COUNT
                consumer.commit(sync=True)

    change("old", "sooner")
    backup = root / "config" / f"{name}.bak"
    backup.unlink(missing_ok=True)
    backup.symlink_to(name)
    change("new", "later")
    with rmqstore.open(root, config=config) as store:
        assert "new" in store.topics
        assert store.groups["later"].retry_max == 7
        assert sum(store.offsets["Topic1", "later"].values()) == COUNT


def test_what_a_retention_removes_frees_the_other_disk(root: Path) -> None:
    """A link goes together with its file; one to a file of another name goes alone."""
    names = [*files(root, "commitlog")[:3], *files(root, "consumequeue/Topic1/0")[:2]]
    links = move_and_link(root, [*names, *files(root, "index")[:1]])
    other = root / files(root, "commitlog")[3]
    renamed = other.rename(root.parent / "mine")
    other.symlink_to(renamed)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        until = store["Topic1"][0][-1].store_timestamp + 1
        assert store.delete_expired(before=until).files > 4
        rest = [int(m.body[:3]) for m in store.scan("Topic1")]
        assert rest == list(range(rest[0], COUNT))
        put(store, range(COUNT, COUNT + 1))
    assert not any(os.path.lexists(path) for path in links)
    assert not any(target.exists() for target in links.values())
    assert not os.path.lexists(other)
    assert renamed.exists()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.clean


@pytest.mark.parametrize("site", ["topic", "queue", "all queue files", "ext topic", "ext files"])
def test_a_topic_deleted_through_links(root: Path, site: str) -> None:
    """Its files go wherever they lie; a directory that a link led to stays, empty."""
    links = move_and_link(root, SITES[site](root))
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.delete_topic("Topic1")
        assert "Topic1" not in store
    for path, target in links.items():
        assert not os.path.lexists(path)
        assert not any(one.is_file() for one in [target, *target.rglob("*")])
    assert not os.path.lexists(root / "consumequeue/Topic1")
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert "Topic1" not in store
        store.put("Topic1", b"anew", queue_id=0)
        assert store["Topic1"][0].max_offset == 1


def test_a_linked_directory_with_something_else_in_it_stays(root: Path) -> None:
    links = move_and_link(root, ["consumequeue/Topic1"])
    (*_, target) = links.values()
    (target / "README").write_text("mine")
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.delete_topic("Topic1")
    assert (target / "README").read_text() == "mine"
    assert sorted(path.name for path in target.iterdir()) == ["README"]


def test_a_bad_index_file_behind_a_link(root: Path) -> None:
    """It is made anew under its name; a file that cannot be used is set aside where it is."""
    names = files(root, "index")
    links = move_and_link(root, names[:2], how="relative")
    first, second = links.values()
    first.write_bytes(first.read_bytes() + b"x")  # longer than any index file
    second.write_bytes(bytes(len(second.read_bytes())))
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        check(store, COUNT)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.clean
        check(store, COUNT)


# Links that lead nowhere


@pytest.mark.parametrize("how", ["gone", "circle", "unmounted"])
@pytest.mark.parametrize(
    "site",
    [site for site in SITES if site not in ("root", "commitlog", "all log files", "every file")],
)
def test_a_link_that_leads_nowhere(
    root: Path, site: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing refuses and changes nothing; reading shows the rest, and says which link it is."""
    links = move_and_link(root, SITES[site](root))
    for path, target in links.items():
        shutil.rmtree(target.parent)
        if how == "unmounted":
            target.parent.mkdir()
        elif how == "circle":
            path.unlink()
            path.symlink_to(path.name)
    before = contents(root)
    for mode in ("r+", "a"):
        with pytest.raises(
            (StoreError, OSError), match=r"is a symbolic link to .*, which "
        ) as raised:
            rmqstore.open(root, mode, config=CONFIG)  # type: ignore[arg-type]
        assert any(str(path) in str(raised.value) for path in links)
        assert contents(root) == before
    with rmqstore.open(root, config=CONFIG) as store:
        if "log file" not in site:
            check(store, COUNT)
        else:
            assert COUNT // 2 < sum(1 for _ in store.scan("Topic1", on_corruption="skip")) < COUNT
        if "ext" not in site:
            for path in links:
                assert any(f"{path} is a symbolic link to" in note for note in store.recovery.notes)
                assert f"{path} is a symbolic link to" in caplog.text


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize("site", ["root", "commitlog", "parent"])
def test_the_store_itself_is_not_there(root: Path, tmp_path: Path, site: str, mode: Any) -> None:
    if site == "parent":
        path = tmp_path / "by"
        path.symlink_to(tmp_path / "nowhere")
        root = path / "store"
    else:
        ((path, target),) = move_and_link(root, SITES[site](root)).items()
        shutil.rmtree(target)
    with pytest.raises((StoreNotFoundError, IncompatibleStoreError)) as raised:
        rmqstore.open(root, mode, config=CONFIG)
    assert f"{path} is a symbolic link to" in str(raised.value)
    assert "which is not there" in str(raised.value)
    assert not (tmp_path / "nowhere").exists()


def test_disks_of_a_log_spread_by_links(root: Path, tmp_path: Path) -> None:
    """Files of the log on three disks, of which one is not mounted."""
    disks = [tmp_path / f"mnt{number}" for number in range(3)]
    for disk in disks:
        disk.mkdir()
    names = files(root, "commitlog")
    for number, name in enumerate(names[:-1]):
        target = disks[number % 3] / Path(name).name
        shutil.move(root / name, target)
        (root / name).symlink_to(target)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        check(store, COUNT)
    disks[1].rename(tmp_path / "away")
    disks[1].mkdir()
    with pytest.raises(IncompatibleStoreError, match=r"is a symbolic link to .*/mnt1/"):
        rmqstore.open(root, "r+", config=CONFIG)
    with rmqstore.open(root) as store:
        rest = [int(m.body[:3]) for m in store.scan("Topic1", on_corruption="skip")]
        named = [note for note in store.recovery.notes if "/mnt1/" in note]
        assert len(named) == len([*range(1, len(names) - 1, 3)])
    assert rest == sorted(set(rest))
    assert 0 < len(rest) < COUNT
    disks[1].rmdir()
    (tmp_path / "away").rename(disks[1])
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.clean
        check(store, COUNT)


# What is no file


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
@pytest.mark.parametrize(
    "name", ["log", "queue", "index", "lock", "checkpoint", "abort", "config/topics.json"]
)
def test_a_link_to_what_is_no_file(root: Path, tmp_path: Path, name: str, kind: str) -> None:
    """As without the link: nothing blocks, and writing refuses or makes its own file."""
    path = {
        "log": root / files(root, "commitlog")[-1],
        "queue": root / files(root, "consumequeue/Topic1/0")[-1],
        "index": root / files(root, "index")[-1],
    }.get(name, root / name)
    path.unlink(missing_ok=True)
    target = Path("/dev/null") if kind == "device" else tmp_path / "target"
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "directory":
        target.mkdir()
    path.symlink_to(target)
    for mode in ("r", "r+"):
        try:
            with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[arg-type]
                assert any(True for _ in store.scan("Topic1", on_corruption="skip"))
        except (StoreError, OSError) as error:
            assert not isinstance(error, StoreNotFoundError)  # noqa: PT017
            assert name == "log" or mode == "r+", error  # noqa: PT017
    assert kind != "directory" or not any(target.iterdir())


# What stands on a store


def test_a_snapshot_has_what_links_lead_to(root: Path, tmp_path: Path) -> None:
    sites = ["commitlog", "topic", "all queue files", "index files", "topics.json"]
    move_and_link(root, ["commitlog", "consumequeue/Topic1", "config/topics.json", "index"])
    (root / "config/loop").symlink_to(root / "config")
    assert sites
    for number, mode in enumerate(("r", "r+")):
        copy = tmp_path / f"copy{number}"
        with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[arg-type]
            store.snapshot(copy)
        assert not any(path.is_symlink() for path in copy.rglob("*"))
        with rmqstore.open(copy, "r+", config=CONFIG) as store:
            assert store.recovery.clean
            check(store, COUNT)
            assert (
                "Topic1"
                in json.loads((copy / "config/topics.json").read_text())["topicConfigTable"]
            )


def test_a_configuration_by_a_link(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "real.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\n")
    (tmp_path / "broker.conf").symlink_to(conf)
    with rmqstore.open(root, config=tmp_path / "broker.conf") as store:
        check(store, COUNT)
