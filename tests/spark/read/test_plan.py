"""Plans of batch queries: the rows are those of a scan, and no task has more than it may."""

from __future__ import annotations

import json
import random
import re
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan

import rmqstore
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.columns.scan import COLUMNS
from rmqstore.errors import (
    MessagesRemovedError,
    StoreCorruptError,
    StoreNotFoundError,
    TopicNotFoundError,
)
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.common.side_files import batch_directory, stream_directory
from rmqstore.spark.jobs.new_store import new_store
from rmqstore.spark.read.partitions import read_partition
from rmqstore.spark.sink.ledger import Job
from rmqstore.spark.sink.overwrite import making_path
from support import oracle, scan_model
from support.source_model import (
    SIMPLE,
    Row,
    evaluate,
    partitions_of,
    random_filter,
    read_back,
    same_rows,
)

pytestmark = pytest.mark.spark

WAYS = ("auto", "auto", "commitlog", "consumequeue", "index")


def _queued(row: Row) -> bool:
    """Whether a consumer would get it."""
    rolled = row["sys_flag"] & oracle.FLAG_TRANSACTION in (scan_model.PREPARED, scan_model.ROLLBACK)
    return not rolled


def _rows(path: Path, **arguments: Any) -> list[Row]:
    with rmqstore.open(path) as store:
        return store.scan(**arguments).to_table().to_pylist()


def _random_store(rng: random.Random, root: Path) -> list[Row]:
    config = scan_model.config(rng)
    count = rng.choice([1, 30, 300, 900])
    records = scan_model.random_records(rng, count, config.mapped_file_size_commit_log)
    scan_model.write_store(root, records, config)
    return _rows(root)


def _sharing(rng: random.Random) -> dict[str, object]:
    found: dict[str, object] = {}
    if rng.random() < 0.5:
        found["maxPartitionBytes"] = rng.choice([1024, 5000, 20_000, 200_000])
    if rng.random() < 0.3:
        found["maxMessagesPerPartition"] = rng.choice([1, 7, 100])
    if rng.random() < 0.3:
        found["minPartitions"] = rng.choice([1, 3, 10])
    return found


def _selecting(rng: random.Random, rows: list[Row], known: list[str]) -> dict[str, Any]:
    """Options that choose messages; those of ``scan`` have the same names."""
    found: dict[str, Any] = {}
    if rng.random() < 0.6 and known:
        found["topics"] = ",".join(rng.sample(known, rng.randint(1, len(known))))
    elif rng.random() < 0.2:
        found["topicPattern"] = rng.choice([".*", "bus.", "no such", "[or].*|busy"])
    if rng.random() < 0.25:
        found["tags"] = " || ".join(rng.sample([*scan_model.TAGS, "TagC"], rng.randint(1, 3)))
    if rng.random() < 0.25:
        found["sql"] = rng.choice(scan_model.SQL)
    if rng.random() < 0.3:
        keys = [*rng.sample(scan_model.KEYS, 2), rng.choice(rows)["uniq_key"] or "Aa"]
        found["keys"] = ",".join(keys)
    return found


def _expected(path: Path, options: dict[str, Any], known: list[str]) -> list[Row]:
    arguments: dict[str, Any] = {}
    if "topics" in options:
        arguments["topic"] = options["topics"].split(",")
    if "topicPattern" in options:
        pattern = re.compile(options["topicPattern"])
        arguments["topic"] = [topic for topic in known if pattern.fullmatch(topic)]
    if "tags" in options:
        arguments["tags"] = options["tags"]
    if "sql" in options:
        arguments["sql"] = options["sql"]
    if "keys" in options:
        arguments["keys"] = options["keys"].split(",")
    return _rows(path, **arguments)


@pytest.mark.parametrize("seed", range(40))
def test_the_rows_are_those_of_a_scan(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = _random_store(rng, tmp_path)
    with rmqstore.open(tmp_path) as store:
        known = sorted(store.topics)
    for _ in range(5):
        way = rng.choice(WAYS)
        options = _selecting(rng, rows, known)
        wanted = _expected(tmp_path, options, known)
        if way == "index" and "keys" not in options:
            way = "commitlog"
        if way == "index" and "topics" not in options and "topicPattern" not in options:
            options["topics"] = ",".join(known) if known else "x"
            wanted = _expected(tmp_path, options, known)
        if way == "index" and not known:
            continue
        if way == "consumequeue":
            wanted = [row for row in wanted if _queued(row)]
        names = [*COLUMNS] if rng.random() < 0.5 else rng.sample(COLUMNS, rng.randint(1, 6))
        filters = []
        if set(names) & set(SIMPLE):
            filters = [random_filter(rng, rows, names) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        wanted = [
            {name: row[name] for name in names}
            for row in wanted
            if all(evaluate(each, row) for each in filters)
        ]
        given = {"path": tmp_path, "scan": way, **options, **_sharing(rng)}
        found = read_back(given, filters, names)
        try:
            same_rows(found, wanted)
        except AssertionError as error:
            raise AssertionError(f"{given} {filters} {names}") from error


@pytest.mark.parametrize("seed", range(8))
def test_along_queues_from_and_until(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = [row for row in _random_store(rng, tmp_path) if _queued(row)]
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    with rmqstore.open(tmp_path) as store:
        for topic, queues in store.topics.items():
            for queue_id, queue in queues.items():
                ends[topic, queue_id] = queue.min_offset, queue.max_offset
    for _ in range(6):
        begin, until = _random_places(rng, ends), _random_places(rng, ends)
        options: dict[str, object] = {"path": tmp_path, **_sharing(rng)}
        options["consumeFrom"] = json.dumps(begin)
        if rng.random() < 0.7:
            options["consumeUntil"] = json.dumps(until).replace("-2", "-1")
            options["failOnDataLoss"] = "false"  # until may lie before from
        else:
            until = {}
        if rng.random() < 0.5:
            chosen = {topic: [0] for topic, queue_id in ends if not queue_id}
            if not chosen:
                continue
            options["queues"] = json.dumps(chosen)
            options["consumeFrom"] = json.dumps({t: q for t, q in begin.items() if t in chosen})
            if until:
                until = {topic: queues for topic, queues in until.items() if topic in chosen}
                options["consumeUntil"] = json.dumps(until).replace("-2", "-1")
        asked = [random_filter(rng, rows, COLUMNS)] if rows and rng.random() < 0.5 else []
        wanted = []
        for row in rows:
            topic, queue_id = row["topic"], row["queue_id"]
            low, high = ends[topic, queue_id]
            start = begin.get(topic, {}).get(str(queue_id), -2)
            stop = until.get(topic, {}).get(str(queue_id), -1)
            start = low if start == -2 else high if start == -1 else start
            stop = high if stop < 0 else stop
            if start <= row["queue_offset"] < stop and ("queues" not in options or queue_id == 0):
                wanted.append(row)
        wanted = [row for row in wanted if all(evaluate(each, row) for each in asked)]
        same_rows(read_back(options, asked), wanted)


def _random_places(
    rng: random.Random, ends: dict[tuple[str, int], tuple[int, int]]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), (low, high) in ends.items():
        if rng.random() < 0.7:
            place = rng.choice([-2, -1, rng.randint(low, high)])
            found.setdefault(topic, {})[str(queue_id)] = place
    return found or {topic: {"0": -2} for topic, queue_id in ends if not queue_id}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two topics of three queues; a record more a second, 400 in all, over several log files."""
    root = tmp_path / "small"
    records = []
    offsets: dict[tuple[str, int], int] = {}
    for number in range(400):
        topic, queue_id = ("even", "odd")[number % 2], number // 2 % 3
        offset = offsets[topic, queue_id] = offsets.get((topic, queue_id), -1) + 1
        records.append(
            oracle.encode_record(
                topic,
                b"%d" % number * (number % 50),
                queue_id=queue_id,
                queue_offset=offset,
                store_timestamp=scan_model.FIRST_TIME + 1000 * number,
                properties=b"KEYS\x01key-%d" % (number % 40),
            )
        )
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400
    )
    scan_model.write_store(root, records, config)
    return root


@pytest.mark.parametrize("options", [{}, {"scan": "consumequeue"}, {"keys": "key-7"}])
@pytest.mark.parametrize("limit", [1024, 3000])
def test_no_task_has_more_than_it_may(small: Path, options: dict[str, str], limit: int) -> None:
    given = {"path": small, "maxPartitionBytes": limit, **options}
    partitions = partitions_of(given)
    assert len(partitions) > 1 or "keys" in options
    for partition in partitions:
        batches = list(read_partition(partition, spark_schema(["store_size"])))
        sizes = [size for batch in batches for size in batch.column(0).to_pylist()]
        if partition.pieces[0].kind == "log":  # the last may reach beyond
            sizes = sizes[:-1]
        assert sum(sizes) <= limit or len(sizes) == 1
    for most in (1, 7):
        for partition in partitions_of({**given, "maxMessagesPerPartition": most}):
            batches = list(read_partition(partition, spark_schema(["store_size"])))
            assert 0 < sum(batch.num_rows for batch in batches) <= most


def test_a_size_makes_a_thousand_tasks_at_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.put_many("T", [b"%d" % number * 300 for number in range(5000)])
        total = store.stats()["wrote_position"]
    for way in ("commitlog", "consumequeue"):
        given = {"path": tmp_path, "scan": way, "maxPartitionBytes": "1k"}
        tasks = partitions_of(given)
        assert total > 4000 << 10
        assert 500 < len(tasks) <= 1250
        assert not caplog.records
        assert len(read_back(given, columns=["queue_id"])) == 5000
        given = {"path": tmp_path, "scan": way, "maxMessagesPerPartition": 1}
        assert len(partitions_of(given)) == 5000
        (record,) = caplog.records
        assert "5000 tasks" in record.message
        assert "maxMessagesPerPartition" in record.message
        caplog.clear()


def test_at_least_so_many_tasks_and_few_for_many_small_queues(small: Path) -> None:
    assert len(partitions_of({"path": small})) == 1
    assert len(partitions_of({"path": small, "scan": "consumequeue"})) == 1
    for way in ("commitlog", "consumequeue"):
        found = partitions_of({"path": small, "scan": way, "minPartitions": 5})
        assert 5 <= len(found) <= 12


def test_what_is_less_is_read(small: Path) -> None:
    def kinds(*filters: Any, **options: object) -> set[str]:
        found = partitions_of({"path": small, **options}, filters)
        return {piece.kind for partition in found for piece in partition.pieces}

    one_queue = EqualTo(("topic",), "odd"), EqualTo(("queue_id",), 1)
    assert kinds() == {"log"}
    assert kinds(*one_queue) == {"queue"}
    assert kinds(*one_queue, scan="commitlog") == {"log"}
    assert kinds(keys="key-3", topics="odd") == {"keys"}
    assert kinds(keys="key-3") == {"keys"}
    assert kinds(keys="key-3", scan="commitlog") == {"log"}
    assert kinds(topics="odd", maxMessagesPerPartition=100) == {"queue"}
    assert kinds(EqualTo(("topic",), "none")) == set()
    assert kinds(EqualTo(("topic",), "odd"), EqualTo(("topic",), "even")) == set()


def test_times_leave_files_out(small: Path) -> None:
    time = datetime.fromtimestamp(scan_model.FIRST_TIME / 1000 + 5000, UTC)
    whole = partitions_of({"path": small, "maxPartitionBytes": 1024})
    assert (
        len(
            partitions_of(
                {"path": small, "maxPartitionBytes": 1024},
                [GreaterThan(("store_timestamp",), time)],
            )
        )
        < len(whole) / 2
    )
    assert read_back({"path": small}, [GreaterThan(("store_timestamp",), time)]) == []


def test_by_store_time_along_queues(small: Path) -> None:
    first = scan_model.FIRST_TIME
    options: dict[str, object] = {
        "path": small,
        "consumeFromTimestamp": first + 100_000,
        "consumeUntilTimestamp": first + 300_000,
    }
    wanted = _rows(small, since=first + 100_000, until=first + 300_000)
    assert len(wanted) == 200
    same_rows(read_back(options), wanted)
    late = {"path": small, "consumeFromTimestamp": first + 10**6}
    with pytest.raises(OptionError, match="even/0 has messages, but none at or after"):
        partitions_of(late)
    assert read_back({**late, "onNoTimestampMatch": "last"}) == []
    per_queue = json.dumps({"odd": {"1": first + 390_000}})
    found = read_back({"path": small, "topics": "odd", "consumeFromTimestamp": per_queue})
    assert sum(row["queue_id"] == 1 for row in found) == len(
        _rows(small, topic="odd", queue_id=1, since=first + 390_000)
    )


def test_a_queue_without_messages_has_none_to_begin_with(small: Path) -> None:
    empty = small / "consumequeue" / "empty" / "0"
    empty.mkdir(parents=True)
    (empty / ("0" * 20)).write_bytes(bytes(400))
    options: dict[str, object] = {"path": small, "consumeFromTimestamp": scan_model.FIRST_TIME}
    assert len(read_back(options)) == 400


def test_from_a_groups_progress(small: Path) -> None:
    table = OffsetTable(small)
    table.offsets["odd", "billing"] = {0: 30, 1: 5}
    table.save()
    options = {"path": small, "topics": "odd", "consumeFrom": "group", "group": "billing"}
    starts = {0: 30, 1: 5, 2: 0}
    wanted = [
        row for row in _rows(small, topic="odd") if row["queue_offset"] >= starts[row["queue_id"]]
    ]
    same_rows(read_back(options), wanted)


def test_a_position_that_is_not_there(small: Path) -> None:
    options = {"path": small, "consumeFrom": '{"odd":{"0":1000}}'}
    with pytest.raises(OptionError, match="'consumeFrom' is 1000 for odd/0, behind its end at 67"):
        partitions_of(options)
    with pytest.raises(OptionError, match="'consumeUntil' is 3 for odd/0, which begins at 5"):
        partitions_of(
            {"path": small, "consumeFrom": '{"odd":{"0":5}}', "consumeUntil": '{"odd":{"0":3}}'}
        )
    first_log_file(small).unlink()
    with pytest.raises(MessagesRemovedError, match="odd"):
        partitions_of({"path": small, "consumeFrom": '{"odd":{"0":0}}'})
    low = min(row["queue_offset"] for row in _rows(small, topic="odd", queue_id=0))
    found = read_back(
        {
            "path": small,
            "queues": '{"odd":[0]}',
            "failOnDataLoss": "false",
            "consumeFrom": '{"odd":{"0":0}}',
        }
    )
    assert min(row["queue_offset"] for row in found) == low > 0


def first_log_file(root: Path) -> Path:
    return min((root / "commitlog").iterdir())


@pytest.mark.parametrize("way", ["commitlog", "consumequeue"])
def test_retention_takes_what_was_planned(small: Path, way: str) -> None:
    given = {"path": small, "scan": way}
    loud, quiet = (partitions_of({**given, "failOnDataLoss": on}) for on in ("true", "false"))
    first_log_file(small).unlink()
    schema = spark_schema(["physical_offset"])
    with pytest.raises(MessagesRemovedError):
        [list(read_partition(partition, schema)) for partition in loud]
    rows = [batch.num_rows for each in quiet for batch in read_partition(each, schema)]
    assert sum(rows) == len(_rows(small))


@pytest.mark.parametrize("way", ["commitlog", "consumequeue"])
def test_a_record_that_does_not_check(small: Path, way: str) -> None:
    bad = _rows(small)[137]
    at = bad["physical_offset"]
    file = small / "commitlog" / f"{at // 16384 * 16384:020d}"
    data = bytearray(file.read_bytes())
    data[at % 16384 + 90] ^= 0xFF
    file.write_bytes(data)
    given = {"path": small, "scan": way, "maxPartitionBytes": 2000}
    with pytest.raises(StoreCorruptError, match=rf"{file.name}, offset {at}: BODYCRC"):
        read_back(given)
    found = read_back({**given, "onCorrupt": "skip"}, columns=["physical_offset"])
    assert {row["physical_offset"] for row in found} == {
        row["physical_offset"] for row in _rows(small, on_corruption="skip")
    }
    assert len(found) == 399
    stopped = read_back({**given, "onCorrupt": "stop"}, columns=["physical_offset"])
    assert 0 < len(stopped) <= 399


def test_what_is_put_later_never_appears(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put_many("orders", [b"%d" % number for number in range(500)], queue_id=1)
        for options in ({}, {"scan": "consumequeue"}, {"keys": "one"}):
            store.put("orders", b"", keys=["one"], queue_id=0)
            before = len(_rows(tmp_path, keys="one" if "keys" in options else None))
            planned = partitions_of({"path": tmp_path, **options})
            store.put_many("orders", [b"late"] * 300, queue_id=1, keys=["one"] * 300)
            store.put("others", b"late", keys=["one"])
            found = [
                batch.num_rows for each in planned for batch in read_partition(each, spark_schema())
            ]
            assert sum(found) == before


def test_another_store_at_the_same_path(tmp_path: Path) -> None:
    for count in (3, 5):
        with rmqstore.open(tmp_path / "new", "a", config=rmqstore.StoreConfig.small()) as store:
            store.put_many("orders", [b"x"] * count)
        if count == 5:
            (tmp_path / "store").rename(tmp_path / "old")
        (tmp_path / "new").rename(tmp_path / "store")
        assert len(read_back({"path": tmp_path / "store"})) == count


def test_nothing_to_read_is_no_row(small: Path, tmp_path: Path) -> None:
    assert read_back({"path": small, "topicPattern": "none"}) == []
    with rmqstore.open(tmp_path / "empty", "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("orders")
    for way in ("auto", "commitlog", "consumequeue"):
        assert read_back({"path": tmp_path / "empty", "scan": way}) == []


def test_several_stores_and_globs(small: Path, tmp_path: Path) -> None:
    for name in ("b", "a"):
        with rmqstore.open(tmp_path / "more" / name, "a", config=rmqstore.StoreConfig.small()) as s:
            s.put_many(name, [b"x"] * 7)
    paths = [str(small), f"{tmp_path}/more/*", f"file:{tmp_path}/more/a"]
    found = read_back({"paths": json.dumps(paths)})
    assert len(found) == 414
    assert len(read_back({"paths": json.dumps(paths), "topics": "odd,b"})) == 207
    with pytest.raises(TopicNotFoundError, match="no topic 'odds'; nearest is 'odd'"):
        read_back({"paths": json.dumps(paths), "topics": "odds"})
    with pytest.raises(StoreNotFoundError, match="matches: give the path of a store"):
        read_back({"path": f"{tmp_path}/none*"})


def test_globs_leave_out_what_is_being_made(tmp_path: Path) -> None:
    path = tmp_path / "store"
    jobs = [
        Job("batch", "", 0, batch_directory(uuid.uuid4().hex), False),
        Job("stream", "q", 7, stream_directory("q", 7, "0" * 8), True),
    ]
    beside = [making_path(str(path), job) for job in jobs]
    beside += [place.with_name(place.name.replace(".making-", ".replaced-")) for place in beside]
    with new_store(path) as made:
        beside.append(made)
        for place in (path.with_name("store.making-of"), *beside):
            with rmqstore.open(place, "a", config=rmqstore.StoreConfig.small()) as store:
                store.put_many("orders", [b"x"] * 3)
        assert len(read_back({"path": f"{tmp_path}/st*"})) == 3
        assert len(read_back({"path": beside[0]})) == 3
        shutil.rmtree(path.with_name("store.making-of"))
        with pytest.raises(StoreNotFoundError, match="matches: give the path of a store"):
            read_back({"path": f"{tmp_path}/st*"})
    assert len(read_back({"path": f"{tmp_path}/st*"})) == 3
