"""``disk_use`` and ``statistics``, against sums over the messages themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore import toolbox
from rmqstore.toolbox.sizes import disk_use_of

pytestmark = pytest.mark.pure


def expected(root: Path, by: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Return messages and bytes by key, of all records of the log."""
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    with rmqstore.open(root) as store:
        for message in store.scan():
            stored = datetime.fromtimestamp(message.store_timestamp / 1000, UTC).isoformat()
            group = message.topic.rpartition("%")[2] if "%" in message.topic else None
            values = {
                "topic": message.topic,
                "queue": message.queue_id,
                "day": stored[:10],
                "hour": stored[:13] + "Z",
                "tag": message.tags,
                "group": group,
            }
            key = tuple(values[name] for name in by)
            count, size = found.get(key, (0, 0))
            found[key] = count + 1, size + message.store_size
    return found


def actual(root: Path, by: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, int]]:
    rows = toolbox.disk_use(root, by=by)
    assert [one.bytes for one in rows] == sorted((one.bytes for one in rows), reverse=True)
    return {tuple(one.keys.values()): (one.messages, one.bytes) for one in rows}


@pytest.mark.parametrize("name", ["broker-clean", "broker-killed", "quickstart"])
@pytest.mark.parametrize(
    "by", [("topic",), ("topic", "queue"), ("group",), ("day",), ("topic", "hour", "tag")]
)
def test_stores_of_a_broker(
    broker_store: Callable[[str], Any], name: str, by: tuple[str, ...]
) -> None:
    root = broker_store(name).root
    assert actual(root, by) == expected(root, by)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "%RETRY%g", "%DLQ%g"]),
            st.integers(0, 2),
            st.sampled_from([None, "x", "y"]),
            st.integers(0, 900),
        ),
        max_size=40,
    ),
    st.permutations(["topic", "queue", "day", "hour", "tag", "group"]),
    st.integers(1, 6),
)
def test_random_stores(
    tmp_path_factory: pytest.TempPathFactory, puts: Any, keys: list[str], count: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        for topic, queue_id, tag, size in puts:
            store.put(topic, b"b" * size, queue_id=queue_id, tags=tag)
    by = tuple(keys[:count])
    assert actual(root, by) == expected(root, by)


def test_first_last_and_top(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(10):
            store.put("big" if number < 8 else "small", b"x" * 100, queue_id=0)
        times = [message.store_timestamp for message in store["big"].messages()]
        (one,) = toolbox.disk_use(tmp_path, top=1)  # beside its writer
    assert (one.keys, one.messages, one.first, one.last) == (
        {"topic": "big"},
        8,
        times[0],
        times[-1],
    )
    assert toolbox.disk_use(tmp_path, top=0) == []


def test_light_queues_have_no_bytes_of_their_own(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        put = store.put("orders", b"x", queue_id=0, lite_topics=["a"])
        size = store.at(put.physical_offset).store_size
    assert actual(tmp_path, ("topic",)) == {("orders",): (1, size)}


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        puts = [store.put("orders", b"x" * 50, queue_id=0) for _ in range(5)]
    (log,) = (tmp_path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(puts[2].physical_offset + 90)
        file.write(b"\xff" * 8)
    assert sum(count for count, _ in actual(tmp_path, ("day",)).values()) == 4


@pytest.mark.parametrize("by", [(), ("topic", "topic"), ("size",), "topics"])
def test_bad_keys(tmp_path: Path, by: Any) -> None:
    with pytest.raises(ValueError, match=r"by must be some of topic queue group day hour tag"):
        toolbox.disk_use(tmp_path, by=by)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(rmqstore.StoreNotFoundError):
        toolbox.disk_use(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_statistics(broker_store: Callable[[str], Any]) -> None:
    root = broker_store("broker-clean").root
    with rmqstore.open(root) as store:
        messages = list(store.scan("orders"))
    sizes = sorted(message.store_size for message in messages)
    times = [message.store_timestamp for message in messages]
    found = toolbox.statistics(root, "orders")
    assert (found.messages, found.bytes) == (len(messages), sum(sizes))
    assert found.tags == Counter(message.tags or "" for message in messages)
    assert found.keys_distinct_estimate == len({key for one in messages for key in one.keys})
    assert sum(size <= found.size_p50 for size in sizes) >= len(sizes) / 2
    assert sum(size < found.size_p99 for size in sizes) <= len(sizes) * 0.99
    assert (found.first, found.last) == (min(times), max(times))
    assert found.rate == pytest.approx(len(messages) * 1000 / (max(times) - min(times)))
    with pytest.raises(rmqstore.TopicNotFoundError):
        toolbox.statistics(root, "missing")


def test_estimate_of_many_keys(tmp_path: Path) -> None:
    count = 20_000
    with rmqstore.open(tmp_path, "a") as store:
        for _ in range(2):  # each key twice
            store.put_many("t", [b""] * count, keys=[f"k{number}" for number in range(count)])
    found = toolbox.statistics(tmp_path, "t")
    assert found.messages == 2 * count
    assert abs(found.keys_distinct_estimate / count - 1) < 0.08  # five standard errors


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.integers(0, 29), min_size=1, max_size=8))
def test_damage_that_is_told_changes_no_sum(
    tmp_path_factory: pytest.TempPathFactory, bad: set[int]
) -> None:
    root = tmp_path_factory.mktemp("damage") / "s"
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=1 << 16)
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(30):
            store.put("orders", b"%d" % number * 3000, queue_id=0, tags=f"t{number % 3}")
        offsets = [message.physical_offset for message in store.scan()]
    for number in bad:
        offset = offsets[number]
        with (root / "commitlog" / f"{offset >> 16 << 16:020d}").open("r+b") as file:
            file.seek((offset & 0xFFFF) + number % 2 * 600)  # the head, or the body
            file.write(b"\xff" * 8)
    with rmqstore.open(root) as store:
        places: list[int] = []
        rows = disk_use_of(store, ("tag",), damaged=lambda error: places.append(error.offset))
        assert rows == disk_use_of(store, ("tag",))
        assert sum(one.messages for one in rows) == 30 - len(bad)
        whole = {offsets[number] for number in bad if offsets[number] < store.recovery.log_end}
    # Of damage side by side the first alone is told; at the log's end opening tells.
    assert set(places) <= whole
    assert places == sorted(places)
    if whole:
        assert min(whole) in places
