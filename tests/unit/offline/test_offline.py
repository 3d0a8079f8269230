"""Jobs over whole stores with ``rmqstore.offline`` alone, against what the store itself makes."""

from __future__ import annotations

import itertools
import pickle
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import offline
from rmqstore.files import paths
from support import scan_model
from support.file_contents import files_of

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=100,
    max_index_num=400,
)
MESSAGES = 1500


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some topics and keys, in many files of each kind, closed."""
    root = tmp_path_factory.mktemp("offline") / "store"
    rng = random.Random(11)
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(MESSAGES):
            store.put(
                f"topic-{number % 3}",
                rng.randbytes(rng.choice([0, 20, 200])),
                queue_id=rng.randrange(4),
                tags=rng.choice([None, "TagA", "TagB"]),
                keys=rng.choice([(), (f"order-{number}", "every")]),
            )
    return root


def rebuilt(root: Path, made: Path, **plan: Any) -> offline.BuildTotals:
    """Queues and index, each task from a copy that was pickled, as another process has it."""
    build = offline.Build(offline.plan_log(root, CONFIG, **plan), str(made))
    build.create()
    reports = [pickle.loads(pickle.dumps(build)).scan(n) for n in range(build.plan.count)]
    steps = build.steps(pickle.loads(pickle.dumps(reports)))
    done = [
        pickle.loads(pickle.dumps(build)).run(step) for step in pickle.loads(pickle.dumps(steps))
    ]
    return build.finish(reports, done)


@pytest.mark.parametrize("ranges", [1, 2, 3])
def test_queues_and_index_are_the_stores_own(root: Path, tmp_path: Path, ranges: int) -> None:
    extent = offline.log_extent(root)
    used = offline.plan_log(root, CONFIG).end - extent.start
    step = -(-used // ranges)
    plan = offline.plan_log(root, CONFIG, range_bytes=-(-step // (1 << 16)) << 16)
    assert plan.count == ranges
    totals = rebuilt(root, tmp_path / "made", range_bytes=plan.step)
    assert files_of(tmp_path / "made") == files_of(root)
    assert (totals.messages, totals.units, totals.queues) == (MESSAGES, MESSAGES, 12)
    assert totals.index_files == len(list((root / paths.INDEX).iterdir())) > 2
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [
        paths.CONSUME_QUEUE,
        paths.INDEX,
    ]


def test_ranges_that_begin_within_files(root: Path, tmp_path: Path) -> None:
    rebuilt(root, tmp_path / "made", range_bytes=10_000)
    assert files_of(tmp_path / "made") == files_of(root)


@pytest.mark.parametrize("seed", range(4))
def test_logs_with_gaps_and_disorder(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = scan_model.config(rng).replace(max_hash_slot_num=50, max_index_num=200)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path / "store", records, config)
    build = offline.Build(
        offline.plan_log(tmp_path / "store", config, range_bytes=30_000), str(tmp_path / "made")
    )
    build.create()
    reports = [build.scan(number) for number in range(build.plan.count)]
    steps = build.steps(reports)
    rng.shuffle(steps)
    build.finish(reports, [build.run(step) for step in steps])
    assert files_of(tmp_path / "made") == files_of(tmp_path / "store")


def test_the_example_of_the_docstring(root: Path, tmp_path: Path) -> None:
    plan = offline.plan_log(root, CONFIG, range_bytes=1 << 16)
    build = offline.Build(plan, str(tmp_path / "rebuilt"))
    build.create()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        reports = list(pool.map(build.scan, range(plan.count)))
        done = list(pool.map(build.run, build.steps(reports)))
    assert build.finish(reports, done).messages == MESSAGES
    assert files_of(tmp_path / "rebuilt") == files_of(root)


def test_a_task_that_runs_twice_writes_the_same(root: Path, tmp_path: Path) -> None:
    build = offline.Build(offline.plan_log(root, CONFIG, range_bytes=1 << 16), str(tmp_path / "m"))
    build.create()
    reports = [build.scan(number) for number in range(build.plan.count)]
    reports = [build.scan(number) for number in range(build.plan.count)]
    steps = build.steps(reports)
    done = [build.run(step) for step in [*steps, *steps]][len(steps) :]
    build.finish(reports, done)
    assert files_of(tmp_path / "m") == files_of(root)


def test_damage_ends_a_build(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "store")
    with rmqstore.open(root) as store:
        place = store["topic-1"][2][20].physical_offset
    path = tmp_path / "store" / paths.COMMIT_LOG / paths.offset_file_name(place & ~0xFFFF)
    with path.open("r+b") as file:
        file.seek((place & 0xFFFF) + 4)
        file.write(b"\x01")
    with pytest.raises(rmqstore.StoreCorruptError) as raised:
        rebuilt(tmp_path / "store", tmp_path / "made")
    assert raised.value.offset == place
    assert str(path) in str(raised.value)


def test_bytes_that_look_like_a_record(tmp_path: Path) -> None:
    """A range that begins in a body which holds a record is told from one that does not."""
    config = CONFIG.replace(mapped_file_size_commit_log=1 << 20)
    inner = rmqstore.encode_record("inner", b"x" * 100)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for _ in range(20):
            place = store.stats()["wrote_position"]
            body = b"".join(
                rmqstore.encode_record("inner", b"x" * 100, physical_offset=place + at)
                for at in range(88, 88 + len(inner) * 100, len(inner))
            )
            store.put("outer", body, queue_id=0)
    plan = offline.plan_log(tmp_path / "store", config, range_bytes=5_000)
    build = offline.Build(plan, str(tmp_path / "made"))
    build.create()
    reports = [build.scan(number) for number in range(plan.count)]
    with pytest.raises(offline.RangesOverlapError):
        build.steps(reports)
    build = offline.Build(plan.by_files(), str(tmp_path / "made"))
    build.create()
    reports = [build.scan(number) for number in range(build.plan.count)]
    build.finish(reports, [build.run(step) for step in build.steps(reports)])
    assert files_of(tmp_path / "made") == files_of(tmp_path / "store")


def test_a_store_is_compared_with_its_log(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "store")
    queue = tmp_path / "store" / paths.CONSUME_QUEUE / "topic-0" / "1" / paths.offset_file_name(0)
    with queue.open("r+b") as file:
        file.seek(20 * 3 + 8)
        file.write((7).to_bytes(4, "big"))
    files = sorted((tmp_path / "store" / paths.INDEX).iterdir())
    readers = [offline.IndexFileReader(file, CONFIG) for file in files]
    with rmqstore.open(root) as store:
        log_end = store.recovery.log_end
    plan = offline.plan_log(tmp_path / "store", CONFIG)
    entries: list[offline.LooseEntry] = []
    differing = []
    for number in range(plan.count):
        walk = plan.walk(number)
        for found in walk.slices(20_000):
            entries += offline.loose_entries(found.entries)
            for run in found.runs:
                units = offline.QueueFiles(plan.path, run.topic, run.queue_id, CONFIG)
                for _, first, data in units.read(run.first, run.stop):
                    wanted = run.units[(first - run.first) * offline.UNIT_BYTES :][: len(data)]
                    differing += [
                        (run.topic, run.queue_id, first + one.number, one.found)
                        for one in offline.differing_units(run.topic, wanted, data)
                    ]
        assert [one for one in walk.damages if one.physical_offset < log_end] == []
    [(topic, queue_id, offset, unit)] = differing
    assert (topic, queue_id, offset) == ("topic-0", 1, 3)
    assert unit is not None
    assert unit.size == 7
    stored = [one for reader in readers for one in reader.entries(1, reader.first_at(1 << 62))]
    assert [one[:2] for one in stored] == [one[:2] for one in entries]
    for file, reader in zip(files, readers, strict=True):
        slots = Path(file).read_bytes()[40 : 40 + 4 * CONFIG.max_hash_slot_num]
        used = sum(any(slots[at : at + 4]) for at in range(0, len(slots), 4))
        assert reader.check_chains(10) == ([], 0, used)
        reader.close()


def test_logs_of_two_tasks_become_one_store(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    made = tmp_path / "made"
    (made / paths.COMMIT_LOG).mkdir(parents=True)
    limits = {"max_message_size": CONFIG.max_message_size, "file_size": 1 << 16}
    sources, pieces = {}, []
    for task in range(2):
        own = tmp_path / str(task)
        own.mkdir()
        table = pa.table(
            {
                "topic": ["t"] * 100,
                "body": [b"%d-%d" % (task, n) for n in range(100)],
                "queue_id": pa.array([n % 2 for n in range(100)], pa.int32()),
            }
        )
        assert offline.check_table(table, **limits) == 100
        with offline.LogWriter(own, CONFIG) as log:
            offsets = log.append(table)
            assert log.record_size(int(offsets[0])) == offsets[1] - offsets[0]
            pieces.append(offline.LogPiece(task, 0, log.end, log.end))
            assert log.message_counts() == {"t": {0: 50, 1: 50}}
        offline.save_queue_numbers(own / "first", {"t": {0: 50 * task, 1: 50 * task}})
        sources[task] = offline.LogSource(
            str(own / paths.COMMIT_LOG), 1 << 16, first_offsets=str(own / "first")
        )
        [measured] = sources[task].measure([(0, pieces[task].stop)], 0)
        assert (measured.found, measured.size) == (100, pieces[task].size)
    planned = offline.assign_positions(pieces, 1 << 16)
    done = [
        offline.copy_pieces([piece], sources, made / paths.COMMIT_LOG, 1 << 16, 1_700_000_000_000)
        for piece in planned
    ]
    rebuilt(made, made)
    last = max(one.last_record for one in done)
    with rmqstore.open(made) as store:
        end = offline.seal_store(store, last, max(one.store_timestamp for one in done))
    assert end == sum(piece.size for piece in pieces)
    with rmqstore.open(made, "r+", config=CONFIG) as store:
        assert store.recovery.clean
        assert len(store["t"][0]) == len(store["t"][1]) == 100
        bodies = [message.body for message in store["t"].messages()]
        assert bodies == [b"%d-%d" % (task, n) for task in range(2) for n in range(100)]


def test_a_row_that_cannot_be_put_is_named() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"topic": ["t", "a/b"], "body": [b"", b""]})
    with pytest.raises(ValueError, match="'topic', row 1"):
        offline.check_table(table, max_message_size=1 << 20, file_size=1 << 16)


def test_ranges_cover_the_log_once(root: Path) -> None:
    for range_bytes in (1, 9_999, 1 << 16, 3 << 16, 1 << 30):
        plan = offline.plan_log(root, range_bytes=range_bytes)
        bounds = [plan.bounds(number) for number in range(plan.count)]
        assert bounds[0][0] == plan.first
        assert bounds[-1][1] == plan.end
        assert all(one[1] == other[0] for one, other in itertools.pairwise(bounds))
        if len(bounds) > 2_000:
            continue
        counts = [sum(1 for _ in plan.walk(n).slices()) for n in range(plan.count)]
        assert len(counts) == plan.count


def test_what_is_asked_for_wrongly(root: Path, tmp_path: Path) -> None:
    with pytest.raises(rmqstore.StoreNotFoundError):
        offline.plan_log(tmp_path)
    with pytest.raises(ValueError, match="range_bytes"):
        offline.plan_log(root, range_bytes=0)
    with pytest.raises(ValueError, match="does not fit"):
        offline.assign_positions([offline.LogPiece(0, 0, 93, 93)], 100)


def test_all_names_are_there_and_documented() -> None:
    for name in offline.__all__:
        found = getattr(offline, name)
        assert isinstance(found, (int, str)) or found.__doc__ or name == "QueueNumbers", name


def test_no_build_deletes_the_queues_of_a_store(root: Path) -> None:
    build = offline.Build(offline.plan_log(root, CONFIG), str(root))
    with pytest.raises(ValueError, match="directory must be one without queues and index"):
        build.create()
    with rmqstore.open(root) as store:
        assert sum(len(queue) for name in store for queue in store[name].values()) == MESSAGES


def test_numbers_written_by_attempts_with_one_process_number(tmp_path: Path) -> None:
    """Attempts of a task on several hosts write one file: no reader sees half of one."""
    path = tmp_path / "first"
    values = [{"t": dict.fromkeys(range(500), attempt)} for attempt in range(4)]
    offline.save_queue_numbers(path, values[0])
    threads = [
        threading.Thread(
            target=lambda mine=mine: [offline.save_queue_numbers(path, mine) for _ in range(50)]
        )
        for mine in values
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert offline.load_queue_numbers(path) in values
    for thread in threads:
        thread.join()
    assert offline.load_queue_numbers(path) in values
    assert [*tmp_path.iterdir()] == [path]


def test_every_name_is_there_in_a_new_process() -> None:
    code = "from rmqstore import offline; print([n for n in {} if getattr(offline, n) is not None])"
    names = [name for name in offline.__all__ if not name.isupper()]
    shown = subprocess.run(
        [sys.executable, "-c", code.format(names)], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"{names}\n"
    assert set(offline.__all__) <= set(dir(offline))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = offline.nope
