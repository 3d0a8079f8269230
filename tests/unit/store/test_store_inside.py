"""No store is made inside another one: neither that one's owner nor a broker would open it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.directory.layout import store_around
from support import oracle_store

CONFIG = rmqstore.StoreConfig.small()

PLACES = [
    "commitlog",
    "commitlog/new",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    "consumequeue/orders/0/a/b/c",
    "consumequeue/other/7",
    "consumequeue_ext",
    "consumequeue_ext/orders/0",
    "index",
    "index/new",
    "config",
    "config/deep/er",
    "rmqstore-quarantine",
    "rmqstore-quarantine/index",
    "lock/x",
    "checkpoint",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("orders", b"x", queue_id=0, keys="k")
        store.put("commitlog", b"a topic of that name", queue_id=0)
        store.put("consumequeue", b"another", queue_id=0)
    return tmp_path / "store"


def opened(path: Path) -> None:
    rmqstore.open(path, "a").close()


def opened_with_a_log_elsewhere(path: Path) -> None:
    log = path.with_name("log-elsewhere") / "commitlog"
    rmqstore.open(path, "a", config=CONFIG.replace(store_path_commit_log=str(log))).close()


def served(path: Path) -> None:
    rmqstore.serve(path).close()


def copied(path: Path) -> None:
    with rmqstore.open(SOURCE[0]) as store:
        store.snapshot(path)


SOURCE: list[Path] = []
MAKERS = [opened, opened_with_a_log_elsewhere, served, copied]


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Return a store that a snapshot is made of."""
    with rmqstore.open(tmp_path / "other", "a", config=CONFIG) as store:
        store.put("orders", b"x", queue_id=0)
    SOURCE[:] = [tmp_path / "other"]
    return tmp_path / "other"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.usefixtures("other")
def test_refused_with_the_store_s_own_directory(root: Path, place: str, make: Callable[..., None]):
    before = oracle_store.snapshot(root)
    with pytest.raises((rmqstore.IncompatibleStoreError, ValueError)) as caught:
        make(root / place)
    assert f"the store {root}" in str(caught.value)
    assert oracle_store.snapshot(root) == before
    with rmqstore.open(root, "r+") as store:
        assert len(store["orders"][0]) == 1


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/orders/0", "index/new"])
def test_refused_through_links_and_dots(root: Path, tmp_path: Path, place: str):
    (tmp_path / "way").symlink_to(root / place.partition("/")[0])
    inside = tmp_path / "way" / place.partition("/")[2]
    before = oracle_store.snapshot(root)
    for path in (inside, root / "config" / ".." / place, root / "commitlog" / ".." / place):
        with pytest.raises(rmqstore.IncompatibleStoreError, match=str(root)):
            rmqstore.open(path, "a")
    assert oracle_store.snapshot(root) == before


def test_a_store_through_a_link_of_its_own_name_is_no_other(root: Path, tmp_path: Path):
    (tmp_path / "commitlog").symlink_to(root)
    with rmqstore.open(tmp_path / "commitlog", "a") as store:
        assert len(store["orders"][0]) == 1


def test_a_killed_store_without_a_message_is_one(tmp_path: Path):
    """As an owner leaves it that is killed at once."""
    for name in ("commitlog", "consumequeue", "config"):
        (tmp_path / "store" / name).mkdir(parents=True)
    (tmp_path / "store" / "abort").touch()
    for place in ("commitlog", "consumequeue", "config", "index"):
        with pytest.raises(rmqstore.IncompatibleStoreError, match="lies in the store"):
            rmqstore.open(tmp_path / "store" / place, "a")
    rmqstore.open(tmp_path / "store", "a", config=CONFIG).close()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "lock"])
def test_a_name_alone_is_no_store(tmp_path: Path, name: str):
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "index").mkdir(exist_ok=True)
    (tmp_path / "config").mkdir(exist_ok=True)
    assert store_around(tmp_path / name / "deeper") is None
    with rmqstore.open(tmp_path / name, "a", config=CONFIG) as store:
        store.put("orders", b"x", queue_id=0)
    rmqstore.open(tmp_path / name, "a").close()


def test_one_that_is_there_can_be_opened(root: Path, tmp_path: Path):
    """Whoever has made one inside another gets at its messages."""
    with rmqstore.open(tmp_path / "made", "a", config=CONFIG) as store:
        store.put("inner", b"x", queue_id=0)
    shutil.move(tmp_path / "made", root / "config" / "inner")
    with rmqstore.open(root / "config" / "inner", "a") as store:
        assert len(store["inner"][0]) == 1


def test_a_directory_beside_the_parts_of_a_store(root: Path):
    with rmqstore.open(root / "beside", "a", config=CONFIG) as store:
        store.put("orders", b"x", queue_id=0)
    assert oracle_store.check_store(root)


def test_a_directory_of_log_files_is_no_store(root: Path, tmp_path: Path):
    """A log that lies elsewhere has nothing of its store around it."""
    shutil.move(root / "commitlog", tmp_path / "elsewhere")
    for place in ("elsewhere", "store/consumequeue/orders/0"):
        with pytest.raises(rmqstore.IncompatibleStoreError):
            rmqstore.open(tmp_path / place, "a")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_a_log_is_made_in_no_other_store(root: Path, tmp_path: Path):
    for place in ("index/log", "consumequeue/log"):
        config = CONFIG.replace(store_path_commit_log=str(root / place))
        with pytest.raises(rmqstore.IncompatibleStoreError, match=f"the store {root}"):
            rmqstore.open(tmp_path / "new", "a", config=config)
        assert not (root / place).exists()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("deep", ["new", "a/b/c"])
@pytest.mark.usefixtures("other")
def test_below_a_log_that_lies_elsewhere(tmp_path: Path, make: Callable[..., None], deep: str):
    """By a configuration or a link: the store is not found from there, the files are."""
    config = CONFIG.replace(store_path_commit_log=str(tmp_path / "disk1"))
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        store.put("orders", b"x", queue_id=0)
    with pytest.raises(
        (rmqstore.IncompatibleStoreError, ValueError), match=f"{tmp_path / 'disk1'}, which holds"
    ):
        make(tmp_path / "disk1" / deep)
    with rmqstore.open(tmp_path / "store", "r+", config=config) as store:
        assert len(store["orders"][0]) == 1


def test_beside_directories_named_like_files_of_a_log(tmp_path: Path):
    (tmp_path / "00000000000000000007").mkdir()
    with rmqstore.open(tmp_path / "new", "a", config=CONFIG) as store:
        store.put("orders", b"x", queue_id=0)


def test_a_file_put_aside_forbids_only_its_own_directory(root: Path, tmp_path: Path):
    (tmp_path / "home" / "there").mkdir(parents=True)
    (tmp_path / "home" / f"{0:020}").write_bytes(b"a part of a log")
    rmqstore.open(tmp_path / "home" / "there" / "store", "a", config=CONFIG).close()
    with rmqstore.open(root) as store:
        store.snapshot(tmp_path / "home" / "there" / "copy")
    for name in ("store", "new/store"):
        with pytest.raises(
            rmqstore.IncompatibleStoreError, match=f"files of a log or a queue, as {0:020}: name"
        ):
            rmqstore.open(tmp_path / "home" / name, "a", config=CONFIG)
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == [f"{0:020}", "there"]
