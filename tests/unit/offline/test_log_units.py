"""Ranges of a log as units and entries, against the files that the store itself makes."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from conftest import BrokerStore
from rmqstore import _core
from rmqstore.base import layout
from rmqstore.directory.registry import TopicRegistry
from rmqstore.files import paths
from support import oracle, scan_model
from support.file_contents import files_of

Run = tuple[str, int, int, int, int, _core.Memory]
MOST = 1 << 20


def walk_all(
    root: Path,
    config: rmqstore.StoreConfig,
    bounds: list[int],
    *,
    most: int = MOST,
    unclean: bool = False,
) -> tuple[list[Run], list[bytes], list[dict[str, int]]]:
    """The runs, entries and totals of ranges between neighbours of ``bounds``."""
    deleted = TopicRegistry(str(root), lenient=False).deleted
    runs, entries, totals = [], [], []
    for start, stop in itertools.pairwise(bounds):
        walk = _core.LogUnits(str(root), config, deleted, start, stop, unclean=unclean)
        some = b""
        while (found := walk.next(most)) is not None:
            runs += found[0]
            some += bytes(memoryview(found[1]))
        assert not [one for one in walk.damages if one[2] >= 0]
        entries.append(some)
        totals.append(walk.totals())
    return runs, entries, totals


def make_files(
    root: Path,
    config: rmqstore.StoreConfig,
    runs: list[Run],
    entries: list[bytes],
    totals: list[dict[str, int]],
) -> None:
    """Put runs and entries into files, one after the other, with nothing of Spark's."""
    parts: dict[tuple[str, int], _core.QueuePart] = {}
    (root / paths.CONSUME_QUEUE).mkdir(parents=True)
    for topic, queue_id, first, _, _, units in runs:
        if (topic, queue_id) not in parts:
            folder = root / paths.CONSUME_QUEUE / topic / str(queue_id)
            size = config.mapped_file_size_consume_queue
            parts[topic, queue_id] = _core.QueuePart(str(folder), size)
        parts[topic, queue_id].put_run(first, units)
    for part in parts.values():
        part.close()
    every = b"".join(entries)
    capacity = (config.max_index_num - 1) * _core.LOOSE_ENTRY_BYTES
    pieces = [every[at : at + capacity] for at in range(0, len(every), capacity)]
    noted_behind = False
    for one in totals:
        noted_behind = one["noted_last"] if one["keys"] else noted_behind or one["noted"] > 0
    if noted_behind and len(every) % capacity == 0:
        pieces.append(b"")
    for number, piece in enumerate(pieces):
        (root / paths.INDEX).mkdir(exist_ok=True)
        path = root / paths.INDEX / f"{number:017d}"
        part = _core.IndexPart(
            str(path), config.max_hash_slot_num, config.max_index_num, "a", False
        )
        size = _core.LOOSE_ENTRY_BYTES
        seed = pieces[number - 1][-size:] if number else b""
        middle = len(piece) // 2 // size * size
        for _ in range(2):  # twice: the same bytes
            part.begin_fill(seed)
            part.enter(piece[:middle])
            part.enter(piece[middle:])
            part.end_fill()
        part.close()


def cut_points(rng: random.Random, end: int, count: int) -> list[int]:
    return [0, *sorted(rng.randint(0, end) for _ in range(count)), end]


@pytest.mark.parametrize("seed", range(25))
def test_random_logs(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 300, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path / "store", records, config)
    wanted = files_of(tmp_path / "store")
    end = _core.log_extent(str(tmp_path / "store"))[1]
    for cuts in (0, 3, 40):
        bounds = cut_points(rng, end, cuts)
        most = rng.choice([1, 500, MOST])
        found = walk_all(tmp_path / "store", config, bounds, most=most)
        assert sum(one["records"] for one in found[2]) == len(records)
        made = tmp_path / f"made-{cuts}"
        make_files(made, config, *found)
        assert files_of(made) == wanted


def test_ranges_meet(tmp_path: Path) -> None:
    rng = random.Random(5)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 300, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path, records, config)
    bounds = cut_points(rng, _core.log_extent(str(tmp_path))[1], 50)
    expected = 0
    for one in walk_all(tmp_path, config, bounds)[2]:
        if one["first_record"] >= 0:
            assert one["first_record"] == expected
            expected = one["next_record"]
    assert expected == -1


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("name", ["broker-clean", "broker-killed"])
def test_broker_stores(
    broker_copy: Callable[[str, Path], BrokerStore], tmp_path: Path, name: str
) -> None:
    """A copy whose queues and index the store itself makes anew from the broker's log."""
    root = broker_copy(name, tmp_path).root
    with rmqstore.open(root) as store:
        config = store.config
    for folder in (paths.CONSUME_QUEUE, paths.INDEX):
        shutil.rmtree(root / folder)
    end = _core.log_extent(str(root))[1]
    found = walk_all(root, config, [0, end // 3, end // 2, end], unclean=True)
    make_files(tmp_path / "made", config, *found)
    with rmqstore.open(root, "r+", config=config):
        pass
    assert files_of(tmp_path / "made") == files_of(root)


@given(data=st.data())
@pytest.mark.property
def test_gaps_and_second_lives(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Queue offsets in any order: units overwritten, gaps filled, records passed over."""
    root = tmp_path_factory.mktemp("log")
    offsets = [0, *data.draw(st.lists(st.integers(0, 12) | st.just(400), max_size=30))]
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=100,
        max_hash_slot_num=5,
        max_index_num=data.draw(st.sampled_from([20, 8])),
    )
    records = [
        oracle.encode_record(
            "t",
            b"x" * number,
            queue_offset=offset,
            store_timestamp=1_700_000_000_000 + number * 700,
            properties=data.draw(st.sampled_from([b"KEYS\x01a b\x02", b"TAGS\x01x\x02"])),
            sys_flag=data.draw(st.sampled_from([0, 0, 0, oracle.TRANSACTION_ROLLBACK]))
            if number
            else 0,
        )
        for number, offset in enumerate(offsets)
    ]
    scan_model.write_store(root / "store", records, config)
    end = _core.log_extent(str(root / "store"))[1]
    cuts = sorted(data.draw(st.lists(st.integers(0, end), max_size=4)))
    found = walk_all(root / "store", config, [0, *cuts, end])
    make_files(root / "made", config, *found)
    assert files_of(root / "made") == files_of(root / "store")


def test_a_queue_offset_that_two_records_name(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small()
    records = [oracle.encode_record("t", b"x" * n, queue_offset=0) for n in (1, 2)]
    scan_model.write_store(tmp_path / "store", records, config)
    end = _core.log_extent(str(tmp_path / "store"))[1]
    make_files(tmp_path / "made", config, *walk_all(tmp_path / "store", config, [0, end]))
    assert files_of(tmp_path / "made") == files_of(tmp_path / "store")


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        pytest.param([*range(40), *range(9)], range(40, 49), id="again"),
        pytest.param([*range(40), *range(9), *range(3)], range(49, 52), id="three"),
        pytest.param([0, 0, 1], [1, 2], id="one-message"),
        pytest.param([5, 6, 7, 8, 9, 0, 1, 2], [5, 6, 7], id="late"),
        pytest.param([5, 6, 7, 8, 9, 0], range(5), id="alone-in-front"),
        pytest.param([23, 24, 1, 2, 3], [2, 3, 4], id="first-damaged"),
        pytest.param([0, 1, 2, 0, 3], [0, 1, 2, 4], id="alone"),
        pytest.param([0, 1, 2, 1, 2, 3], [0, 1, 2, 5], id="not-from-the-beginning"),
        pytest.param([0, 1, 3, 2, 3, 4], [0, 1, 3, 4, 5], id="too-high"),
        pytest.param([7, 3, 5, 6, 7, 8, 5, 6], range(2, 6), id="nothing-begins"),
        pytest.param([1003], [0], id="compacted-one"),
        pytest.param([1003, 1004, 1005], range(3), id="compacted"),
        pytest.param([1 << 40, 0, 1, 2], range(1, 4), id="impossible"),
        pytest.param([0, 1 << 40, 1, 2], [0, 2, 3], id="impossible-later"),
    ],
)
def test_lives(tmp_path: Path, offsets: list[int], kept: list[int]) -> None:
    """Of records that name the same places those of the newest life are in the queue."""
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=100
    ).replace(max_hash_slot_num=5, max_index_num=20)
    records = [
        oracle.encode_record(
            "t", b"%d" % number, queue_offset=offset, properties=b"KEYS\x01k%d\x02" % number
        )
        for number, offset in enumerate(offsets)
    ]
    read = tmp_path / "read" / paths.COMMIT_LOG
    with rmqstore.CommitLog(read, file_size=65536, mode="a") as log:
        log.append(records)
    scan_model.write_store(tmp_path / "store", records, config)
    expected = [(offsets[number], b"%d" % number) for number in kept]
    for root, mode in (("read", "r"), ("store", "r"), ("store", "r+")):
        with rmqstore.open(tmp_path / root, mode, config=config) as store:
            assert [(m.queue_offset, m.body) for m in store["t"][0]] == expected
    queue = tmp_path / "store" / paths.CONSUME_QUEUE / "t" / "0"
    last = paths.offset_file_name(expected[-1][0] // 5 * 100)
    assert max(path.name for path in queue.iterdir()) == last
    end = _core.log_extent(str(tmp_path / "store"))[1]
    for cuts in ([], [200], [100, 300, 301]):
        made = tmp_path / f"made-{len(cuts)}"
        make_files(made, config, *walk_all(tmp_path / "store", config, [0, *cuts, end]))
        assert files_of(made) == files_of(tmp_path / "store")
    # Records of lives that ended are met again for their keys, and begin no life by that.
    shutil.rmtree(tmp_path / "store" / "index")
    for mode in ("r", "r+", "r"):
        with rmqstore.open(tmp_path / "store", mode, config=config) as store:
            assert [(m.queue_offset, m.body) for m in store["t"][0]] == expected
            for number in range(len(offsets)):
                assert [m.body for m in store.query("t", f"k{number}")] == [b"%d" % number]


@pytest.mark.usefixtures("undelivered")
def test_schedule_topic_and_deleted_topics(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = rmqstore.StoreConfig.small().replace(max_index_num=4 * 50, max_hash_slot_num=50)
    records = []
    for number in range(50):
        records += [
            oracle.encode_record(
                "gone", b"first", queue_offset=number, properties=b"KEYS\x01k\x02"
            ),
            oracle.encode_record(
                "SCHEDULE_TOPIC_XXXX",
                b"later",
                queue_id=2,
                queue_offset=number,
                store_timestamp=1_700_000_000_000,
                properties=b"TAGS\x01x\x02DELAY\x01%d\x02" % (number - 3),
            ),
        ]
    scan_model.write_store(root, records, config)
    with rmqstore.open(root, "r+", config=config) as store:
        store.delete_topic("gone")
        store.put("gone", b"second", keys=["again"])
    for folder in (paths.CONSUME_QUEUE, paths.INDEX):
        shutil.rmtree(root / folder)
    end = _core.log_extent(str(root))[1]
    found = walk_all(root, config, [0, 5000, end])
    make_files(tmp_path / "made", config, *found)
    with rmqstore.open(root, "r+", config=config):
        pass
    assert files_of(tmp_path / "made") == files_of(root)
    assert sum(len(units) for topic, *_, units in found[0] if topic == "gone") == 20


def damaged_store(tmp_path: Path) -> tuple[rmqstore.StoreConfig, list[tuple[int, int]]]:
    """Three files of records, and where they are."""
    config = rmqstore.StoreConfig(mapped_file_size_commit_log=4096)
    records = [
        oracle.encode_record("t", bytes([65 + number]) * 300, queue_offset=number)
        for number in range(25)
    ]
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=4096, mode="a") as log:
        log.append(records)
        places = list(log.records())
    return config, places


def test_damage(tmp_path: Path) -> None:
    config, places = damaged_store(tmp_path)
    bad, size = places[3]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(bad + size - 30)
        file.write(b"\0")
    walk = _core.LogUnits(str(tmp_path), config, {}, 0, 3 * 4096)
    while walk.next(MOST) is not None:
        pass
    assert next((offset, resumed) for offset, _, resumed in walk.damages) == (bad, places[4][0])
    assert "BODYCRC" in walk.damages[0][1]
    assert walk.totals()["records"] == len(places) - 1
    # Seen as well by who ends before it, and not by who begins in it.
    walk = _core.LogUnits(str(tmp_path), config, {}, 0, bad)
    while walk.next(MOST) is not None:
        pass
    assert [(offset, resumed) for offset, _, resumed in walk.damages] == [(bad, -1)]
    walk = _core.LogUnits(str(tmp_path), config, {}, bad + 1, 4096)
    while walk.next(MOST) is not None:
        pass
    assert (walk.damages, walk.totals()["first_record"]) == ([], places[4][0])


@pytest.mark.parametrize("behind", [1, 20, 35, 36, 90, 91])
def test_record_at_the_end_of_a_piece(tmp_path: Path, behind: int) -> None:
    """Damage whose next good record begins just before what is read at a time ends."""
    start = (1 << 20) + 1 - behind
    size = start - len(oracle.encode_record("t", b""))
    config = rmqstore.StoreConfig(mapped_file_size_commit_log=4 << 20)
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=4 << 20, mode="a") as log:
        log.append([oracle.encode_record("t", bytes(size)), oracle.encode_record("t", b"x" * 50)])
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(bytes(100))
    walk = _core.LogUnits(str(tmp_path), config, {}, 0, 4 << 20)
    while walk.next(MOST) is not None:
        pass
    assert walk.damages[0][::2] == (0, start)
    assert walk.totals()["records"] == 1


def test_missing_file(tmp_path: Path) -> None:
    config, _ = damaged_store(tmp_path)
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    walk = _core.LogUnits(str(tmp_path), config, {}, 0, 3 * 4096)
    while walk.next(MOST) is not None:
        pass
    assert walk.damages[0][:2] == (4096, "the file is missing; put it back from a copy")


def test_slices_are_bounded(tmp_path: Path) -> None:
    config, places = damaged_store(tmp_path)
    walk = _core.LogUnits(str(tmp_path), config, {}, 0, 3 * 4096)
    sizes = []
    while (found := walk.next(40)) is not None:
        sizes.append(sum(len(run[-1]) for run in found[0]))
    assert sizes == [40] * 12 + [20]
    assert len(places) == 25


def test_bad_arguments(tmp_path: Path) -> None:
    config, _ = damaged_store(tmp_path)
    with pytest.raises(rmqstore.StoreNotFoundError):
        _core.LogUnits(str(tmp_path / "nowhere"), config, {}, 0, 1)
    with pytest.raises(rmqstore.StoreNotFoundError):
        _core.log_extent(str(tmp_path / "commitlog"))
    with pytest.raises(ValueError, match=r"start and stop must be .* got 2 and 1"):
        _core.LogUnits(str(tmp_path), config, {}, 2, 1)
    queue = _core.QueuePart(str(tmp_path / "queue"), 100)
    with pytest.raises(ValueError, match="19 bytes"):
        queue.put_run(0, bytes(19))
    with pytest.raises(ValueError, match="first=-1"):
        queue.put_run(-1, bytes(20))
    index = _core.IndexPart(str(tmp_path / "index"), 5, 20, "a", False)
    for call in (index.end_fill, lambda: index.enter(b"")):
        with pytest.raises(ValueError, match="no fill has begun"):
            call()
    with pytest.raises(ValueError, match="19 bytes are no entry"):
        index.begin_fill(bytes(19))
    index.begin_fill(b"")
    one = bytes(_core.LOOSE_ENTRY_BYTES)
    with pytest.raises(ValueError, match="19 bytes are no whole number"):
        index.enter(bytes(19))
    with pytest.raises(rmqstore.StoreError, match="full"):
        index.enter(one * 20)
    index.enter(one)
    index.enter(one)
    index.end_fill()
    assert (index.index_count, index.hash_slot_count) == (3, 1)
    with pytest.raises(ValueError, match="digits"):
        _core.next_index_name("1", 0)


@pytest.mark.parametrize(
    ("offset", "size", "inside"),
    [
        (100, 50, True),
        (150, 50, True),  # to the end
        (99, 50, False),
        (151, 50, False),
        (-1, 50, False),
        (layout.INT64_MAX, layout.INT32_MAX - 1, False),
        (0, 0, True),  # blank
        (0, layout.UNIT_BLANK_SIZE, True),
        (0, -1, True),
    ],
)
def test_units_within(offset: int, size: int, inside: bool) -> None:
    good = layout.UNIT.pack(120, 20, 0)
    unit = layout.UNIT.pack(offset, size, 0)
    assert _core.units_within(good + unit, 100, 200) is inside
    assert _core.units_within(unit + good, 100, 200) is inside
    assert _core.units_within(b"", 100, 200)
