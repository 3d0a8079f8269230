"""``get`` with tags and SQL92: both must pass, and a call looks at so many units only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import FilterError, GetStatus, MessageStore
from rmqstore.filters import message_passes

COUNT = 2000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filtered") / "store"
    with rmqstore.open(path, "a", config=rmqstore.StoreConfig.small()) as store:
        for n in range(COUNT):
            store.put("t", b"%d" % n, queue_id=0, tags="ab"[n % 2], properties={"n": str(n)})
        store.put("t", b"bare", queue_id=0, uniq_key=False)
    return path


@pytest.fixture(scope="module", params=["r", "r+"])
def store(request: pytest.FixtureRequest, root: Path) -> Iterator[MessageStore]:
    with rmqstore.open(root, request.param) as opened:
        yield opened


def offsets(got: rmqstore.GetResult) -> list[int]:
    return [message.queue_offset for message in got.messages]


def test_both_must_pass(store: MessageStore) -> None:
    got = store.get("t", 0, 0, 5, tags="a", sql="n > 10 AND n <= 15")
    assert offsets(got) == [12, 14]
    got = store.get("t", 0, 0, 2, sql="n > 10")
    assert (offsets(got), got.next_offset, got.status) == ([11, 12], 13, GetStatus.FOUND)
    assert offsets(store.get("t", 0, COUNT - 3, 10, sql="NOT n")) == [*range(COUNT - 3, COUNT)]
    assert offsets(store.get("t", 0, COUNT - 3, 10, sql="n IS NULL")) == [COUNT]
    assert offsets(store.get("t", 0, 0, 2, tags="*", sql="TRUE")) == [0, 1]


@pytest.mark.parametrize(("most", "looked_at"), [(1, 800), (32, 800), (800, 800), (1000, 1000)])
def test_a_call_looks_at_so_many_units(store: MessageStore, most: int, looked_at: int) -> None:
    for filters in ({"sql": "n < 0"}, {"tags": "c"}, {"tags": "a", "sql": "n < 0"}):
        got = store.get("t", 0, 100, most, **filters)
        assert got.status is GetStatus.NO_MATCHED_MESSAGE
        assert (got.messages, got.next_offset) == ([], 100 + looked_at)
    got = store.get("t", 0, 0, 10, sql=f"n = {looked_at}")
    assert offsets(got) == []
    assert offsets(store.get("t", 0, got.next_offset, 10, sql="n = 800")) == [800]


def test_bytes_end_it_too(store: MessageStore) -> None:
    got = store.get("t", 0, 0, 100, max_bytes=1, sql="n > 5")
    assert (offsets(got), got.next_offset) == ([6], 7)


def test_scans_and_single_messages_agree(store: MessageStore) -> None:
    for tags, sql in ((None, "n BETWEEN 5 AND 9"), ("a || c", "n > 1990"), ("b", None)):
        wanted = [
            message.queue_offset
            for message in store["t"][0]
            if message_passes(message, tags=tags, sql=sql)
        ]
        assert wanted
        for where in (("t", 0), ("t",), ()):
            scan = store.scan(*where, columns=["queue_offset"], tags=tags, sql=sql)
            assert scan.count() == len(wanted)
            assert scan.to_table()["queue_offset"].to_pylist() == wanted
            assert [message.queue_offset for message in scan] == wanted
            assert scan.dataset().count_rows() == len(wanted)
            assert (scan.tags, scan.sql) == (tags, sql)
            assert scan.replace(tags=None).sql == sql


def test_what_does_not_parse_is_refused_at_once(store: MessageStore) -> None:
    with pytest.raises(FilterError, match="at character 3"):
        store.get("t", 0, 0, sql="n >")
    with pytest.raises(FilterError, match="at character 3"):
        store.scan(sql="n >")
    with pytest.raises(FilterError, match="found '>'"):
        store.get("unknown", 0, 0, tags="a > b", sql="TRUE")
    with pytest.raises(TypeError, match="sql must be str"):
        store.get("t", 0, 0, sql=5)


def test_a_consumer_takes_what_passes(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "store")
    with (
        rmqstore.open(tmp_path / "store", "r+") as store,
        store.consumer("t", group="g", tags="a", sql="n > 1000 AND n < 1010") as consumer,
    ):
        assert [message.queue_offset for message in consumer] == [1002, 1004, 1006, 1008]
        with pytest.raises(FilterError, match="at character 3"):
            store.consumer("t", group="g", sql="n >")
