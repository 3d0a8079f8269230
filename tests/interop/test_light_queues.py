"""Multi-dispatch beside the real store: records, units and recoveries of one read by the other."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop.driver import Driver, Unit, copy
from support.light_model import LightModel, named

pytestmark = pytest.mark.long

SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
REAL = {**SIZES, "enableMultiDispatch": True, "enableLmq": True}
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=100,
    max_index_num=400,
    enable_multi_dispatch=True,
    enable_lmq=True,
)
NAMES = [
    ["%LMQ%a"], ["%LMQ%a", "%LMQ%b"], ["other"], ["%LMQ%c", "other", "%LMQ%a"], [],
    ["%LMQ%b", "%LMQ%b"],
]  # fmt: skip
ROWS = 200


def rows_of(seed: str) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    rows = []
    for n in range(ROWS):
        names = draw.choice(NAMES)
        properties = {"KEYS": f"k{n}", "WAIT": "true", "UNIQ_KEY": f"{n:032X}"}
        if draw.random() < 0.7:
            properties["TAGS"] = draw.choice(["TagA", "paid", "\u00e4\U0001f600"])
        if names:
            properties["INNER_MULTI_DISPATCH"] = ",".join(names)
        rows.append({
            "topic": draw.choice(["orders", "t"]),
            "queue_id": draw.randrange(3),
            "body": draw.randbytes(draw.randrange(300)),
            "properties": properties,
        })  # fmt: skip
    return rows


def units_of(store: Any) -> set[tuple[str, int, int, int, int, int]]:
    return {
        (name, queue_id, offset, *map(int, unit))
        for name, topic in store.topics.items()
        for queue_id, queue in topic.items()
        for offset, unit in enumerate(queue.units(), queue.min_offset)
    }


def compared_units(dumped: list[Unit], store: Any) -> int:
    """The real store's units are ours, and each message of ours is what its record is there."""
    ours = units_of(store)
    assert ours == {tuple(unit)[:6] for unit in dumped}
    for unit in dumped:
        message = store[unit[0]][unit[1]][unit[2]]
        assert message.physical_offset == unit[3]
        assert message.properties == unit[6]["properties"]
    return len(ours)


def stored(store: Any, rows: list[dict[str, Any]]) -> None:
    """Put them as a broker's front end does, the light ones also by ``lite_topics``."""
    for row in rows:
        store.create_topic(row["topic"], 3)
    for n, row in enumerate(rows):
        properties = dict(row["properties"])
        names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
        if n % 2 and all(name.startswith("%LMQ%") for name in names):
            store.put(row["topic"], row["body"], queue_id=row["queue_id"], lite_topics=names,
                      tags=properties.get("TAGS"), keys=properties["KEYS"])  # fmt: skip
        else:
            text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
            store.core.put_stored(row["topic"], row["queue_id"], row["body"], text)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_ours_reads_and_recovers_what_the_real_store_wrote(
    end: str, start: Callable[[], Driver], tmp_path: Path, seed: str, compared: Any
) -> None:
    root = tmp_path / "store"
    real = start()
    real.reset()
    real.open(root, REAL)
    put = real.append(rows_of(seed))
    assert {one.status for one in put} == {"PUT_OK"}
    dumped = real.dump()
    assert {unit[0] for unit in dumped} == {"orders", "t", "%LMQ%a", "%LMQ%b", "%LMQ%c", "other"}
    real.flush()
    if end == "close":
        real.shutdown()
    else:
        real.kill()
    for how in ("there", "all", "light"):
        directory = copy(root, tmp_path / how)
        if how == "all":
            shutil.rmtree(directory / "consumequeue")
        elif how == "light":
            for path in (directory / "consumequeue").glob("%LMQ%*"):
                shutil.rmtree(path)
        if not (how == "light" and end == "close"):  # "r" takes what a clean exit left
            with rmqstore.open(directory, "r") as store:
                compared("light units, derived", compared_units(dumped, store))
        with rmqstore.open(directory, "r+", config=CONFIG) as store:
            compared("light units, recovered", compared_units(dumped, store))
            assert store.stats()["skipped_records"] == 0
            before = {name: store[name][0].max_offset for name in ("%LMQ%a", "%LMQ%b")}
            done = store.put("t", b"ours", lite_topics=["a", "b"])
            assert named(store.at(done.physical_offset)) == before
            assert store["%LMQ%a"][0][-1].body == b"ours"
        ours = sorted(units_of(rmqstore.open(directory)))
        real = start()
        real.open(directory, REAL)
        assert sorted(tuple(unit)[:6] for unit in real.dump()) == ours
        real.shutdown()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_the_real_store_reads_and_rebuilds_what_ours_wrote(
    end: str, start: Callable[[], Driver], tmp_path: Path, seed: str, compared: Any
) -> None:
    root = tmp_path / "store"
    rows = rows_of(seed)
    child = os.fork()
    if child == 0:
        try:
            store = rmqstore.open(root, "a", config=CONFIG)
            stored(store, rows)
            if end == "close":
                store.close()
            else:
                store.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)
    real = start()
    real.reset()
    for how in ("there", "all"):
        directory = copy(root, tmp_path / how)
        if how == "all":
            shutil.rmtree(directory / "consumequeue")
        opened = real.open(directory, REAL)
        assert opened["load"]
        with rmqstore.open(root, "r") as store:
            compared("light units, rebuilt by the real store", compared_units(real.dump(), store))
        got = real.get("%LMQ%a", 0, 0)
        with rmqstore.open(root, "r") as store:
            ours = store.get("%LMQ%a", 0, 0, len(got.records))
            assert [m.physical_offset for m in ours.messages] == [
                one["physical_offset"] for one in got.records
            ]
        real.shutdown()


def test_properties_are_made_as_the_real_store_makes_them(
    start: Callable[[], Driver], tmp_path: Path, seed: str
) -> None:
    """The same fields, without WAIT; only the order is a hash map's there."""
    rows = rows_of(seed)
    real = start()
    real.reset()
    real.open(tmp_path / "theirs", REAL)
    theirs = [one["properties"] for one, _ in
              real.records([put.physical_offset for put in real.append(rows)])]  # fmt: skip
    real.shutdown()
    with rmqstore.open(tmp_path / "ours", "a", config=CONFIG) as store:
        for row, expected in zip(rows, theirs, strict=True):
            text = "\x02".join(f"{name}\x01{value}" for name, value in row["properties"].items())
            done = store.core.put_stored(row["topic"], row["queue_id"], row["body"], text)
            assert store.at(done.physical_offset).properties == expected


def test_light_offsets_that_the_real_store_begins_again(
    start: Callable[[], Driver], tmp_path: Path
) -> None:
    """4.9.3 forgets them when it starts; ours then has the very units that it has."""
    root = tmp_path / "store"
    model = LightModel()
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for n in range(5):
            store.put("t", b"%d" % n, queue_id=0, lite_topics=["a"])
            model.put(b"%d" % n, ["a"])
    real = start()
    real.reset()
    real.open(root, REAL)
    real.append([{"topic": "t", "queue_id": 0, "body": b"theirs %d" % n,
                  "properties": {"INNER_MULTI_DISPATCH": "%LMQ%a"}} for n in range(7)])  # fmt: skip
    dumped = real.dump()
    real.shutdown()
    for what in ("there", "all"):
        directory = copy(root, tmp_path / what)
        if what == "all":
            shutil.rmtree(directory / "consumequeue")
        for mode in ("r", "r+"):
            with rmqstore.open(directory, mode, config=CONFIG) as store:
                assert units_of(store) == {tuple(unit)[:6] for unit in dumped}
                assert len(store["t"][0]) == 12
                assert [m.body for m in store["%LMQ%a"][0]] == [
                    b"0", b"1", b"2", b"3", b"4", b"theirs 0", b"theirs 6"
                ]  # fmt: skip
