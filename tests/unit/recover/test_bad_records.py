"""Bytes in the files that contradict themselves: refused, or cut with a copy, never believed.

Every case opens, reads and queries in a child with a limit of memory and time.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import rmqstore
from crash.checks import environment
from rmqstore import StoreCorruptError
from support import oracle, oracle_store
from support.store_reader import Looker

LOG_SIZE = 8192
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=40,
)
COUNT = 120
LOOKERS: list[Looker] = []  # the one that runs
SIZE, MAGIC, CRC, QUEUE_ID, QUEUE_OFFSET, PLACE, SYS_FLAG, BODY = 0, 4, 8, 12, 20, 28, 36, 84


def body_of(number: int) -> str:
    return f"{number:03d}" * 30


@pytest.fixture(scope="module", autouse=True)
def looker():
    LOOKERS.append(Looker(environment()))
    yield
    LOOKERS.pop().close()


def look(root, mode="r", fill="raise", verify="tail"):
    """What a child with bounded time and memory finds; no file goes away."""
    sizes = {
        "mapped_file_size_commit_log": LOG_SIZE,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 10,
        "max_index_num": 40,
    }
    before = oracle_store.snapshot(root)
    said = LOOKERS[-1].look(str(root), mode, fill, verify, sizes, COUNT)
    after = oracle_store.snapshot(root)
    if mode == "r":
        assert after == before
    # an index file that cannot be trusted may be made anew, under another name
    gone = {name for name in before.keys() - after.keys() if not name.startswith("index/")}
    assert gone <= {"abort"}, gone
    return said


def right(said) -> set[int]:
    """The numbers of the messages found, each of which must be right and there once."""
    numbers = []
    for topic, queue_id, queue_offset, body in said["bodies"]:
        if body == "next":
            continue
        number = int(body[:3])
        assert (topic, body) == ("Topic1", body_of(number))
        assert (queue_id, queue_offset) == (number % 2, number // 2)
        numbers.append(number)
    for number, bodies in enumerate(said["keys"]):
        assert bodies in ([], [body_of(number)])
    assert len(set(numbers)) == len(numbers)
    return set(numbers)


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    root = tmp_path_factory.mktemp("closed") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("Topic1", body_of(number).encode(), queue_id=number % 2, keys=f"k{number}")
    return root


@pytest.fixture(params=["watermark", "broker", "killed"])
def kind(request):
    """Closed by us; closed by a broker (no watermark); killed early (no watermark, `abort`)."""
    return request.param


@pytest.fixture
def root(closed, tmp_path, kind):
    root = tmp_path / "store"
    shutil.copytree(closed, root)
    if kind != "watermark":
        page = (root / "checkpoint").read_bytes()
        (root / "checkpoint").write_bytes(page[:2048] + bytes(2048))
    if kind == "killed":
        (root / "abort").touch()
    return root


@pytest.fixture
def clean(closed, tmp_path):
    shutil.copytree(closed, tmp_path / "store")
    return tmp_path / "store"


def records(root) -> list[oracle.Record]:
    return list(oracle_store.walk_log(root / "commitlog"))


def poke(root, offset: int, data: bytes) -> None:
    """Write bytes into the log, by its own offsets."""
    start = offset - offset % LOG_SIZE
    with (Path(root) / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        file.write(data)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


DAMAGE = {
    "size 0": (SIZE, i32(0)),
    "size -1": (SIZE, i32(-1)),
    "size -2^31": (SIZE, i32(-(1 << 31))),
    "size 2^31-1": (SIZE, i32((1 << 31) - 1)),
    "size 1": (SIZE, i32(1)),
    "size larger than the room": (SIZE, i32(LOG_SIZE)),
    "magic": (MAGIC, b"abcd"),
    "magic 0": (MAGIC, i32(0)),
    "a filler that is too short": (SIZE, i32(100) + i32(oracle.MAGIC_BLANK)),
    "a filler of negative size": (SIZE, i32(-100) + i32(oracle.MAGIC_BLANK)),
    "crc": (CRC, b"\1\2\3\4"),
    "another's position": (PLACE, struct.pack(">q", 0)),
    "position beyond": (PLACE, struct.pack(">q", 1 << 60)),
    "v6 bits": (SYS_FLAG, i32(1 << 4 | 1 << 5)),
    "body of negative length": (BODY, i32(-5)),
    "body longer than the record": (BODY, i32(5000)),
    "body of 2^31-1": (BODY, i32((1 << 31) - 1)),
    "body shorter": (BODY, i32(3)),
    "a bit of the body": (BODY + 10, b"\xff"),
    "topic of negative length": (BODY + 4 + 90, b"\xff"),
    "topic longer than the record": (BODY + 4 + 90, b"\x7f"),
    "properties of negative length": (BODY + 4 + 90 + 7, b"\xff\xff"),
    "properties longer than the record": (BODY + 4 + 90 + 7, b"\x7f\xff"),
    "all zero": (SIZE, bytes(200)),
}


@pytest.mark.long
@pytest.mark.parametrize("what", DAMAGE)
def test_s01_s18_s24_s25_damage_in_the_middle(root, kind, what):
    """One record of the last file but one is lost at most, and who writes is told."""
    record = records(root)[-40]
    number = int(record.body[:3])
    at, data = DAMAGE[what]
    poke(root, record.physical_offset + at, data)
    damaged = oracle_store.snapshot(root)
    everything = set(range(COUNT))

    said = look(root, "r")
    assert said["opened"], said
    assert right(said) == everything - {number}

    said = look(root, "r+", verify="full")
    assert said.get("error", [""])[0] == "StoreCorruptError", said
    assert str(record.physical_offset) in said["error"][1]
    after = oracle_store.snapshot(root)
    for name, entry in damaged.items():
        if name != "lock":
            assert (after[name][1], after[name][3]) == (entry[1], entry[3]), name

    said = look(root, "r+", fill="fill", verify="full")
    assert said["opened"], said
    assert right(said) == everything - {number}
    assert len(said["saved"]) == 1
    saved = Path(said["saved"][0]).read_bytes()
    assert data in saved[at : at + len(data)] or saved[at : at + len(data)] == data
    assert len(saved) == record.store_size
    said = look(root, "r+", verify="full")  # and now it is as good as any
    assert said["opened"]
    assert right(said) == everything - {number}


@pytest.mark.long
@pytest.mark.parametrize("what", DAMAGE)
def test_s24_damage_at_the_end(clean, what):
    """The last record, of a store that was killed: cut, saved, and nothing else."""
    record = records(clean)[-1]
    at, data = DAMAGE[what]
    poke(clean, record.physical_offset + at, data)
    (clean / "abort").touch()
    (clean / "checkpoint").unlink()
    said = look(clean, "r")
    assert right(said) == set(range(COUNT - 1))
    said = look(clean, "r+")
    assert said["opened"], said
    assert right(said) == set(range(COUNT - 1))
    with rmqstore.open(clean, "r+", config=CONFIG) as store:
        put = store.put("Topic1", b"next", queue_id=1)
        assert (put.physical_offset, put.queue_offset) == (record.physical_offset, COUNT // 2 - 1)
    oracle_store.check_store(clean, slot_num=10)


def test_s02_what_was_cut_does_not_come_back(clean, tmp_path):
    """The tail behind a torn record is erased before the first write."""
    torn, *behind = records(clean)[-20:]
    for record in (torn, *behind):  # none of them is valid, or none would be cut
        poke(clean, record.physical_offset + BODY + 10, b"\xff")
    (clean / "abort").touch()
    (clean / "checkpoint").unlink()
    with rmqstore.open(clean, "r+", config=CONFIG) as store:
        put = store.put("Topic1", torn.body, queue_id=torn.queue_id, keys=torn.keys)
        assert put.physical_offset == torn.physical_offset
        killed = tmp_path / "killed"
        shutil.copytree(clean, killed)
    said = look(killed, "r+")
    assert right(said) == set(range(COUNT - 19))


@pytest.mark.parametrize("sector", range(1, 7))
def test_s16_a_sector_that_never_reached_the_disk(tmp_path, sector):
    """A record of 3,800 bytes, of which 512 are zero: not believed, wherever they are."""
    root = tmp_path / "store"
    properties = {f"name{i}": "value" * 10 for i in range(20)}
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("Topic1", b"x", queue_id=0)
        put = store.put("Topic1", b"y" * 2300, queue_id=0, properties=properties)
        size = store.at(put.physical_offset).store_size
    first = -(-put.physical_offset // 512)
    place = (first + sector - 1) * 512
    assert place + 512 <= put.physical_offset + size
    poke(root, place, bytes(512))
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    for mode in ["r", "r+"]:
        with rmqstore.open(root, mode, config=CONFIG if mode == "r+" else None) as store:
            assert [m.body for m in store["Topic1"][0]] == [b"x"]


def test_s17_units_beyond_the_log(clean):
    """The log lost its end, the queues have it still: those units are no messages."""
    lost = records(clean)[-7:]
    for record in lost:
        poke(clean, record.physical_offset, bytes(record.store_size))
    (clean / "abort").touch()
    (clean / "checkpoint").unlink()
    assert right(look(clean, "r")) == set(range(COUNT - 7))
    assert right(look(clean, "r+")) == set(range(COUNT - 7))
    with rmqstore.open(clean, "r+", config=CONFIG) as store:
        put = store.put("Topic1", b"next", queue_id=lost[0].queue_id)
        assert put.queue_offset == lost[0].queue_offset
        assert put.physical_offset == lost[0].physical_offset
    oracle_store.check_store(clean, slot_num=10)


@pytest.mark.parametrize(
    "unit",
    [(1 << 62, 100, 0), (-1, 100, 0), (0, 1 << 30, 0), (0, -1, 0), (5, 100, 0), (0, 221, 0)],
)
def test_s17_a_unit_that_points_nowhere(clean, unit):
    path = clean / "consumequeue/Topic1/0" / f"{400:020d}"
    with path.open("r+b") as file:
        file.seek(100)
        file.write(oracle.pack_unit(*unit))
    lost = {2 * (500 // 20)}
    assert right(look(clean, "r")) >= set(range(COUNT)) - lost
    said = look(clean, "r+", verify="full")
    assert said["opened"], said
    assert right(said) == set(range(COUNT))


def test_s26b_a_record_whose_topic_is_a_path(clean, tmp_path):
    last = records(clean)[-1]
    at = last.physical_offset + last.store_size
    for number, topic in enumerate(["../../evil", "%RETRY%sub/../../../x1", "a/b", "..", "a\0b"]):
        record = oracle.encode_record(
            topic,
            b"evil",
            queue_offset=number,
            physical_offset=at,
            store_timestamp=last.store_timestamp,
            properties=b"KEYS\x01evil",
        )
        poke(clean, at, record)
        at += len(record)
    good = oracle.encode_record(
        "Topic1",
        b"next",
        queue_id=0,
        queue_offset=COUNT // 2,
        physical_offset=at,
        store_timestamp=last.store_timestamp,
    )
    poke(clean, at, good)
    before = {path.name for path in tmp_path.iterdir()}
    (clean / "abort").touch()
    for mode in ["r", "r+"]:
        with rmqstore.open(clean, mode, config=None if mode == "r" else CONFIG) as store:
            assert set(store.topics) == {"Topic1"}
            assert store["Topic1"][0][-1].body == b"next"
            assert store.at(last.physical_offset + last.store_size).topic == "../../evil"
            if mode == "r+":
                assert store.stats()["skipped_records"] == 5
                assert store.put("Topic1", b"next", queue_id=0).queue_offset == COUNT // 2 + 1
    assert {path.name for path in tmp_path.iterdir()} == before
    assert {path.name for path in (clean / "consumequeue").iterdir()} == {"Topic1"}


def test_s27_keys_that_collide(tmp_path):
    """Also the one whose hash has no absolute value, and one topic's key in another's name."""
    keys = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "polygenelubricants"]
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for topic in ["Topic1", "Topic2"]:
            for key in keys:
                store.put(topic, f"{topic}{key}".encode(), keys=key)
        for topic in ["Topic1", "Topic2"]:
            for key in keys:
                assert [m.body for m in store.query(topic, key)] == [f"{topic}{key}".encode()]


def index_file(root, number=0) -> Path:
    return sorted((root / "index").iterdir())[number]


def poke_index(root, at: int, data: bytes, number: int = 0) -> None:
    with index_file(root, number).open("r+b") as file:
        file.seek(at)
        file.write(data)


ENTRIES = 40 + 4 * 10


def entry(number: int, field: int) -> int:
    return ENTRIES + 20 * number + field


INDEX_DAMAGE = {
    "self-loops": [(entry(n, 16), i32(n)) for n in range(1, 40)],
    "a cycle of two": [(entry(n, 16), i32(n + 1 if n % 2 else n - 1)) for n in range(1, 39)],
    "forward": [(entry(n, 16), i32(39)) for n in range(1, 39)],
    "previous -1": [(entry(n, 16), i32(-1)) for n in range(1, 40)],
    "previous huge": [(entry(n, 16), i32((1 << 31) - 1)) for n in range(1, 40)],
    "slots -1": [(40 + 4 * n, i32(-1)) for n in range(10)],
    "slots beyond": [(40 + 4 * n, i32(1 << 30)) for n in range(10)],
    "slots all one": [(40 + 4 * n, i32(1)) for n in range(10)],
    "slots 0": [(40 + 4 * n, i32(0)) for n in range(10)],
    "count 0": [(36, i32(0))],
    "count -1": [(36, i32(-1))],
    "count huge": [(36, i32((1 << 31) - 1))],
    "count lowered": [(36, i32(5))],
    "slot count -1": [(32, i32(-1))],
    "begins after its end": [(0, struct.pack(">qq", 1 << 60, 1))],
    "offsets after the end": [(16, struct.pack(">qq", 1 << 60, 1 << 61))],
    "times negative": [(entry(n, 12), i32(-5)) for n in range(1, 40)],
    "offsets nowhere": [(entry(n, 4), struct.pack(">q", 1 << 60)) for n in range(1, 40)],
    "offsets negative": [(entry(n, 4), struct.pack(">q", -1)) for n in range(1, 40)],
    "offsets within records": [(entry(n, 4), struct.pack(">q", 17 * n)) for n in range(1, 40)],
    "header zero": [(0, bytes(40))],
    "all ones": [(0, b"\xff" * 880)],
    "all zero": [(0, bytes(880))],
}


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("what", INDEX_DAMAGE)
def test_s30_a_bad_index_file(clean, what, number):
    """No endless chain, no wrong hit; who opens to write with verify="full" has it mended."""
    for at, data in INDEX_DAMAGE[what]:
        poke_index(clean, at, data, number)
    everything = set(range(COUNT))
    for mode, verify in [("r", "tail"), ("r+", "tail"), ("r+", "full")]:
        said = look(clean, mode, verify=verify)
        assert said["opened"], (mode, said)
        assert right(said) == everything
        if verify == "full":
            assert said["keys"] == [[body_of(n)] for n in range(COUNT)]


@pytest.mark.parametrize("place", ["last", "middle"])
def test_s47_records_of_a_newer_version(clean, place):
    """Magic V2 (a topic of two bytes' length): "r" reads it; writing refuses, and cuts nothing."""
    every = records(clean)
    last = every[-1]
    at = last.physical_offset + last.store_size
    old = oracle.encode_record(
        "Topic1",
        b"newer",
        queue_id=0,
        queue_offset=COUNT // 2,
        physical_offset=at,
        store_timestamp=last.store_timestamp,
        properties=b"KEYS\x01newer",
    )
    split = BODY + 4 + len(b"newer")
    new = bytearray(old[:split] + b"\0" + old[split:])
    new[SIZE : SIZE + 4] = i32(len(new))
    new[MAGIC : MAGIC + 4] = i32(-626843477)  # 0xDAA320AB
    poke(clean, at, bytes(new))
    if place == "middle":
        end = at + len(new)
        poke(
            clean,
            end,
            oracle.encode_record(
                "Topic1",
                b"next",
                queue_id=0,
                queue_offset=COUNT // 2 + 1,
                physical_offset=end,
                store_timestamp=last.store_timestamp,
            ),
        )
    (clean / "abort").touch()
    before = oracle_store.snapshot(clean)
    with rmqstore.open(clean, "r") as store:
        assert store.at(at).body == b"newer"
        assert store["Topic1"][0][COUNT // 2].body == b"newer"
    for _ in range(2):
        with pytest.raises(rmqstore.IncompatibleStoreError, match=str(at)):
            rmqstore.open(clean, "r+", config=CONFIG)
    after = oracle_store.snapshot(clean)
    for name, entry in before.items():
        assert (after[name][1], after[name][3]) == (entry[1], entry[3]), name


def test_a_record_that_does_not_check_is_never_returned(clean):
    record = records(clean)[10]
    poke(clean, record.physical_offset + BODY + 10, b"\xff")
    for mode in ["r", "r+"]:
        with rmqstore.open(clean, mode, config=CONFIG) as store:
            for call in [
                lambda s: s.at(record.physical_offset),
                lambda s: s["Topic1"][record.queue_id][record.queue_offset],
                lambda s: s.get("Topic1", record.queue_id, record.queue_offset),
                lambda s: s.query("Topic1", record.keys[0]),
            ]:
                with pytest.raises(StoreCorruptError) as raised:
                    call(store)
                assert raised.value.offset == record.physical_offset
                assert "commitlog" in raised.value.path
                assert raised.value.reason
