"""Stores with symbolic links, without a log file, and with topic names that RocketMQ has not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rmqstore
from support import oracle
from support.scan_model import FIRST_TIME, write_store
from support.source_model import read_back

pytestmark = pytest.mark.spark

COUNT = 240
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=200,
)
COLUMNS = ["topic", "queue_offset", "body"]
ODD = ["a.b", "with space", "a:b", "*"]
LINKED = [".", "commitlog", f"commitlog/{0:020}", f"commitlog/{16_384:020}", "consumequeue"]
LINKED += ["consumequeue/a.b", "consumequeue/a.b/0", f"consumequeue/a.b/0/{0:020}", "index"]


def make(root: Path) -> Path:
    records = [
        oracle.encode_record(
            ODD[number % 4],
            b"b" * 50,
            queue_id=0,
            queue_offset=number // 4,
            store_timestamp=FIRST_TIME + number,
            properties=b"KEYS\x01k%d" % number,
        )
        for number in range(COUNT)
    ]
    write_store(root, records, CONFIG)
    return root


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("odd") / "store")


@pytest.mark.parametrize("name", LINKED)
def test_a_link_to_another_disk(tmp_path: Path, name: str) -> None:
    root = make(tmp_path / "store")
    part = root / name
    disk = tmp_path / "disk"
    part.rename(disk)
    part.symlink_to(disk)
    for options in ({}, {"scan": "commitlog"}, {"consumeFrom": "first"}):
        rows = read_back({"path": root, "maxPartitionBytes": 4096, **options}, columns=COLUMNS)
        assert len({(row["topic"], row["queue_offset"]) for row in rows}) == len(rows) == COUNT


@pytest.mark.parametrize("topic", ODD)
@pytest.mark.parametrize(
    "options",
    [{}, {"scan": "commitlog"}, {"scan": "consumequeue"}, {"consumeFrom": "first"}],
    ids=str,
)
def test_a_topic_with_an_odd_name(odd: Path, topic: str, options: dict[str, str]) -> None:
    wanted = [(topic, offset) for offset in range(COUNT // 4)]
    rows = read_back({"path": odd, "topics": topic, **options}, columns=COLUMNS)
    assert sorted((row["topic"], row["queue_offset"]) for row in rows) == wanted


@pytest.mark.parametrize("topic", ODD)
def test_a_queue_of_a_topic_with_an_odd_name(odd: Path, topic: str) -> None:
    rows = read_back({"path": odd, "queues": json.dumps({topic: [0]})}, columns=COLUMNS)
    assert [row["topic"] for row in rows] == [topic] * (COUNT // 4)


def test_odd_names_by_key_and_by_time(odd: Path) -> None:
    for number, topic in enumerate(ODD):
        by_key = {"path": odd, "topics": topic, "keys": f"k{number + 8}", "scan": "index"}
        assert [row["queue_offset"] for row in read_back(by_key, columns=COLUMNS)] == [2]
        at = json.dumps({topic: {"0": FIRST_TIME + number + 4 * 50}})
        by_time = {"path": odd, "topics": topic, "consumeFromTimestamp": at}
        assert len(read_back(by_time, columns=COLUMNS)) == COUNT // 4 - 50


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("options", [{}, {"scan": "commitlog"}, {"consumeFrom": "first"}])
def test_a_log_file_missing_between_others(
    tmp_path: Path, options: dict[str, str], *, queues: bool
) -> None:
    root = make(tmp_path / "store")
    with rmqstore.open(root) as store:
        there = [m.body for m in store.scan() if m.physical_offset // 16_384 != 1]
    lost = root / "commitlog" / f"{16_384:020}"
    lost.unlink()
    if not queues:
        shutil.rmtree(root / "consumequeue")
    asked = {"path": root, "maxPartitionBytes": 4096, **options}
    with pytest.raises(rmqstore.StoreCorruptError, match=f"{lost.name}.*the file is missing"):
        read_back(asked, columns=COLUMNS)
    assert len(read_back(asked | {"onCorrupt": "skip"}, columns=COLUMNS)) == len(there) < COUNT
