"""consumequeue_ext beside the real ConsumeQueueExt, BloomFilter and bit maps of 4.9.3."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import rmqstore
from interop.broker import Broker
from interop.driver import SMALL, Driver, ExtUnit
from rmqstore import StoreConfig
from rmqstore.brokerfiles.bloom import BloomFilter
from rmqstore.brokerfiles.consumerfilters import ConsumerFilterTable
from support import oracle_ext
from support.oracle_ext import is_address

pytestmark = pytest.mark.long

JAVA = {**SMALL, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 2000}
OURS = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=1000,
    max_index_num=4000,
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=2000,
)
TAGS = [None, "TagA", "TagB", "Aa", "BB"]  # the last two have one hash
MESSAGES = 600


def message(draw: random.Random, n: int) -> dict[str, Any]:
    properties = {"n": str(n)}
    tags = draw.choice(TAGS)
    if tags is not None:
        properties["TAGS"] = tags
    if draw.random() < 0.05:
        properties["DELAY"] = str(draw.randrange(16, 19))
    return {
        "topic": draw.choice(["T", "orders"]),
        "queue_id": draw.randrange(3),
        "body": b"%d" % n,
        "properties": properties,
    }


def put(store: rmqstore.MessageStore, one: dict[str, Any]) -> None:
    properties = dict(one["properties"])
    store.put(
        one["topic"],
        one["body"],
        queue_id=one["queue_id"],
        tags=properties.pop("TAGS", None),
        delay_level=int(properties.pop("DELAY", 0)),
        properties=properties,
    )


def by_ours(root: Path, mode: str, config: StoreConfig | None) -> dict[Any, ExtUnit]:
    """Every unit as the real store's ``ext_units`` has it."""
    found = {}
    with rmqstore.open(root, mode, config=config) as store:
        for topic in store.topics.values():
            for queue_id, queue in topic.items():
                low = queue.min_offset
                rows = zip(queue.units()["tags_code"].tolist(), queue.ext_units(), strict=True)
                for n, (code, ext) in enumerate(rows, low):
                    size = int(ext["bitmap_size"])
                    found[topic.name, queue_id, n] = (
                        ExtUnit(code, None, None, None)
                        if size < 0
                        else ExtUnit(
                            code,
                            int(ext["tags_code"]),
                            int(ext["store_timestamp"]),
                            ext["bitmap"].tobytes()[:size],
                        )
                    )
    return found


def filtered(store: Any, tags: str) -> list[tuple[str, int, int]]:
    """Places of the messages that both tell with a tag filter."""
    found = []
    for topic in ("T", "orders"):
        for queue_id in range(3):
            at = 0
            while True:
                got = store.get(topic, queue_id, at, 32, tags=tags)
                rows = getattr(got, "records", None)
                if rows is None:
                    found += [(topic, queue_id, one.queue_offset) for one in got.messages]
                else:
                    found += [(topic, queue_id, one["queue_offset"]) for one in rows]
                if got.next_offset <= at or got.next_offset >= got.max_offset:
                    break
                at = got.next_offset
    return found


def test_bloom_filters_are_the_same(
    real: Driver, compared: Callable[[str, int], None], seed: str
) -> None:
    draw = random.Random(seed)
    letters = "abz%|-_~\u00e9\u4e2d\U0001f600"
    asked = [(rate, n, "g#t") for rate in range(1, 100) for n in (1, 3, 32, 500)]
    for length in range(70):
        text = "".join(draw.choice(letters) for _ in range(length))
        asked.append((draw.randrange(1, 100), draw.randrange(1, 200), f"{text}#T{length}"))
    for given, (k, m, bits) in zip(asked, real.bloom(asked), strict=True):
        bloom = BloomFilter(*given[:2])
        group, _, topic = given[2].partition("#")
        assert (bloom.positions_each, bloom.bits) == (k, m), given
        assert bloom.positions(group, topic) == bits, given
    compared("ext bloom filters", len(asked))


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_ours_reads_what_the_real_store_wrote(
    real: Driver, tmp_path: Path, end: str, compared: Callable[[str, int], None], seed: str
) -> None:
    draw = random.Random(f"{seed}-{end}")
    root = tmp_path / "s"
    real.open(root, JAVA)
    real.append([message(draw, n) for n in range(MESSAGES)])
    expected = real.ext_units()
    found = {tags: filtered(real, tags) for tags in ("TagA", "TagA || TagB")}
    beside = by_ours(root, "r", None)
    if end == "killed":
        killed = tmp_path / "killed"
        real.flush()
        shutil.copytree(root, killed)
        root = killed
    real.shutdown()
    assert len(expected) == MESSAGES
    assert all(is_address(one.address) for one in expected.values())
    assert beside == expected
    for mode, config in (("r", None), ("r", OURS), ("r+", None), ("r+", OURS)):
        assert by_ours(root, mode, config) == expected, (mode, config)
        with rmqstore.open(root, mode, config=config) as store:
            for tags, places in found.items():
                assert filtered(store, tags) == places
        compared("ext units of the real store", len(expected))
    oracle_ext.check_ext(root)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_the_real_store_reads_what_ours_wrote(
    real: Driver, tmp_path: Path, end: str, compared: Callable[[str, int], None], seed: str
) -> None:
    draw = random.Random(f"{seed}-{end}-ours")
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=OURS) as store:
        store.core.set_bitmap_filters(
            {"T": [("TAGS = 'TagA'", [3, 17, 90]), ("n > 300", [4, 60, 111])]}, 14
        )
        for n in range(MESSAGES):
            put(store, message(draw, n))
        store.get("T", 0, 1 << 40)
        if end == "killed":
            shutil.copytree(root, tmp_path / "killed")
            root = tmp_path / "killed"
    ours = by_ours(root, "r", None)
    assert len(ours) == MESSAGES
    assert all(is_address(one.address) for one in ours.values())
    opened = real.open(root, JAVA)
    assert opened["load"]
    assert real.ext_units() == ours
    with rmqstore.open(root, "r") as store:
        for tags in ("TagA", "TagA || TagB", "nobody"):
            assert filtered(real, tags) == filtered(store, tags)
    compared("ext units of ours", len(ours))
    real.append([message(draw, MESSAGES + n) for n in range(100)])
    theirs = real.ext_units()
    real.shutdown()
    assert len(theirs) == MESSAGES + 100
    assert by_ours(root, "r", None) == theirs
    assert {key: theirs[key] for key in ours} == ours


def test_in_turns(
    real: Driver, tmp_path: Path, compared: Callable[[str, int], None], seed: str
) -> None:
    """Each continues the other's, with ext units and without, closed and killed."""
    draw = random.Random(f"{seed}-turns")
    root = tmp_path / "s"
    count = 0
    for turn in range(12):
        batch = [message(draw, count + n) for n in range(draw.randrange(1, 120))]
        count += len(batch)
        on = draw.random() < 0.7
        killed = draw.random() < 0.4
        if turn % 2:
            config = OURS if on else OURS.replace(enable_consume_queue_ext=False)
            with rmqstore.open(root, "a", config=config) as store:
                for one in batch:
                    put(store, one)
                store.get("T", 0, 1 << 40)
                if killed:
                    shutil.copytree(root, tmp_path / f"killed{turn}")
        else:
            real.open(root, {**JAVA, "enableConsumeQueueExt": on})
            real.append(batch)
            real.flush()
            if killed:
                shutil.copytree(root, tmp_path / f"killed{turn}")
            real.shutdown()
        if killed:
            root = tmp_path / f"killed{turn}"
    with rmqstore.open(root, "r+", config=OURS) as store:
        put(store, message(draw, count))
        ours = filtered(store, "TagA || TagB")
    real.open(root, JAVA)
    units = real.ext_units()
    assert filtered(real, "TagA || TagB") == ours
    real.shutdown()
    assert by_ours(root, "r", None) == units
    assert len(units) == count + 1
    named = [one for one in units.values() if is_address(one.address)]
    assert all(one.store_timestamp is not None for one in named)
    oracle_ext.check_ext(root, orphans=True, behind=True)
    compared("ext units after turns", len(named))


SQL = {
    "g1": "n > 20",
    "g2": "TAGS = 'TagA' OR n BETWEEN 5 AND 9",
    "g3": "missing IS NULL",
    "g4": "TAGS IN ('TagB', 'Aa') AND NOT (n < 10)",
}
BIT_MAPS = {"enableCalcFilterBitMap": True}


def bits_of(bitmap: bytes) -> set[int]:
    return {n for n in range(8 * len(bitmap)) if bitmap[n // 8] >> n % 8 & 1}


def test_a_broker_and_its_bit_maps(
    java: None, tmp_path: Path, compared: Callable[[str, int], None], seed: str
) -> None:
    """What its bit maps say of SQL consumers, ours says of the same messages, and it reads ours."""
    draw = random.Random(f"{seed}-broker")
    root, again = tmp_path / "s", tmp_path / "again"
    probe = {"topic": "T", "queue_id": 0, "body": b"-", "tags": "TagA", "properties": {"n": "30"}}
    sent = [message(draw, n) | {"topic": "T"} for n in range(100)]
    for one in sent:
        one["tags"] = one["properties"].pop("TAGS", None)
        one["properties"].pop("DELAY", None)
    bloom = BloomFilter()
    # Two messages that all four groups want between them, and the bits of those.
    probes = [probe, probe | {"tags": "TagB"}]
    every = [
        {at for group in groups for at in bloom.positions(group, "T")}
        for groups in (("g1", "g2", "g3"), ("g1", "g3", "g4"))
    ]
    with Broker() as broker:
        broker.start(root, JAVA, BIT_MAPS)
        broker.topics({"T": 3})
        for group, text in SQL.items():
            broker.consumer_start(group, tags={}, sql={"T": text})
        until = time.monotonic() + 60
        newest: list[ExtUnit] = []
        while len(newest) < 2 or not all(
            bits_of(one.bitmap or b"") >= bits for one, bits in zip(newest, every, strict=True)
        ):
            assert time.monotonic() < until, newest
            broker.send(probes)
            time.sleep(0.1)
            units = broker.ext_units()
            newest = [units[key] for key in sorted(units) if key[:2] == ("T", 0)][-2:]
        broker.send(sent)
        broker.flush()
        units = {key: one for key, one in broker.ext_units().items() if key[0] == "T"}
        for group in SQL:
            broker.consumer_stop(group)
        assert broker.shutdown()

        table = ConsumerFilterTable.load(root, now=0)
        assert {one.consumer_group: one.expression for one in table} == SQL
        for one in table:
            assert list(one.bit_pos) == bloom.positions(one.consumer_group, "T")
        (again / "config").mkdir(parents=True)
        shutil.copy(root / "config/consumerFilter.json", again / "config")
        config = OURS.replace(enable_calc_filter_bit_map=True)
        with rmqstore.open(root, "r") as theirs, rmqstore.open(again, "a", config=config) as ours:
            for queue in theirs["T"].values():
                for one in queue:
                    tags = one.properties.get("TAGS")
                    ours.put("T", b"-", queue_id=one.queue_id, tags=tags,
                             properties={"n": one.properties["n"]})  # fmt: skip
        mine = {key: one for key, one in by_ours(again, "r", None).items() if key[0] == "T"}
        assert mine.keys() == units.keys()
        whole = [key for key, one in units.items() if one.bitmap]
        assert len(whole) >= len(sent)
        skipped = len(units) - len(whole) + 4  # while its consumers came, one by one
        differing = [key for key in whole if mine[key].bitmap != units[key].bitmap]
        assert len(differing) <= skipped, differing
        compared("ext bit maps", len(whole))

        broker.start(again, JAVA, BIT_MAPS)
        assert {key: one for key, one in broker.ext_units().items() if key[0] == "T"} == mine
        for group, text in SQL.items():
            broker.consumer_start(group, tags={}, sql={"T": text})
        wanted = {}
        with rmqstore.open(again, "r") as store:
            for group, text in SQL.items():
                rows = store.scan("T", sql=text, columns=["queue_id", "queue_offset"])
                table = pyarrow.table(rows).to_pydict()
                wanted[group] = set(zip(table["queue_id"], table["queue_offset"], strict=True))
        got: dict[str, set[tuple[int, int]]] = {group: set() for group in SQL}
        until = time.monotonic() + 60
        while got != wanted and time.monotonic() < until:
            for group in SQL:
                rows = broker.consumer_rows(group)
                got[group] |= {(one.queue_id, one.queue_offset) for one in rows}
            time.sleep(0.1)
        assert got == wanted, broker.log()[-3000:]
        broker.shutdown()
