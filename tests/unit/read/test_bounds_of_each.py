"""The bounds of many queues at once are those of each."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import MessageStore, StoreConfig
from rmqstore.consume.lag import bounds_by_topic


def places(store: MessageStore) -> list[tuple[str, int]]:
    return [(topic, queue) for topic in ("few", "many", "gone", "none") for queue in range(1100)]


@pytest.mark.parametrize("way", ["owner", "closed", "beside", "r+"])
def test_they_are_those_of_each(tmp_path: Path, way: str) -> None:
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as owner:
        owner.create_topic("many", 1100)
        for queue in range(0, 1100, 7):
            owner.put("many", b"x", queue_id=queue)
        for number in range(5):
            owner.put("few", b"x", queue_id=number % 2)
            owner.put("gone", b"x", queue_id=0)
        owner.delete_topic("gone")
        if way == "owner":
            check(owner)
        if way == "beside":
            with rmqstore.open(path, "r") as store:
                check(store)
    if way in ("closed", "r+"):
        with rmqstore.open(path, "r" if way == "closed" else "r+") as store:
            check(store)


def check(store: MessageStore) -> None:
    each = [store.core.bounds(*place) for place in places(store)]
    assert store.core.bounds_of_each(places(store)) == each
    found = bounds_by_topic(store.core)
    assert found["few"] == [(0, 0, 3), (1, 0, 2)]
    assert found["many"] == [(queue_id, 0, 1) for queue_id in range(0, 1100, 7)]
    assert "none" not in found
    assert found.keys() == store.queue_ids().keys()


def test_bad_places_are_refused_like_one(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        store.put("few", b"x")
        assert store.core.bounds_of_each([]) == []
        for place in (("few", -1), ("few", 1 << 40), (3, 0)):
            with pytest.raises((TypeError, ValueError)):
                store.core.bounds(*place)
            with pytest.raises((TypeError, ValueError)):
                store.core.bounds_of_each([("few", 0), place])
    with pytest.raises(rmqstore.StoreClosedError):
        store.core.bounds_of_each([])
