"""Every key is found whatever happened to the index files: the log has them all.

Stores of several index files, ours closed and killed, and a real broker's killed one, are damaged
in one form at a time, and opened with "r" and "r+", with the configuration and without.  What is
found is compared with a walk of the log by the slow codec.
"""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest

import rmqstore
from support import oracle, oracle_store
from support.damaged_store import state

SLOTS, ENTRIES = 50, 200
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=SLOTS,
    max_index_num=ENTRIES,
)
COUNT = 400  # messages, of a unique key and two others
LARGE = 12_000  # a body that makes the log larger than what is compared at each opening
ENTRIES_AT = 40 + 4 * SLOTS


def fill(root: Path, body: int, config=CONFIG) -> rmqstore.MessageStore:
    store = rmqstore.open(root, "a", config=config)
    for number in range(COUNT):
        keys = f"k{number} shared{number % 7}" if number % 5 else ""
        store.put("Topic1", b"%04d" % number + bytes(body), queue_id=number % 3, keys=keys)
    store.flush()
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory, broker_store):
    """Stores by name; copy them before anything is done to them."""
    top = tmp_path_factory.mktemp("stores")
    for name, body in [("small", 0), ("large", LARGE)]:
        store = fill(top / f"{name}-closed", body)
        shutil.copytree(top / f"{name}-closed", top / f"{name}-killed")  # as it is while open
        store.close()
        # Killed before its first checkpoint.
        shutil.copytree(top / f"{name}-killed", top / f"{name}-young")
        (top / f"{name}-young" / "checkpoint").unlink()
    found = {path.name: path for path in top.iterdir()}
    return found | {name: broker_store(name).root for name in ["broker-clean", "broker-killed"]}


def copy(stores, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores[name], tmp_path / name))


def index_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "index").iterdir() if path.name.isdigit())


def log_places(root: Path, skipped=()) -> dict[tuple[str, str], list[int]]:
    """Of each (topic, key) in the log: physical offsets, newest first."""
    places: dict[tuple[str, str], list[int]] = {}
    for record in oracle_store.walk_log(root / "commitlog"):
        for key in dict.fromkeys(oracle.index_keys(record)):
            places.setdefault((record.topic, key), []).insert(0, record.physical_offset)
    return places


def assert_every_key(store, places) -> None:
    by_topic: dict[str, list[str]] = {}
    for topic, key in places:
        by_topic.setdefault(topic, []).append(key)
    for topic, keys in by_topic.items():
        keys.append("no such key")
        offsets, starts = store.locate_many(topic, keys)
        for key, (start, stop) in zip(keys, pairwise(starts), strict=True):
            assert offsets[start:stop].tolist() == places.get((topic, key), []), (topic, key)
    topic, key = next(iter(places))
    assert [m.physical_offset for m in store.query(topic, key)] == places[topic, key]
    (many,) = store.query_many(topic, [key])
    assert [m.physical_offset for m in many] == places[topic, key]


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def cut(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def entries_at(path: Path) -> int:
    """Where entry 0 lies; RocketMQ's ratio of 4."""
    return 40 + 4 * ((path.stat().st_size - 40) // 84)


STRUCTURE = {
    "cut to nothing": lambda path: cut(path, 0),
    "cut in its header": lambda path: cut(path, 17),
    "cut in its slots": lambda path: cut(path, 100),
    "cut in its entries": lambda path: cut(path, path.stat().st_size * 2 // 3),
    "a byte short": lambda path: cut(path, path.stat().st_size - 1),
    "a byte too long": lambda path: cut(path, path.stat().st_size + 1),
    "twice as long": lambda path: cut(path, path.stat().st_size * 2),
    "missing": lambda path: path.unlink(),
    "count lowered": lambda path: poke(path, 36, i32(20)),
    "count 0": lambda path: poke(path, 36, i32(0)),
    "count 1": lambda path: poke(path, 36, i32(1)),
    "count -1": lambda path: poke(path, 36, i32(-1)),
    "count huge": lambda path: poke(path, 36, i32(0x7FFFFFFF)),
    "used slots 0": lambda path: poke(path, 32, i32(0)),
    "used slots -1": lambda path: poke(path, 32, i32(-1)),
    "header zero": lambda path: poke(path, 0, bytes(40)),
    "header all ones": lambda path: poke(path, 0, b"\xff" * 40),
    "ends late": lambda path: flip(path, 24 + 1),
    "ends a little later": lambda path: flip(path, 24 + 7),
    "begins early": lambda path: poke(path, 16, bytes(8)),
    "begins late": lambda path: flip(path, 16 + 1),
    "first page zero": lambda path: poke(path, 0, bytes(min(4096, path.stat().st_size))),
    "all zero": lambda path: poke(path, 0, bytes(path.stat().st_size)),
    "all ones": lambda path: poke(path, 0, b"\xff" * path.stat().st_size),
}

CONTENT = {
    "slots 0": lambda path: poke(path, 40, bytes(entries_at(path) - 40)),
    "slots all one": lambda path: poke(path, 40, i32(1) * ((entries_at(path) - 40) // 4)),
    "slots beyond": lambda path: poke(path, 40, i32(1 << 30) * ((entries_at(path) - 40) // 4)),
    "a slot flipped": lambda path: [flip(path, 43 + 4 * n) for n in range(10)],
    "first entries zero": lambda path: poke(path, entries_at(path), bytes(20 * 60)),
    "entries zero": lambda path: poke(path, entries_at(path) + 20 * 30, bytes(20 * 20)),
    "last entries zero": lambda path: poke(path, entries_at(path) + 20 * 120, bytes(20 * 80)),
    **{
        f"{field} flipped, bit {bit}": lambda path, at=at, bit=bit: [
            flip(path, entries_at(path) + 20 * number + at + 3 - bit // 8, bit % 8)
            for number in (1, 40, 77)
        ]
        for field, at in [("hash", 0), ("offset", 8), ("time", 12), ("previous", 16)]
        for bit in (0, 5, 12, 31)
    },
}
EVERY = STRUCTURE | CONTENT


def assert_found(root: Path, mode: str, config, places) -> None:
    names = set(oracle_store.snapshot(root))
    before = oracle_store.snapshot(root) if mode == "r" else None
    with rmqstore.open(root, mode, config=config) as store:
        assert_every_key(store, places)
        if mode == "r+":
            for number in range(30):
                store.put("Topic1", b"new", keys=f"new{number}")
            for number in range(30):
                assert len(store.query("Topic1", f"new{number}")) == 1
    if mode == "r":
        assert oracle_store.snapshot(root) == before
        return
    assert not [path for path in (root / "index").iterdir() if not path.name.isdigit()]
    assert names - set(oracle_store.snapshot(root)) <= {
        str(path) for path in names if str(path).startswith(("index", "abort"))
    }
    oracle_store.check_store(root, slot_num=None if config is None else SLOTS)
    places = log_places(root)
    for options in ({"mode": "r"}, {"mode": "r+"}):
        with rmqstore.open(root, **options) as store:
            assert_every_key(store, places)


# Each form with each mode; how the store was left, and whether sizes are given, by turns.
LEFT = [(name, config) for config in (None, CONFIG) for name in ("closed", "killed", "young")]
CASES = [
    pytest.param(form, mode, *LEFT[(2 * number + turn) % 6], id=f"{form}-{mode}")
    for number, form in enumerate(EVERY)
    for turn, mode in enumerate(["r", "r+"])
]


@pytest.mark.long
@pytest.mark.parametrize(("form", "mode", "left", "config"), CASES)
def test_a_damaged_file(stores, tmp_path, form, mode, left, config):
    """The first, one in the middle, and the last, one at a time."""
    places = log_places(stores[f"small-{left}"])
    for number in (0, 2, -1):
        root = copy(stores, f"small-{left}", tmp_path)
        EVERY[form](index_files(root)[number])
        assert_found(root, mode, config, places)
        shutil.rmtree(root)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("form", ["cut in its entries", "missing", "count lowered", "ends late"])
def test_a_damaged_file_of_a_large_log_that_was_closed(stores, tmp_path, form, mode):
    """The entries of these are not compared: what the header and the neighbours say is enough."""
    places = log_places(stores["large-closed"])
    for number in (0, 2, -1):
        root = copy(stores, "large-closed", tmp_path)
        STRUCTURE[form](index_files(root)[number])
        assert_found(root, mode, None, places)
        shutil.rmtree(root)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("at", [0, 4, 16], ids=["hash", "offset", "predecessor"])
def test_the_last_entry_is_damaged_and_its_record_goes_on_in_the_next_file(
    stores, tmp_path, at, mode
):
    root = copy(stores, "small-closed", tmp_path)
    places = log_places(root)
    last = ENTRIES_AT + 20 * (ENTRIES - 1)
    split = [
        path
        for path, after in pairwise(index_files(root))
        if path.read_bytes()[last + 4 : last + 12]
        == after.read_bytes()[ENTRIES_AT + 24 : ENTRIES_AT + 32]
    ]
    assert split
    flip(split[0], last + at, 1)
    assert_found(root, mode, CONFIG, places)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("name", ["small-closed", "large-closed"])
def test_the_count_leaves_out_some_keys_of_the_last_record(stores, tmp_path, name, config, mode):
    root = copy(stores, name, tmp_path)
    newest = index_files(root)[-1]
    (count,) = struct.unpack_from(">i", newest.read_bytes(), 36)
    poke(newest, 36, i32(count - 1))
    places = log_places(root)
    with rmqstore.open(root, mode, config=config) as store:
        assert_every_key(store, places)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_chain_that_is_met_broken(stores, tmp_path, mode):
    """In a large log that was closed nobody looks before: its part of the log is searched then."""
    places = log_places(stores["large-closed"])
    root = copy(stores, "large-closed", tmp_path)
    for number, previous in [(1, -1), (3, ENTRIES - 1)]:
        for entry in range(30, 40):
            poke(index_files(root)[number], ENTRIES_AT + 20 * entry + 16, i32(previous))
    with rmqstore.open(root, mode) as store:
        assert store.recovery.index_files_rebuilt == 0
        assert_every_key(store, places)
    with rmqstore.open(root, "r+") as store:  # what was met is not believed the next time
        assert store.recovery.index_files_rebuilt == (2 if mode == "r+" else 0)
        assert_every_key(store, places)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("damage", ["first", "all but one", "all", "every second"])
def test_several_files_are_missing(stores, tmp_path, damage, mode):
    places = log_places(stores["small-killed"])
    root = copy(stores, "small-killed", tmp_path)
    files = index_files(root)
    gone = {"first": files[:3], "all but one": files[1:], "all": files, "every second": files[::2]}
    for path in gone[damage]:
        path.unlink()
    assert_found(root, mode, None if damage != "all" else CONFIG, places)


@pytest.mark.parametrize("name", ["small-closed", "small-killed"])
def test_files_that_the_dispatch_makes_anew_are_counted(stores, tmp_path, name):
    root = copy(stores, name, tmp_path)
    for path in index_files(root):
        path.unlink()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.index_files_rebuilt == len(index_files(root)) > 1
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.index_files_rebuilt == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("form", ["cut in its entries", "missing", "count lowered", "slots 0"])
def test_what_a_broker_left_killed(stores, tmp_path, form, number):
    places = log_places(stores["broker-killed"])
    assert sum(map(len, places.values())) > 7000
    root = copy(stores, "broker-killed", tmp_path)
    EVERY[form](index_files(root)[number])
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert_every_key(store, places)


# Slots and entries, where nobody says what they are


@pytest.mark.parametrize("ratio", [1, 2, 3, 7])
@pytest.mark.parametrize("left", ["closed", "young"])
def test_any_ratio_is_told_from_the_files(tmp_path, ratio, left):
    config = CONFIG.replace(max_index_num=ratio * SLOTS)
    store = fill(tmp_path / "store", 0, config)
    store.close()
    if left == "young":
        (tmp_path / "store/checkpoint").unlink()
    places = log_places(tmp_path / "store")
    poke(index_files(tmp_path / "store")[0], 40, i32(1 << 20) * SLOTS)  # one is damaged
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path / "store", mode) as store:
            assert store.config.max_hash_slot_num == SLOTS
            assert store.config.max_index_num == ratio * SLOTS
            assert_every_key(store, places)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("left", ["closed", "young"])
def test_sizes_that_nothing_tells(stores, tmp_path, left, mode):
    """The last checkpoint has them; without it the index is made anew with the default sizes."""
    root = copy(stores, f"small-{left}", tmp_path)
    places = log_places(root)
    for path in index_files(root):
        path.write_bytes(b"\xa5" * 4321)
    with rmqstore.open(root, mode) as store:
        assert_every_key(store, places)
        if mode == "r+":
            assert store.config.max_hash_slot_num == (SLOTS if left == "closed" else 5_000_000)


def test_files_of_another_configuration_are_refused(stores, tmp_path):
    """They are sound: who gives other sizes is wrong, and nothing is changed."""
    root = copy(stores, "small-closed", tmp_path)
    before = oracle_store.snapshot(root)
    with pytest.raises(rmqstore.IncompatibleStoreError, match="index"):
        rmqstore.open(root, "r+", config=CONFIG.replace(max_index_num=400))
    after = oracle_store.snapshot(root)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() <= {"lock"}


# The log is shorter than the index says


def lose_tail(root: Path, keep: int) -> int:
    """Zero the log behind its ``keep``-th record, as a power cut leaves it; where that is."""
    records = list(oracle_store.walk_log(root / "commitlog"))
    end = records[keep - 1].physical_offset + records[keep - 1].store_size
    for start, path in oracle_store.log_files(root / "commitlog"):
        at = max(0, end - start)
        if at < path.stat().st_size:
            poke(path, at, bytes(path.stat().st_size - at))
    return end


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("name", ["small-killed", "small-young"])
def test_a_power_cut_took_the_end_of_the_log(stores, tmp_path, name, config, mode):
    """Index files and checkpoint are on the disk, the records are not.  Other records are put in
    their place, with other keys, and that twice."""
    root = copy(stores, name, tmp_path)
    for keep in (230, 170, 210) if mode == "r+" else (230, 170):
        lose_tail(root, keep)
        places = log_places(root)
        with rmqstore.open(root, mode, config=config) as store:
            assert_every_key(store, places)
        if mode == "r":
            continue
        (root / "abort").touch()
        with rmqstore.open(root, "r+", config=config) as store:
            for number in range(100):
                store.put("Topic1", b"%d" % number, keys=f"after{keep}-{number} shared{number % 7}")
            store.flush()
            shutil.rmtree(tmp_path / "next", ignore_errors=True)
            shutil.copytree(root, tmp_path / "next")
            assert_every_key(store, log_places(root))
            assert store.query("Topic1", f"k{COUNT - 1}") == []
        shutil.rmtree(root)
        (tmp_path / "next").rename(root)
        with rmqstore.open(root, "r", config=config) as store:
            assert_every_key(store, log_places(root))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_entries_of_lost_records_came_back(stores, tmp_path, mode):
    """A second power cut undid what the first recovery had made of the index files."""
    root = copy(stores, "small-killed", tmp_path)
    old = {path.name: path.read_bytes() for path in index_files(root)}
    lose_tail(root, 170)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        for number in range(200):
            store.put("Topic1", b"%04d" % number, queue_id=1, keys=f"other{number} s{number % 7}")
        store.flush()
        shutil.copytree(root, tmp_path / "next")
    for path in index_files(tmp_path / "next"):
        path.unlink()
    for name, data in old.items():
        (tmp_path / "next/index" / name).write_bytes(data)
    places = log_places(tmp_path / "next")
    with rmqstore.open(tmp_path / "next", mode) as store:
        assert_every_key(store, places)
        assert store.query("Topic1", "k200") == []


@pytest.mark.parametrize("apart", [True, False])
def test_the_newest_files_lost_pages(tmp_path, apart):
    """Of the one before the end is as it was long ago, and the last one holds in part."""
    root = tmp_path / "store"
    sizes = CONFIG.replace(max_hash_slot_num=6 * SLOTS, max_index_num=6 * ENTRIES)
    first = fill(tmp_path / "first", 0, sizes)
    early = index_files(tmp_path / "first")[0].read_bytes()
    for number in range(COUNT):
        first.put("Topic1", b"more", keys=f"more{number}")
    first.flush()
    shutil.copytree(first.path, root)
    first.close()
    name, last = index_files(root)
    name.write_bytes(early)
    CONTENT["last entries zero"](last)
    if not apart:  # no file's name lies between them
        last.rename(last.with_name(str(int(name.name) + 1)))
    places = log_places(root)
    with rmqstore.open(root, "r+") as store:
        assert_every_key(store, places)
    oracle_store.check_store(root)


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
def test_the_last_record_of_a_full_file_has_another_time_now(stores, tmp_path, config):
    """And of the next file nothing came to the disk: mended once, they stay as they are."""
    root = copy(stores, "small-young", tmp_path)
    *_, full, newest = index_files(root)
    newest.write_bytes(bytes(newest.stat().st_size))
    (offset,) = struct.unpack_from(">q", full.read_bytes(), 24)
    log = root / "commitlog" / f"{0:020d}"
    (stored,) = struct.unpack_from(">q", log.read_bytes(), offset + 56)
    poke(log, offset + 56, struct.pack(">q", stored + 40_000))
    places = log_places(root)
    for _ in range(2):
        before = state(root)
        with rmqstore.open(root, "r+", config=config) as store:
            assert_every_key(store, places)
    assert state(root) == before


def test_what_was_put_without_an_index_is_entered_later(tmp_path):
    config = CONFIG.replace(message_index_enable=False)
    fill(tmp_path / "store", 0).close()
    with rmqstore.open(tmp_path / "store", "r+", config=config) as store:
        for number in range(50):
            store.put("Topic1", b"x", keys=f"unindexed{number}")
    places = log_places(tmp_path / "store")
    for mode in ("r", "r+", "r"):
        with rmqstore.open(tmp_path / "store", mode, config=CONFIG) as store:
            assert_every_key(store, places)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_the_keys_of_a_deleted_topic_are_made_anew(tmp_path, missing):
    """Its records are found by key as long as the log has them, by 4.9.3 as well."""
    root = tmp_path / "store"
    store = fill(root, 0)
    store.put("others", b"stays", queue_id=0, keys="k")
    store.delete_topic("Topic1")
    store.close()
    index_files(root)[missing].unlink()
    rmqstore.open(root, "r+").close()
    oracle_store.check_store(root, slot_num=SLOTS, deleted={"Topic1"})


@pytest.mark.parametrize(("sectors", "body"), [(1, 0), (5, 0), (1, 2000), (100, 2000)])
def test_entries_of_records_that_a_power_cut_took(tmp_path, sectors, body):
    """They are no hits: the other records of the key are found."""
    root = tmp_path / "store"
    with fill(tmp_path / "first", body) as store:
        shutil.copytree(store.path, root)
    (root / "checkpoint").unlink()
    places = log_places(root)
    at = places["Topic1", "k201" if sectors < 100 else "k399"][0] // 512 * 512 + 512
    poke(root / "commitlog" / f"{0:020d}", at, bytes(512 * sectors))
    found = []
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            found.append(
                {key: [m.physical_offset for m in store.query(*key)] for key in sorted(places)}
            )
    assert found[0] == found[1] == found[2]
    assert sum(map(len, found[0].values())) > sum(map(len, places.values())) * 0.9
