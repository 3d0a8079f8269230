"""The first failed sync is final, also where it is Python that syncs: the files of topics."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreFailedError
from rmqstore.base import syncing
from rmqstore.brokerfiles.configfile import ConfigFile, ReplacedError

CONFIG = rmqstore.StoreConfig.small()


@pytest.fixture
def store(tmp_path):
    """An open store of one topic, which the test leaves to fail."""
    store = rmqstore.open(tmp_path / "store", "a", config=CONFIG)
    store.put("kept", b"first", queue_id=0)
    store.flush()
    return store


@pytest.fixture
def failing(monkeypatch):
    """Have the next sync of a file, or of a directory, fail, and all later ones succeed."""
    real = os.fsync

    def fail(kind: str) -> None:
        left = [kind]

        def fsync(descriptor: int) -> None:
            directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            if left and left[0] == ("directory" if directory else "file"):
                left.clear()
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        monkeypatch.setattr(syncing.os, "fsync", fsync)

    return fail


def topics_in(store) -> set[str]:
    text = Path(store.path, "config", "topics.json").read_text(encoding="utf-8")
    return set(json.loads(text)["topicConfigTable"])


def create(store):
    store.create_topic("new")


def put(store):
    store.put("new", b"?", queue_id=0)


def put_many(store):
    store.put_many("new", [b"?", b"?"])


@pytest.mark.parametrize("call", [create, put, put_many])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_failed_sync_of_the_topics_is_final(store, failing, call, kind):
    failing(kind)
    with pytest.raises(StoreFailedError, match=r"config.*cannot be forced"):
        call(store)
    # Memory says what the file does: the new one is in place if only its name was not synced.
    assert topics_in(store) == ({"kept", "new"} if kind == "directory" else {"kept"})
    assert {entry.topic_name for entry in store.registry} == topics_in(store)
    for again in (call, create, lambda store: store.put("kept", b"?", queue_id=0)):
        with pytest.raises(StoreFailedError):
            again(store)
    with pytest.raises(StoreFailedError):
        store.flush()
    assert store["kept"][0][0].body == b"first"
    assert len(store["kept"][0]) == 1
    with pytest.raises(StoreFailedError):
        store.close()
    assert Path(store.path, "abort").exists()
    with rmqstore.open(store.path, "r+") as again:
        again.put("new", b"now", queue_id=0)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_failed_sync_of_a_deletion_is_final(store, failing, kind):
    failing(kind)
    with pytest.raises(StoreFailedError):
        store.delete_topic("kept")
    with pytest.raises(StoreFailedError):
        store.put("other", b"?", queue_id=0)
    with pytest.raises(StoreFailedError):
        store.close()


def test_what_fails_before_a_sync_is_not_final(store, monkeypatch):
    """No descriptor for the directory: nothing is changed, and the next try may go well."""
    real = os.open

    def refuse(path, flags, *rest, **named):
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(rmqstore.PutError) as raised:
        store.create_topic("new")
    assert raised.value.errno == errno.EMFILE
    monkeypatch.undo()
    assert topics_in(store) == {"kept"}
    assert list(store) == ["kept"]
    store.create_topic("new")
    store.close()


def test_the_backup_is_what_was_before_a_name_that_was_not_synced(tmp_path, failing):
    file = ConfigFile(tmp_path / "some.json")
    file.save({"number": 1})
    failing("directory")
    with pytest.raises(ReplacedError) as raised:
        file.save({"number": 2})
    assert raised.value.filename == str(tmp_path)
    assert json.loads(file.path.read_text()) == {"number": 2}
    assert json.loads(file.backup.read_text()) == {"number": 1}
    failing("file")
    with pytest.raises(syncing.SyncError):
        file.save({"number": 3})
    assert json.loads(file.path.read_text()) == {"number": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.json", "some.json.bak"]
