"""Extracts and backups, opened by the real DefaultMessageStore 4.9.3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from interop import compare
from interop.driver import SMALL, Driver, copy
from rmqstore import toolbox

MESSAGES = 3000
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=SMALL["mappedFileSizeCommitLog"],
    mapped_file_size_consume_queue=SMALL["mappedFileSizeConsumeQueue"],
    max_hash_slot_num=SMALL["maxHashSlotNum"],
    max_index_num=SMALL["maxIndexNum"],
)


def put(store: rmqstore.MessageStore) -> None:
    for number in range(MESSAGES):
        topic = ("orders", "payments", "audit")[number % 3]
        tags = ("paid", "Aa", None)[number % 5 % 3]
        store.put(topic, b"x" * (number % 700), queue_id=number % 2, keys=f"k{number}", tags=tags)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("copies") / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        for name in ("orders", "payments", "audit"):
            store.create_topic(name, 2)
        put(store)
        with store.consumer("orders", group="billing") as orders:
            messages = iter(orders)
            for _ in range(100):
                next(messages)
            orders.commit()
    return path


@pytest.fixture(scope="module")
def real(java: None) -> Iterator[Driver]:
    with Driver() as driver:
        yield driver


@pytest.mark.parametrize("kind", ["extract", "backup"])
def test_the_real_store_opens_it(
    root: Path, tmp_path: Path, real: Driver, tally: Counter[str], kind: str
) -> None:
    made = tmp_path / "made"
    if kind == "extract":
        with rmqstore.open(root) as store:
            since = store["orders"][0][100].store_timestamp
        toolbox.extract(root, made, ["orders", "audit"], since=since)
    else:
        toolbox.backup(root, made)
        with rmqstore.open(root, "r+") as store:
            put(store)
        toolbox.backup(root, made)
    opened = real.open(copy(made, tmp_path / "real"), SMALL)
    try:
        assert opened["load"], real.log()
        assert opened["start"]
        assert opened["clean"]
        assert opened["behind"] == 0
        units = real.dump()
        with rmqstore.open(made) as store:
            compare.queues(store, units, tally)
            compare.keys(store, units, tally, real)
            compare.tags(store, units, tally)
        if kind == "extract":
            assert {unit.topic for unit in units} == {"orders", "audit"}
            assert min(unit.queue_offset for unit in units) == 0
    finally:
        assert real.shutdown()
