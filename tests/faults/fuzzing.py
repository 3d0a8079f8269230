"""Inputs for the parsers: seeds, and what is done with each.

``fuzzing.py TARGET SEED FIRST COUNT`` runs inputs of one of the parsers in C in a process of its
own, which may be one under a sanitizer, and prints how many of them were good.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore import _core
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.topics import TopicTable
from support import oracle

LOG_OFFSET = 0x12345600  # where the fuzzer has its records
TEXTS = [
    b"abc",
    "\xe4\xf6\u20ac\U0001f600 and more".encode(),
    b"\xed\xa0\x80\xff\xc0\x80",
    b"x" * 40,
]
FRAMES = Path(__file__).resolve().parents[1] / "data" / "frames"
NAMES = [b"00000000000000000000", b"00000000001073741824", b"9223372036854775807"]
FILTERS = [
    b"a > 5 AND b BETWEEN -1 AND 9.5e3 OR NOT (n IN ('x', 'it''s') AND c IS NOT NULL)\0"
    b"a\x016\x02b\x011e3\x02n\x01it's\x02c\x01",
    b"-(a NOT BETWEEN b AND 7L) = +-.5 or (a = true) <> (b <= c) /* c */ -- d\n\0"
    b"a\x01TRUE\x02b\x01 0x1.8p3f\x02c\x01\xd9\xa3",
    b"n not in ('1','2','3','4','5','6','7','8','9','10') and a is null = b is null\0n\x01\xff5",
    b"((((((a)))))) AND not not 'true' = a AND 9223372036854775807 > b\0a\x01true\x02b\x01+00",
]
REFUSED = (rmqstore.StoreCorruptError, rmqstore.IncompatibleStoreError)


def records() -> list[bytes]:
    common = {"physical_offset": LOG_OFFSET, "store_timestamp": 1_700_000_000_000}
    keys = b"KEYS\x01a b\x02TAGS\x01x"
    many = b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02KEYS\x01\x02DELAY\x013\x02"
    v6 = {"born_host": "[::1]:5", "store_host": "[fe80::1]:10911"}
    made = [
        rmqstore.encode_record("T", b"", **common),
        rmqstore.encode_record("Topic1", b"hello", properties=keys, queue_id=1, **common),
        rmqstore.encode_record("Topic1", b"z" * 300, properties=many, **v6, **common),
        rmqstore.encode_record("T", zlib.compress(b"a" * 99), sys_flag=1, **common),
    ]
    second = [
        oracle.encode_record("long_topic" * 20, b"hello", properties=keys, version=2, **common),
        oracle.encode_record("T", b"", properties=many, version=2, **v6, **common),
    ]
    checked = [with_checksum(made[1], keys), with_checksum(second[0], keys)]
    return [*made, *second, *checked, b"\0\0\0\x40\xcb\xd4\x31\x94" + bytes(56)]


def with_checksum(record: bytes, properties: bytes) -> bytes:
    """The record as RocketMQ 5 writes it: with a checksum of all before it."""
    head = record[: -len(properties) - 2]
    head += struct.pack(">h", len(properties) + 21) + properties + b"\x02"
    head = struct.pack(">i", len(head) + 20) + head[4:]
    digits = f"{zlib.crc32(head) & 0x7FFFFFFF:010d}"[::-1].encode()
    return head + b"__CRC32#\x01" + digits + b"\x02"


def index_files() -> list[bytes]:
    made = []
    with tempfile.TemporaryDirectory() as directory:
        for slots, keys in ((1, 0), (1, 3), (2, 5), (4, 15)):
            path = Path(directory) / f"2026010112300012{slots + keys:02}"
            index = rmqstore.IndexFile(path, hash_slot_num=slots, index_num=4 * slots, mode="a")
            for key in range(keys):
                index.put_key(f"T#k{key % 3}", 100 * key, 1_700_000_000_000 + key * 1000)
            index.close()
            made.append(path.read_bytes())
    return made


def queues() -> list[bytes]:
    def units(count: int, empty: int) -> bytes:
        return b"".join(struct.pack(">qiq", 100 * n, 100, n) for n in range(count)) + bytes(
            20 * empty
        )

    blank = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    return [units(3, 0), units(1, 5), units(9, 9), units(6, 0), blank * 2 + units(1, 0)]


def watermarks() -> list[bytes]:
    page = struct.pack(">iiqqqqqqqqi12x", 0x524D5157, 1, 1, 12345, 2, 99, 100, 7, 1, 500, 77)
    return [page + struct.pack(">I4x", zlib.crc32(page)), bytes(96)]


def seeds(target: str) -> list[bytes]:
    if target in {"record", "find"}:
        made = records()
        return made if target == "record" else [a + b for a in made for b in made]
    return {
        "index": index_files,
        "queue": queues,
        "checkpoint": watermarks,
        "name": lambda: NAMES,
        "filter": lambda: FILTERS,
        "frame": lambda: [path.read_bytes() for path in sorted(FRAMES.iterdir())],
    }.get(target, lambda: TEXTS)()


# ---- the parsers in Python, and what Python makes of what C has parsed

JSON = [
    '{"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{"Topic1":{"order":'
    'false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"Topic1",'
    '"topicSysFlag":0,"writeQueueNums":4}}}',
    '{"offsetTable":{"orders@g":{0:12,1:-3,2:9223372036854775807}}}',
    '[1,2.5e-3,"\\u00e4\\ud83d\\ude00\\n",null,true,{"a":[{}]}]',
]
CONF = [
    "# a broker\nbrokerName = a\nmapedFileSizeCommitLog=1024\\\n  00\nflushDiskType=SYNC_FLUSH\n",
    "storePathRootDir=/x\\u0041\nmessageDelayLevel=1s 5s\n! note\nmaxMessageSize : 65536\n",
]
SPECIAL = '{}[],:"\\/+-eE.0123456789tfn=#!\n\r\t \x00\x7f\u2028\ud800\ud83d\U0001f600us'


def mutated(draw: random.Random, texts: list[str]) -> str:
    """One of the texts with up to five changes."""
    text = draw.choice(texts)
    for _ in range(draw.randrange(6)):
        at = draw.randrange(len(text) + 1)
        end = min(len(text), at + draw.choice([0, 1, 1, 1, 2, 8, 40]))
        kind = draw.randrange(5)
        if kind < 2:
            new = "".join(draw.choice(SPECIAL) for _ in range(draw.choice([0, 1, 1, 2, 5])))
        elif kind == 2:
            new = str(draw.choice([-1, 0, 2**31, 2**63, 2**64, 10**30, 1e400, -0.0, 1e22]))
        elif kind == 3:
            other = draw.choice(texts)
            start = draw.randrange(len(other))
            new = other[start : start + draw.randrange(40)]
        else:
            new = text[at:end] * draw.choice([2, 3, 70])
        text = text[:at] + new + text[end:]
    return text


def json_text(draw: random.Random, directory: Path) -> bool:
    text = mutated(draw, JSON)
    try:
        value = fastjson.loads(text)
    except fastjson.JsonError:
        return False
    try:
        written = fastjson.dumps(value)
    except ValueError:  # 1e400 is read as infinite
        assert "inf" in repr(value), text
        return False
    again = fastjson.loads(written)
    assert fastjson.dumps(again) == written, text
    return True


def topics_file(draw: random.Random, directory: Path) -> bool:
    (directory / "config").mkdir(exist_ok=True)
    path = directory / "config" / "topics.json"
    path.write_bytes(mutated(draw, JSON[:1]).encode("utf-8", "surrogatepass"))
    path.with_name("topics.json.bak").unlink(missing_ok=True)
    try:
        table = TopicTable.load(directory)
    except rmqstore.StoreCorruptError:
        return False
    for topic in table:
        assert 0 <= topic.read_queue_nums < 1 << 31
    return True


def broker_conf(draw: random.Random, directory: Path) -> bool:
    path = directory / "broker.conf"
    path.write_bytes(mutated(draw, CONF).encode("utf-8", "surrogatepass"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rmqstore.StoreConfig.from_file(path)
    except ValueError:
        return False
    return True


def message(draw: random.Random, directory: Path) -> bool:
    data = _core._fuzz_input("record", _RECORDS, draw.getrandbits(40), 0)
    try:
        found = rmqstore.decode_record(data)
    except rmqstore.StoreCorruptError:
        return False
    for name in dir(type(found)):
        if not name.startswith("_") and not callable(getattr(type(found), name)):
            try:
                getattr(found, name)
            except rmqstore.StoreError:  # contradicts itself, or needs a package
                assert name == "body", name
    return True


def index_file(draw: random.Random, directory: Path) -> bool:
    data = _core._fuzz_input("index", _INDEXES, draw.getrandbits(40), 0)
    slots = (len(data) - 40) // 84
    path = directory / "20260101123000123"
    path.write_bytes(data)
    mode = draw.choice(["r", "r", "r+"])
    try:
        index = rmqstore.IndexFile(path, hash_slot_num=slots, index_num=4 * slots, mode=mode)
    except REFUSED:
        return False
    try:
        for key in ("T#k0", "T#k1", "T#none"):
            assert len(index.select_phy_offset(key)) <= 4 * slots
        index.select_many(["T#k0", "T#k2"])
    except rmqstore.StoreCorruptError:
        return False
    finally:
        index.close()
    return True


def queue_file(draw: random.Random, directory: Path) -> bool:
    data = _core._fuzz_input("queue", _QUEUES, draw.getrandbits(40), 0)
    path = directory / f"{0:020}"
    path.write_bytes(data)
    try:
        mode = draw.choice(["r", "r+"])
        queue = rmqstore.ConsumeQueue(directory, file_size=len(data), mode=mode)
    except REFUSED:
        return False
    try:
        assert 0 <= queue.min_offset <= queue.max_offset <= len(data) // 20
        queue.units(queue.min_offset, queue.max_offset)
    finally:
        queue.close()
    return True


_RECORDS, _INDEXES, _QUEUES = records(), index_files(), queues()
PYTHON: dict[str, Callable[[random.Random, Path], bool]] = {
    "json": json_text,
    "topics.json": topics_file,
    "broker.conf": broker_conf,
    "message": message,
    "index file": index_file,
    "queue file": queue_file,
}


def run_python(target: str, seed: str, first: int, count: int, directory: Path) -> int:
    """Run inputs of a parser in Python; AssertionError names the first one that it fails on."""
    taken = 0
    for number in range(first, first + count):
        directory.mkdir(exist_ok=True)
        try:
            taken += PYTHON[target](random.Random(f"{seed}-{number}"), directory)
        except Exception as error:
            raise AssertionError(f"{target}, seed {seed}, input {number}: {error!r}") from error
    return taken


def main(target: str, seed: str, first: str, count: str) -> None:
    made: dict[str, Any] = {"taken": None}
    made["taken"] = _core._fuzz(target, seeds(target), int(seed), int(first), int(count))
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
