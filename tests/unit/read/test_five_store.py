"""The store that a real RocketMQ 5.3.3 left behind: all of it is read, nothing is written."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from support import oracle, oracle_store
from support.strategies import assert_same
from support.unprivileged import run_unprivileged

LONG = "long_topic" * 20
SYS_FLAGS = {"none": 0, "LZ4": 0x101, "ZSTD": 0x201, "ZLIB": 0x301}
COUNTS = {"none": 375, "LZ4": 375, "ZSTD": 375, "ZLIB": 375}


def sha1(body: bytes) -> bytes:
    return hashlib.sha1(body).digest()


def row_of(message: rmqstore.Message) -> tuple[object, ...]:
    """A message's values in the order of the dump's columns."""
    names = {flag: name for name, flag in SYS_FLAGS.items()}
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_size,
        names[message.sys_flag],
        *message.keys,
        sha1(message.body),
    )


@pytest.fixture(scope="module")
def rows(five_store):
    """The dump's rows as tuples."""
    return [tuple(vars(row).values()) for row in five_store.dump]


@pytest.fixture(scope="module", params=["complete", "log alone"])
def root(request, five_store, tmp_path_factory):
    """The store, and what is left of it where only the log was saved."""
    if request.param == "complete":
        return five_store.root
    alone = tmp_path_factory.mktemp("alone")
    shutil.copytree(five_store.root / "commitlog", alone / "commitlog")
    return alone


def test_what_the_store_holds(five_store, rows):
    assert len(rows) == 1500
    assert Counter(row.compression for row in five_store.dump) == COUNTS
    assert Counter(row.topic for row in five_store.dump) == {"five": 1200, LONG: 300}
    versions = Counter(
        int.from_bytes(data[row.physical_offset % (1 << 20) + 4 :][:4], "big")
        for row in five_store.dump
        for data in [log_data(five_store.root, row.physical_offset)]
    )
    assert versions == {0xDAA320A7: 1200, 0xDAA320AB: 300}


def log_data(root: Path, offset: int) -> memoryview:
    start = offset - offset % (1 << 20)
    path = root / "commitlog" / f"{start:020d}"
    return memoryview(np.memmap(path, np.uint8, "r"))  # type: ignore[arg-type]


def test_every_message_by_place_and_by_id(root, rows):
    with rmqstore.open(root) as store:
        messages = [store.at(row[3]) for row in rows]
        assert [row_of(message) for message in messages] == rows
        assert [row_of(store.message(one.msg_id)) for one in messages[::50]] == rows[::50]


def test_every_message_by_queue(root, rows):
    queues = {}
    for row in rows:
        queues.setdefault((row[0], row[1]), []).append(row)
    with rmqstore.open(root) as store:
        found = {
            (topic, queue_id): [row_of(message) for message in queue]
            for topic in store.topics
            for queue_id, queue in store[topic].items()
        }
        assert found == queues
        for (topic, queue_id), wanted in queues.items():
            queue = store[topic][queue_id]
            assert (queue.min_offset, queue.max_offset, len(queue)) == (0, *[len(wanted)] * 2)
            units = [unit[:2] for unit in queue.units().tolist()]
            assert units == [(row[3], row[4]) for row in wanted]
            got = store.get(topic, queue_id, 7, 50)
            assert [row_of(message) for message in got.messages] == wanted[7:57]
            assert row_of(queue[-1]) == wanted[-1]
            stored = queue[len(queue) // 2].store_timestamp
            first = queue.offset_at(stored)
            assert queue[first].store_timestamp >= stored
        topic = store[LONG]
        assert [row_of(message) for message in topic.messages()] == [
            row for row in rows if row[0] == LONG
        ]


def test_every_message_by_key(root, rows):
    with rmqstore.open(root) as store:
        for topic in ("five", LONG):
            wanted = [row for row in rows if row[0] == topic]
            keys = [row[6] for row in wanted]
            found = store.query_many(topic, keys)
            assert [[row_of(message) for message in hits] for hits in found] == [
                [row] for row in wanted
            ]
            offsets, starts = store.locate_many(topic, keys)
            assert offsets.tolist() == [row[3] for row in wanted]
            assert starts.tolist() == list(range(len(wanted) + 1))
            (hit,) = store.query(topic, keys[11])
            assert row_of(hit) == wanted[11]
            assert store.query("five" if topic == LONG else LONG, keys[11]) == []


def test_the_index_of_five_covers_its_log(five_store, rows):
    """The layout of 5.3.3's index files is 4.9.3's: the same entries are found by them alone."""
    with rmqstore.open(five_store.root) as store:
        assert store.index_coverage() == [(0, rows[-1][3] + rows[-1][4])]
        for row in rows[::7]:
            (hit,) = store.query(row[0], row[6], index_only=True)
            assert row_of(hit) == row


def test_every_message_by_scan(root, rows):
    pa = pytest.importorskip("pyarrow")
    with rmqstore.open(root) as store:
        table = pa.table(store.scan())
        found = zip(
            *(
                table.column(name).to_pylist()
                for name in ("topic", "queue_id", "queue_offset", "physical_offset", "store_size")
            ),
            [sha1(body) for body in table.column("body").to_pylist()],
            strict=True,
        )
        assert list(found) == [(*row[:5], row[7]) for row in rows]
        along = pa.table(store.scan(LONG, columns=["queue_id", "queue_offset", "body"]))
        assert along.num_rows == 300


def test_every_record_against_the_slow_codec(five_store):
    records = list(oracle_store.walk_log(five_store.root / "commitlog"))
    assert len(records) == 1500
    with rmqstore.open(five_store.root) as store:
        for record in records:
            message = store.at(record.physical_offset)
            assert_same(message, record)
            assert message.body == record.body
            data = log_data(five_store.root, record.physical_offset)
            decoded = rmqstore.decode_record(data, record.physical_offset % (1 << 20))
            assert_same(decoded, record)


def test_reading_changes_nothing_and_notes_nothing(five_store, caplog):
    before = oracle_store.snapshot(five_store.root)
    with rmqstore.open(five_store.root, verify="full") as store:
        assert store.recovery.clean
        (note,) = store.recovery.notes
        assert note == "1500 records and 1500 units were checked: nothing was found"
        assert len(store.topics) == 2
    assert not caplog.records
    assert oracle_store.snapshot(five_store.root) == before


def test_reading_needs_no_privileges(five_store, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(five_store.root, root)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = oracle_store.snapshot(root)
        code = (
            "import rmqstore, sys\n"
            "with rmqstore.open(sys.argv[1]) as store:\n"
            "    print(sum(len(m.body) > 0 for t in store for q in store[t].values() for m in q))"
        )
        done = run_unprivileged("-c", code, root)
        assert (done.returncode, done.stdout) == (0, "1500\n"), done.stderr
        assert oracle_store.snapshot(root) == before
    finally:
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)


@pytest.mark.parametrize("mode", ["r+", "a"])
@pytest.mark.parametrize("gone", [(), ("consumequeue",), ("consumequeue", "index", "checkpoint")])
@pytest.mark.parametrize("on_corruption", ["raise", "fill"])
def test_writing_modes_refuse_and_change_nothing(five_store, tmp_path, mode, gone, on_corruption):
    root = tmp_path / "store"
    shutil.copytree(five_store.root, root)
    for name in gone:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = oracle_store.snapshot(root)
    for verify in ("tail", "full"):
        with pytest.raises(rmqstore.IncompatibleStoreError, match="RocketMQ 5") as caught:
            rmqstore.open(root, mode, on_corruption=on_corruption, verify=verify)
        wanted = "commitlog" if gone else f"a topic longer than 127, {LONG[:57]}"
        assert wanted in str(caught.value)
        assert "mode 'r'" in str(caught.value)
        after = oracle_store.snapshot(root)
        assert {name: after[name][3] for name in after} == {
            name: before[name][3] for name in before
        }


def run(*args: object):
    return CliRunner().invoke(main, [str(one) for one in args])


def test_the_command_line(five_store, rows):
    root = five_store.root
    info = json.loads(run("info", root).stdout)
    assert info["log_end"] == rows[-1][3] + rows[-1][4]
    shown = [json.loads(line) for line in run("topics", root).stdout.splitlines()]
    assert sorted(line["topic"] for line in shown) == ["five", LONG]
    for topic in ("five", LONG):
        wanted = [row for row in rows if row[0] == topic]
        lines = run("cat", root, "-t", topic).stdout.splitlines()
        assert sorted(json.loads(line)["physical_offset"] for line in lines) == [
            row[3] for row in wanted
        ]
        found = json.loads(run("find", root, "-t", topic, "-k", wanted[5][6]).stdout)
        assert found["physical_offset"] == wanted[5][3]
    refused = CliRunner().invoke(main, ["put", str(root), "five"], input="x\n")
    assert refused.exit_code == 4
    assert "RocketMQ 5" in refused.stderr
    assert "--config" not in refused.stderr


def test_a_body_needs_the_extra_and_nothing_else_does(five_store, rows, monkeypatch):
    """Without the packages only a body that needs one is an error, and that names the extra."""
    for name in ("lz4", "lz4.frame", "zstandard", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    root = five_store.root
    with rmqstore.open(root) as store:
        for row in rows[:40]:
            message = store.at(row[3])
            if row[5] in ("LZ4", "ZSTD"):
                with pytest.raises(rmqstore.StoreError, match=r"pip install (lz4|zstandard)"):
                    _ = message.body
                assert len(message.raw_body) > 0
            else:
                assert sha1(message.body) == row[7]
        pa = pytest.importorskip("pyarrow")
        assert pa.table(store.scan(columns=["topic", "raw_body"])).num_rows == 1500
        with pytest.raises(Exception, match=r"pip install (lz4|zstandard)"):
            pa.table(store.scan(columns=["body"]))
    lines = run("cat", root, "-t", "five", "--body", "none").stdout.splitlines()
    assert len(lines) == 1200
    done = run("cat", root, "-t", "five")
    assert done.exit_code == 4
    assert "pip install lz4" in done.stderr
    assert "leave bodies out with --body none" in done.stderr
    place = next(f"{row[0]}/{row[1]}@{row[2]}" for row in rows if row[5] == "LZ4")
    key = next(row[6] for row in rows if row[5] == "LZ4")
    for verb in (["cat"], ["get", place], ["find", "-k", key]):
        for form in ("table", "jsonl", "csv"):
            shown = run(verb[0], root, *verb[1:], "--body", "none", "-o", form)
            assert shown.exit_code == 0, shown.stderr


def test_a_body_larger_than_max_body_size(five_store, rows):
    config = rmqstore.StoreConfig(
        max_body_size=16, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=6000
    )
    with rmqstore.open(five_store.root, config=config) as store:
        for row in rows[:40]:
            if row[5] != "none":
                with pytest.raises(rmqstore.StoreCorruptError, match="max_body_size, 16") as caught:
                    _ = store.at(row[3]).body
                assert caught.value.offset == row[3]


def test_the_parts_read_it(five_store, rows):
    log = rmqstore.CommitLog(five_store.root / "commitlog", file_size=1 << 20)
    with log:
        assert list(log.records()) == [(row[3], row[4]) for row in rows]


def test_what_no_record_is_made_of():
    """Writing stays with the first version: a long topic is refused, a record of it is read."""
    with pytest.raises(ValueError, match="at most 127 bytes"):
        rmqstore.encode_record(LONG, b"x")
    data = oracle.encode_record(LONG, b"x", version=2)
    assert rmqstore.decode_record(data).topic == LONG


def test_a_log_takes_no_record_of_the_second_version(tmp_path):
    with rmqstore.CommitLog(tmp_path / "log", file_size=1 << 16, mode="a") as log:
        with pytest.raises(rmqstore.MessageIllegalError, match="second version"):
            log.append([oracle.encode_record(LONG, b"x", version=2)])
        assert log.max_offset == 0
