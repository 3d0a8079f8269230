"""A store whose only file of a kind is shorter than any size: it shows none, and is a short one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import StoreConfig
from rmqstore.cli import main
from rmqstore.errors import StoreError

SIZES = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
EXT = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024}
FIRST = f"{0:020d}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "store"
    with rmqstore.open(root, "a", config=StoreConfig(**SIZES, **EXT)) as store:
        for number in range(10):
            store.put("T", b"x" * 60, queue_id=0, keys=f"k{number}", tags="A")
    return root


@pytest.fixture(params=["closed", "killed"])
def root(made, tmp_path, request):
    copy = Path(shutil.copytree(made, tmp_path / "store"))
    if request.param == "killed":
        (copy / "abort").touch()
    return copy


@pytest.fixture(params=["none", "no sizes", "sizes"])
def config(request, tmp_path):
    if request.param == "none":
        return None
    if request.param == "sizes":
        return StoreConfig(**SIZES, **EXT)
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=ASYNC_FLUSH\nenableConsumeQueueExt=true\n")
    return StoreConfig.from_file(conf)


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("length", [0, 1, 19, 836, 1000, 1023])
def test_the_only_log_file(root: Path, config: StoreConfig | None, length: int) -> None:
    os.truncate(root / "commitlog" / FIRST, length)
    before = contents(root)
    expected = (config or StoreConfig()).mapped_file_size_commit_log
    with rmqstore.open(root, config=config) as store:
        assert store.config.mapped_file_size_commit_log == expected
        shown = [message.queue_offset for message in store["T"][0]] if length else []
        assert shown == list(range(len(shown)))
    assert contents(root) == before
    try:
        with rmqstore.open(root, "r+", config=config) as store:
            assert store.config.mapped_file_size_commit_log == expected
        assert "abort" in before  # all of a closed store was there
    except StoreError:
        assert contents(root) == before


@pytest.mark.parametrize("length", [1, 19, 1000, 1023])
@pytest.mark.parametrize("verb", ["info", "cat", "queues", "topics", "lag", "delays"])
def test_verbs(made: Path, tmp_path: Path, verb: str, length: int) -> None:
    root = Path(shutil.copytree(made, tmp_path / "store"))
    os.truncate(root / "commitlog" / FIRST, length)
    done = CliRunner().invoke(main, [verb, str(root)])
    assert done.exit_code in (0, 4)
    assert not done.exception or isinstance(done.exception, SystemExit)
    if verb == "info":
        assert done.exit_code == 4
        assert json.loads(done.stdout)["damage"]


@pytest.mark.parametrize("length", [0, 1, 7, 19, 20, 23])
def test_the_only_ext_file(root: Path, config: StoreConfig | None, length: int) -> None:
    [file] = (root / "consumequeue_ext").rglob(FIRST)
    os.truncate(file, length)
    before = contents(root)
    expected = (config or StoreConfig()).mapped_file_size_consume_queue_ext
    with rmqstore.open(root, config=config) as store:
        assert store.config.mapped_file_size_consume_queue_ext == expected
        assert len(store["T"][0]) == 10
    assert contents(root) == before
    with rmqstore.open(root, "r+", config=config) as store:
        assert store.config.mapped_file_size_consume_queue_ext == expected
        assert len(store.get("T", 0, 0, 32, tags="A").messages) == 10


@pytest.mark.parametrize("length", [0, 1, 19])
def test_the_only_queue_file(root: Path, config: StoreConfig | None, length: int) -> None:
    os.truncate(root / "consumequeue" / "T" / "0" / FIRST, length)
    expected = (config or StoreConfig()).mapped_file_size_consume_queue
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config) as store:
            assert store.config.mapped_file_size_consume_queue == expected
            assert [message.queue_offset for message in store["T"][0]] == list(range(10))


@pytest.mark.parametrize("length", [0, 1, 39, 40, 63, 64, 100])
def test_the_only_index_file(root: Path, config: StoreConfig | None, length: int) -> None:
    [file] = (root / "index").iterdir()
    os.truncate(file, length)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config) as store:
            assert len(store.query("T", "k3")) == 1
