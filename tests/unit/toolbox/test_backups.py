"""Backups: only what is new is copied, flips are found, and a kill leaves the last state whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

import rmqstore
from rmqstore import toolbox
from rmqstore.services import snapshot
from rmqstore.toolbox.copies import backups as module

pytestmark = pytest.mark.pure

CONFIG = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=1 << 16)
FILE = 1 << 16


def put(store: rmqstore.MessageStore, count: int) -> None:
    for number in range(count):
        store.put("orders", b"%d " % number + b"x" * 900, queue_id=number % 2, keys=f"k{number}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.create_topic("orders", 2)
        put(store, 150)
    return tmp_path / "store"


def grow(root: Path, count: int = 100) -> None:
    with rmqstore.open(root, "r+") as store:
        put(store, count)


def bodies(path: Path) -> list[bytes]:
    with rmqstore.open(path) as store:
        return [message.body for message in store.scan()]


def names(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir())


def problems(directory: Path) -> dict[str, str | None]:
    return {one.file: one.problem for one in toolbox.verify_backup(directory) if one.problem}


def log_of(rows: list[toolbox.BackupFile], copied: bool) -> list[str]:
    log = [one.file for one in rows if one.copied == copied and one.file.startswith("commitlog")]
    return [str(int(name.rpartition("/")[2])) for name in log]


def test_only_new_files_are_copied(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    rows = toolbox.backup(root, copy)
    assert all(one.copied for one in rows)
    for one in rows:
        data = (copy / one.file).read_bytes()
        assert (len(data), xxh3_64_hexdigest(data)) == (one.bytes, one.xxh3)
    first = [str(at * FILE) for at in range(3)]
    assert log_of(rows, True) == first
    kept = {name: (copy / "commitlog" / name).stat().st_ino for name in names(copy / "commitlog")}
    grow(root)
    rows = toolbox.backup(root, copy)
    assert log_of(rows, False) == first[:-1]  # the last one was not full
    assert log_of(rows, True)[0] == first[-1]
    for name in sorted(kept)[:-1]:
        assert (copy / "commitlog" / name).stat().st_ino == kept[name]
    assert bodies(copy) == bodies(root)
    assert problems(copy) == {}
    with rmqstore.open(copy) as store:
        assert store.recovery.clean
        assert len(store.query("orders", "k7")) == 2
    assert names(tmp_path) == ["backup", "store"]


def test_a_torn_file_is_named_where_it_is(root: Path, tmp_path: Path) -> None:
    """Not in the directory being made, which is gone by then."""
    topics = root / "config" / "topics.json"
    topics.write_text('{"a":')
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(rmqstore.StoreCorruptError) as refused:
        toolbox.backup(root, tmp_path / "copy")
    assert refused.value.path == str(topics)
    assert f"there is no {topics}.bak" in str(refused.value)
    assert str(tmp_path / "copy") not in str(refused.value)
    assert names(tmp_path) == [root.name]


def test_beside_a_live_owner(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        put(store, 50)
        toolbox.backup(root, tmp_path / "backup")
        expected = [message.body for message in store.scan()]
        put(store, 10)
    assert bodies(tmp_path / "backup") == expected
    assert problems(tmp_path / "backup") == {}


def test_a_store_that_was_killed(root: Path, tmp_path: Path) -> None:
    """Recovery of the copy writes its log again; the files keep their times."""
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    for number, name in enumerate(names(root / "commitlog")):
        os.utime(root / "commitlog" / name, (1e9 + number, 1e9 + number))
    copy = tmp_path / "backup"
    for kept in ([], ["0", str(FILE)]):
        assert log_of(toolbox.backup(root, copy), False) == kept
        for name in names(copy / "commitlog"):
            times = [(one / "commitlog" / name).stat().st_mtime_ns for one in (copy, root)]
            assert times[0] == times[1]
    assert problems(copy) == {}
    assert bodies(copy) == bodies(root)


def test_what_the_store_has_no_more_goes(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    toolbox.backup(root, copy)
    (root / "commitlog" / f"{0:020d}").unlink()
    rows = toolbox.backup(root, copy)
    assert log_of(rows, False) == [str(FILE)]
    assert not (copy / "commitlog" / f"{0:020d}").exists()
    assert problems(copy) == {}
    assert bodies(copy) == bodies(root)


def test_flips_missing_and_extra_files(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    toolbox.backup(root, copy)
    log = copy / "commitlog" / f"{FILE:020d}"
    with log.open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 1]))
    (copy / "config" / "topics.json").unlink()
    (copy / "consumequeue" / "orders" / "0" / f"{0:020d}").write_bytes(b"short")
    (copy / "notes.txt").write_text("mine")
    assert problems(copy) == {
        f"commitlog/{FILE:020d}": "differs",
        f"consumequeue/orders/0/{0:020d}": "differs",
        "config/topics.json": "missing",
        "notes.txt": "extra",
    }
    rows = toolbox.backup(root, copy)  # the time of a changed file is not the manifest's
    assert str(FILE) in log_of(rows, True)
    assert problems(copy) == {}
    assert bodies(copy) == bodies(root)


def step(name: str) -> tuple[Any, str]:
    return {
        "log": (snapshot._Copy, "log"),
        "settle": (snapshot.Snapshots, "_complete"),
        "name": (snapshot._Copy, "name"),
        "sums": (module, "_sums"),
        "manifest": (module, "_save"),
        "exchange": (module, "_exchanged"),
        "last": (module._BackupRun, "_remove_old"),
    }[name]


def run_killed(root: Path, copy: Path, name: str, after: bool) -> None:
    """Run a backup in a child that ends at once before or after a step."""
    pid = os.fork()
    if pid == 0:
        try:
            owner, attribute = step(name)
            real = getattr(owner, attribute)

            def die(*arguments: Any, **named: Any) -> None:
                if after:
                    real(*arguments, **named)
                os._exit(9)

            setattr(owner, attribute, die)
            toolbox.backup(root, copy)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("log", True),
        ("settle", True),
        ("name", False),
        ("name", True),
        ("sums", True),
        ("manifest", True),
        ("exchange", True),
        ("last", True),
    ],
)
def test_killed(root: Path, tmp_path: Path, name: str, after: bool) -> None:
    copy = tmp_path / "backup"
    toolbox.backup(root, copy)
    old = bodies(copy)
    grow(root)
    run_killed(root, copy, name, after)
    exchanged = name == "last" or (name == "exchange" and after)
    assert bodies(copy) == (bodies(root) if exchanged else old)
    assert problems(copy) == {}
    toolbox.backup(root, copy)
    assert bodies(copy) == bodies(root)
    assert problems(copy) == {}
    assert names(tmp_path) == ["backup", "store"]


def test_a_killed_run_is_continued(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "backup"
    run_killed(root, copy, "log", True)
    left = tmp_path / "backup.next.unfinished" / "commitlog.unfinished"
    nodes = {one.name: one.stat().st_ino for one in left.iterdir()}
    wrong = left / f"{FILE:020d}"
    status = wrong.stat()
    data = bytearray(wrong.read_bytes())
    data[100:300] = bytes(200)  # as a power cut leaves it
    wrong.write_bytes(data)
    os.utime(wrong, ns=(status.st_atime_ns, status.st_mtime_ns))
    toolbox.backup(root, copy)
    made = {one.name: one.stat().st_ino for one in (copy / "commitlog").iterdir()}
    assert made[f"{0:020d}"] == nodes[f"{0:020d}"]
    assert bodies(copy) == bodies(root)
    assert problems(copy) == {}


def test_without_exchange_and_links(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "backup"
    toolbox.backup(root, copy)
    grow(root)

    def refuse(*names: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links")

    monkeypatch.setattr(module, "_exchanged", lambda one, other: False)
    monkeypatch.setattr(module.os, "link", refuse)
    rows = toolbox.backup(root, copy)
    assert all(one.copied for one in rows)
    assert bodies(copy) == bodies(root)
    copy.rename(tmp_path / "backup.old")  # killed between the two renames
    toolbox.backup(root, copy)
    assert problems(copy) == {}
    assert names(tmp_path) == ["backup", "store"]


@pytest.mark.parametrize("where", ["_save", "_sums"])
def test_a_full_disk_leaves_the_old_state(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    copy = tmp_path / "backup"

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, where, full)
        with pytest.raises(OSError, match="No space"):
            toolbox.backup(root, copy)
    assert names(tmp_path) == ["store"]
    toolbox.backup(root, copy)
    old = bodies(copy)
    grow(root)
    monkeypatch.setattr(module, where, full)
    with pytest.raises(OSError, match="No space"):
        toolbox.backup(root, copy)
    monkeypatch.undo()
    assert bodies(copy) == old
    assert problems(copy) == {}
    assert names(tmp_path) == ["backup", "store"]


def test_refused(root: Path, tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine").touch()
    with pytest.raises(FileExistsError, match="no backup"):
        toolbox.backup(root, used)
    with pytest.raises(ValueError, match="outside the store"):
        toolbox.backup(root, root / "backup")
    with pytest.raises(rmqstore.StoreNotFoundError, match="there is no rmqstore-backup"):
        toolbox.verify_backup(used)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    toolbox.backup(root, tmp_path / "backup")
    with pytest.raises(ValueError, match="a backup of"):
        toolbox.backup(other, tmp_path / "backup")
    manifest = tmp_path / "backup" / module.MANIFEST
    content = json.loads(manifest.read_text())
    content["files"][0]["bytes"] += 1
    whole = manifest.read_text()
    for text in (json.dumps(content), whole[:100], "[]", "{}", ""):
        manifest.write_text(text)
        with pytest.raises(rmqstore.StoreCorruptError, match="manifest is damaged"):
            toolbox.verify_backup(tmp_path / "backup")
        with pytest.raises(rmqstore.StoreCorruptError, match="manifest is damaged"):
            toolbox.backup(root, tmp_path / "backup")


def test_a_second_run_at_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "backup"
    real: Callable[..., Any] = module._save

    def meanwhile(*arguments: Any) -> None:
        with pytest.raises(rmqstore.StoreLockedError, match="under way"):
            toolbox.backup(root, copy)
        real(*arguments)

    monkeypatch.setattr(module, "_save", meanwhile)
    toolbox.backup(root, copy)
    assert problems(copy) == {}


def test_links(root: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "link").symlink_to(disk / "b")
    with pytest.raises(FileNotFoundError):
        toolbox.backup(root, tmp_path / "link")
    (disk / "b").mkdir()
    toolbox.backup(root, tmp_path / "link")
    grow(root)
    toolbox.backup(root, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert bodies(disk / "b") == bodies(root)
    assert problems(tmp_path / "link") == {}
