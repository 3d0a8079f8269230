"""A directory of the log that has something else in it: its store would open once only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import StoreConfig

COUNT = 20


def config(*log: Path) -> StoreConfig:
    named = ",".join(map(str, log)) if log else None
    return StoreConfig.small(store_path_commit_log=named)


def put(store: rmqstore.MessageStore) -> None:
    for number in range(COUNT):
        store.put("t", b"%d" % number, queue_id=0)


def check(store: rmqstore.MessageStore) -> None:
    assert [int(one.body) for one in store["t"][0]] == list(range(COUNT))


def own_by_a_link(tmp_path: Path) -> Path:
    (tmp_path / "by").symlink_to(tmp_path / "root" / "index")
    return tmp_path / "by"


SHARED: dict[str, tuple[Any, str]] = {
    "consumequeue": ("consumequeue", "store's own consumequeue"),
    "below it": ("consumequeue/log", "store's own consumequeue"),
    "index": ("index", "store's own index"),
    "config": ("config", "store's own config"),
    "lock": ("lock", "store's own lock"),
    "link": (own_by_a_link, "store's own index"),
    "root": (".", "store's own directory"),
    "above": ("..", "has the store in it"),
}


@pytest.mark.parametrize("by", ["config", "file"])
@pytest.mark.parametrize("field", ["store_path_commit_log", "read_only_commit_log_store_paths"])
@pytest.mark.parametrize("case", SHARED)
def test_a_log_among_other_parts_of_its_store(
    tmp_path: Path, case: str, field: str, by: str
) -> None:
    """Made and acknowledged once, it would not open any more."""
    root = tmp_path / "root"
    place, why = SHARED[case]
    log = place(tmp_path) if callable(place) else root / place
    places = {"store_path_commit_log": str(tmp_path / "log"), field: str(log)}
    chosen: StoreConfig | Path = StoreConfig.small(**places)
    if by == "file":
        chosen = tmp_path / "broker.conf"
        keys = {"store_path_commit_log": "storePathCommitLog"}
        keys["read_only_commit_log_store_paths"] = "readOnlyCommitLogStorePaths"
        chosen.write_text("".join(f"{keys[name]}={value}\n" for name, value in places.items()))
    before = sorted(tmp_path.rglob("*"))
    name = "storePathCommitLog" if by == "file" else "store_path_commit_log"
    with pytest.raises(ValueError, match=f"^{name}: .*{why}.*: name a directory with nothing else"):
        rmqstore.open(root, "a", config=chosen)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_a_log_that_a_broker_began_in_the_store_s_directory(tmp_path: Path, mode: Any) -> None:
    """No other store has it; it can be read."""
    with rmqstore.open(tmp_path, "a", config=config()) as store:
        put(store)
    for file in (tmp_path / "commitlog").iterdir():
        file.rename(tmp_path / file.name)
    with pytest.raises(ValueError, match=f"{tmp_path} is the store's own directory: name"):
        rmqstore.open(tmp_path, mode, config=config(tmp_path))
    with rmqstore.open(tmp_path, config=config(tmp_path)) as store:
        check(store)


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_a_directory_of_the_log_within_another_one(tmp_path: Path, mode: Any) -> None:
    outer, inner = tmp_path / "log", tmp_path / "log" / "more"
    with rmqstore.open(tmp_path / "root", "a", config=config(outer)) as store:
        put(store)
    with pytest.raises(ValueError, match=f"{outer} has {inner} in it, another directory of the"):
        rmqstore.open(tmp_path / "root", mode, config=config(outer, inner))
    assert not inner.exists()
    with rmqstore.open(tmp_path / "root", "r+", config=config(outer)) as store:
        check(store)
