"""The sinks without a session: what they store, refuse, and leave behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.spark.common.columns import SchemaError
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.sink import staging
from rmqstore.spark.sink.append import UnfinishedWriteError
from rmqstore.spark.sink.ledger import Ledger
from rmqstore.spark.sink.staging import StagedFileError
from rmqstore.spark.sink.writers import BatchWriter, StreamWriter
from support import sink_driver
from support.sink_driver import bodies, rows, settings, write_batch, write_stream

pytestmark = pytest.mark.spark


def files(root: Path) -> set[str]:
    """All that the sink keeps, and all that is beside the store."""
    kept = {str(p.relative_to(root)) for p in (root / "store").glob(".spark/**/*") if p.is_file()}
    return kept | {path.name for path in root.iterdir()} - {"broker.conf", "store"}


CREATED = "store/.spark/created.json"


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_batch_is_appended(tmp_path: Path, flush: str) -> None:
    options = settings(tmp_path, flush=flush, queuenums="2")
    write_batch(options, [rows("a", "b", "c", "d"), [], rows("e")])
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d", b"e"]
    assert files(tmp_path) == {CREATED}
    write_batch(options, [rows("f")])
    write_batch(options, [])
    write_batch(options, [[], []])
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    with rmqstore.open(tmp_path / "store") as store:
        assert store["orders"].write_queue_nums == 2
        assert store.config.mapped_file_size_commit_log == 65536
        keys = store.scan(columns=["uniq_key"]).to_table()["uniq_key"].to_pylist()
        assert len(set(keys)) == 6
        for key, body in zip(keys, bodies(tmp_path), strict=True):
            assert store.message(key).body == body
    with rmqstore.open(tmp_path / "store", "a", verify="full") as store:
        assert store.recovery.clean


def test_all_columns_reach_their_message(tmp_path: Path) -> None:
    row = {
        "body": b"b",
        "topic": "bills",
        "tags": "paid",
        "keys": ["k1", "k2"],
        "queue_id": 3,
        "properties": [("a", "b")],
        "flag": 9,
    }
    options = settings(tmp_path)
    del options["topic"]
    part = sink_driver.pa.RecordBatch.from_pylist(
        [row],
        schema=sink_driver.pa.schema(
            [
                ("body", sink_driver.pa.binary()),
                ("topic", sink_driver.pa.string()),
                ("tags", sink_driver.pa.string()),
                ("keys", sink_driver.pa.list_(sink_driver.pa.string())),
                ("queue_id", sink_driver.pa.int32()),
                (
                    "properties",
                    sink_driver.pa.map_(sink_driver.pa.string(), sink_driver.pa.string()),
                ),
                ("flag", sink_driver.pa.int32()),
            ]
        ),
    )
    writer = BatchWriter(options, sink_driver.schema(*row), False)
    sinking_task = sink_driver.run_task
    real = sink_driver.batches
    sink_driver.batches = lambda _rows, size=3: iter([part])  # type: ignore
    try:
        message = sinking_task(writer, 0, [])
    finally:
        sink_driver.batches = real
    writer.commit([message])
    with rmqstore.open(tmp_path / "store") as store:
        [found] = store["bills"].messages()
        assert (found.body, found.tags, found.keys) == (b"b", "paid", ("k1", "k2"))
        assert (found.queue_id, found.flag, found.properties["a"]) == (3, 9, "b")


def test_an_empty_write_makes_the_store(tmp_path: Path) -> None:
    write_batch(settings(tmp_path), [[]])
    assert bodies(tmp_path) == []
    assert Ledger(tmp_path / "store").created


def test_a_job_is_done_once(tmp_path: Path) -> None:
    options = settings(tmp_path, jobid="night 7")
    write_batch(options, [rows("a", "b")])
    write_batch(options, [rows("a"), rows("b")])
    write_batch(settings(tmp_path, jobid="night 8"), [rows("c")])
    assert bodies(tmp_path) == [b"a", b"b", b"c"]
    assert Ledger(tmp_path / "store").staged_jobs() == []


def test_a_job_may_have_numbered_batches(tmp_path: Path) -> None:
    for batch, text in ((0, "a"), (0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c")):
        write_batch(settings(tmp_path, jobid="totals", batchid=str(batch)), [rows(text)])
    write_batch(settings(tmp_path, jobid="others", batchid="0"), [rows("d")])
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d"]
    assert len([name for name in files(tmp_path) if "ledger" in name]) == 2


def test_batches_of_a_query_come_once(tmp_path: Path) -> None:
    options = settings(tmp_path)
    write_stream(options, "q", 0, [rows("a", "b")])
    write_stream(options, "q", 1, [rows("c"), rows("d")])
    write_stream(options, "q", 1, [rows("d", "c")])
    write_stream(options, "q", 0, [rows("b"), rows("a")])
    write_stream(options, "other", 0, [rows("e")])
    write_stream(options, "q", 2, [[]])
    write_stream(options, "q", 3, [rows("f")])
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert Ledger(tmp_path / "store").staged_jobs() == []
    writer, messages = sink_driver.stage_stream(options, "q", 4, [rows("g")])
    wanted = "batch 5 staged for batch 4 of the query q: stop the query and start it again"
    with pytest.raises(rmqstore.StoreError, match=wanted):
        writer.commit(messages, 5)


def test_an_abort_leaves_nothing(tmp_path: Path) -> None:
    options = settings(tmp_path)
    writer, messages = sink_driver.stage_batch(options, [rows("a"), rows("b")])
    assert len(list((tmp_path / "store").rglob("*.arrow"))) == 2
    sink_driver.again(writer).abort([None, messages[1]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf"]
    write_batch(options, [rows("kept")])
    writer, _ = sink_driver.stage_batch(options, [rows("a"), rows("b")])
    writer.abort([None, None])
    assert files(tmp_path) == {CREATED}
    writer, messages = sink_driver.stage_stream(options, "q", 0, [rows("a"), rows("b")])
    writer.abort([None, messages[1]], 0)
    assert files(tmp_path) == {CREATED}
    assert bodies(tmp_path) == [b"kept"]


@pytest.mark.parametrize("known_by", ["checkpointlocation", "queryname"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_abort_without_messages_goes_by_the_query(
    tmp_path: Path, overwrite: bool, known_by: str
) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    ours = options | {known_by: "/tmp/a"}
    other = options | {known_by: "/tmp/b"}
    write_batch(options, [rows("kept")])
    _, messages = sink_driver.stage_stream(other, "q2", 4, [rows("x")], overwrite)
    writer, _ = sink_driver.stage_stream(ours, "q1", 4, [rows("a")], overwrite)
    writer.abort([None], 3)
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    writer.abort([None], 4)
    [left] = tmp_path.rglob("*.arrow")
    assert left.name == messages[0].file.name


def test_an_abort_without_messages_spares_queries_of_no_name(tmp_path: Path) -> None:
    options = settings(tmp_path)
    writer, messages = sink_driver.stage_stream(options, "q1", 0, [rows("a")])
    StreamWriter(options, sink_driver.schema(), False).abort([None], 0)
    writer.commit(messages, 0)
    assert bodies(tmp_path) == [b"a"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_abort_waits_for_no_lock(tmp_path: Path, overwrite: bool) -> None:
    options = settings(tmp_path, locktimeout="100h", allowoverwrite="true", queryname="q")
    write_batch(options, [rows("kept")])
    _, [told, _] = sink_driver.stage_stream(options, "q", 0, [rows("a"), rows("b")], overwrite)
    _, _ = sink_driver.stage_stream(options, "q", 1, [rows("a")], overwrite)
    batch, _ = sink_driver.stage_batch(options, [rows("c")], overwrite)
    assert len(list(tmp_path.rglob("*.arrow"))) == 4
    with rmqstore.open(tmp_path / "store", "a"):
        StreamWriter(options, sink_driver.schema(), overwrite).abort([told, None], 0)
        StreamWriter(options, sink_driver.schema(), overwrite).abort([None], 1)
        sink_driver.again(batch).abort([None])
        assert list(tmp_path.rglob("*.arrow")) == []
    assert bodies(tmp_path) == [b"kept"]


def test_a_failing_task_leaves_nothing(tmp_path: Path) -> None:
    options = settings(tmp_path)
    with pytest.raises(ValueError, match="partition 1, in its 1 rows from 0 on: column 'body'"):
        sink_driver.stage_batch(options, [rows("a"), [{"body": b"x" * 70000}]])
    left = [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert [name.split("-")[:2] for name in left] == [["part", "00000"]]  # until the abort


def test_errors_come_before_any_task(tmp_path: Path) -> None:
    options = settings(tmp_path)
    schema = sink_driver.schema
    with pytest.raises(OptionError, match="the sink has no option 'topicc'"):
        BatchWriter(options | {"topicc": "x"}, schema(), False)
    with pytest.raises(SchemaError, match="the sink writes no column 'msg_id'"):
        BatchWriter(options, schema("body", "msg_id"), False)
    with pytest.raises(SchemaError, match="the sink writes no column 'msg_id'"):
        StreamWriter(options, schema("body", "msg_id"), False)
    with pytest.raises(OptionError, match="'jobId' is for a batch write"):
        StreamWriter(options | {"jobid": "x"}, schema(), False)
    with pytest.raises(OptionError, match=r"output mode complete .* 'allowOverwrite' has to be"):
        StreamWriter(options, schema(), True)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_locked_store_is_named_with_its_process(tmp_path: Path, overwrite: bool) -> None:
    options = settings(tmp_path, locktimeout="100ms", allowoverwrite="true")
    write_batch(options, [rows("a")])
    staged = sink_driver.stage_batch(options, [rows("b")], overwrite)
    with rmqstore.open(tmp_path / "store", "a") as store:
        error = rf"store is open for writing elsewhere by process {os.getpid()} \(.*0.1 s; option"
        with pytest.raises(rmqstore.StoreLockedError, match=error):
            BatchWriter(options, sink_driver.schema(), overwrite)
        with pytest.raises(rmqstore.StoreLockedError, match=error):
            staged[0].commit(staged[1])
        with pytest.raises(rmqstore.StoreLockedError, match=error):
            write_stream(options, "q", 0, [rows("c")], overwrite)
        store.put("orders", b"mine")
    staged[0].commit(staged[1])
    assert bodies(tmp_path) == ([b"b"] if overwrite else [b"a", b"mine", b"b"])


def test_staged_files_that_are_gone(tmp_path: Path) -> None:
    options = settings(tmp_path)
    writer, messages = sink_driver.stage_batch(options, [rows("a")])
    [path] = tmp_path.rglob("*.arrow")
    path.unlink()
    with pytest.raises(StagedFileError, match="1 rows of the write is missing"):
        writer.commit(messages)
    writer.abort(messages)
    assert bodies(tmp_path) == []
    assert Ledger(tmp_path / "store").intent() is None


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_staged_body_that_changed(tmp_path: Path, overwrite: bool) -> None:
    """Such a file is a valid one, of the same size: nothing of the write is stored."""
    options = settings(tmp_path, allowoverwrite="true")
    write_batch(options, [rows("old")], overwrite=True)
    parts = [rows("first"), rows("second")]
    writer, messages = sink_driver.stage_batch(options, parts, overwrite)
    [path] = (p for p in tmp_path.rglob("*.arrow") if b"second" in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"second", b"seconD"))
    with pytest.raises(StagedFileError, match=r"has the sum [0-9a-f]{16}, was staged with"):
        writer.commit(messages)
    writer.abort(messages)
    assert bodies(tmp_path) == [b"old"]
    assert files(tmp_path) == {CREATED}
    write_batch(options, parts, overwrite)
    assert bodies(tmp_path)[-2:] == [b"first", b"second"]
    assert len(bodies(tmp_path)) == (2 if overwrite else 3)


def test_a_store_that_changed_meanwhile(tmp_path: Path) -> None:
    options = settings(tmp_path)
    del options["config"]
    writer, messages = sink_driver.stage_batch(options, [rows("a")])
    with rmqstore.open(tmp_path / "store", "a", config=tmp_path / "broker.conf"):
        pass
    with pytest.raises(rmqstore.StoreError, match=r"checked for a store with .* write again"):
        writer.commit(messages)
    assert not Ledger(tmp_path / "store").created


def test_a_write_that_cannot_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the middle: what has begun comes with the next write, once."""
    options = settings(tmp_path)
    writer, messages = sink_driver.stage_batch(options, [rows("a", "b", "c", "d"), rows("e")])
    real = rmqstore.MessageStore.put_table
    calls = []

    def put_table(store: Any, table: Any, *, wait: bool = True) -> Any:
        calls.append(table)
        if len(calls) == 2:
            raise rmqstore.PutError("no space is left")
        return real(store, table, wait=wait)

    monkeypatch.setattr(rmqstore.MessageStore, "put_table", put_table)
    with pytest.raises(UnfinishedWriteError, match=r"has begun .*no space is left; the next write"):
        writer.commit(messages)
    writer.abort(messages)
    assert bodies(tmp_path) == [b"a", b"b", b"c"]
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    write_batch(options, [[]])
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d", b"e"]
    assert files(tmp_path) == {CREATED}


def test_no_store_is_made_among_other_files(tmp_path: Path) -> None:
    options = settings(tmp_path)
    store = tmp_path / "store"
    store.mkdir()
    for name in ("thesis.txt", "commitlog", "b", "c", "d"):
        (store / name).touch()
    error = rf"'{store}': there is 'b', 'c', 'd' and 1 more, and no store; a store is made in"
    for make in (BatchWriter, StreamWriter):
        with pytest.raises(OptionError, match=error):
            make(options, sink_driver.schema(), False)
    assert len(list(store.iterdir())) == 5
    for name in ("commitlog", "b", "c", "d"):
        (store / name).unlink()
    with pytest.raises(OptionError, match=r"there is 'thesis.txt', and no store"):
        write_batch(options, [rows("a")])
    (store / "thesis.txt").unlink()
    write_batch(options, [rows("a")])
    assert Ledger(store).created
    (store / "notes.txt").touch()
    write_batch(options, [rows("b")])  # in a store it is the user's matter
    assert bodies(tmp_path) == [b"a", b"b"]


def test_what_comes_meanwhile_is_not_the_sinks(tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    writer, messages = sink_driver.stage_batch(options, [rows("a")])
    (tmp_path / "store" / "thesis.txt").touch()
    writer.commit(messages)
    assert bodies(tmp_path) == [b"a"]
    with pytest.raises(OptionError, match="this sink did not create what is there"):
        BatchWriter(options, sink_driver.schema(), True)


@pytest.mark.parametrize("whole", [False, True])
def test_a_store_that_died_at_its_making_is_written(tmp_path: Path, whole: bool) -> None:
    options = settings(tmp_path)
    store = tmp_path / "store"
    with rmqstore.open(store, "a", config=options["config"]) as made:
        made.create_topic("orders", 2)
        made.delete_topic("orders")
    for path in (store / "commitlog").iterdir():
        path.unlink()
    for name in ("abort", "rmqstore-deleted.json.bak"):
        (store / name).touch()
    (store / "rmqstore-quarantine").mkdir()
    if not whole:
        for name in ("commitlog", "consumequeue"):
            (store / name).rmdir()
    write_batch(options, [rows("a")])
    assert bodies(tmp_path) == [b"a"]
    assert not Ledger(store).created


# Errors as the driver shows them


def test_errors_are_told_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark shows a worker's traceback, unless the worker's environment says otherwise."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    plain: list[str] = []

    def happens(error: type[Exception], call: Callable[[], object]) -> None:
        with monkeypatch.context() as patch:
            patch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
            with pytest.raises(error) as raised:
                call()
            if os.environ.get("SPARK_HIDE_TRACEBACK"):
                plain.append(type(raised.value).__name__)
        os.environ.pop("SPARK_HIDE_TRACEBACK", None)

    def unfinished(cause: Exception) -> None:
        def put_table(*_: Any, **__: Any) -> Any:
            raise cause

        again, staged = sink_driver.stage_batch(settings(tmp_path), [rows("b")])
        with monkeypatch.context() as patch:
            patch.setattr(rmqstore.MessageStore, "put_table", put_table)
            happens(UnfinishedWriteError, lambda: again.commit(staged))
        write_batch(options, [[]])

    options = settings(tmp_path, locktimeout="10ms")
    bad = [[{"body": b"x" * 70000}]]
    happens(ValueError, lambda: sink_driver.stage_batch(options, bad))
    happens(ValueError, lambda: sink_driver.stage_stream(options, "q", 0, bad))
    writer, messages = sink_driver.stage_batch(options, [rows("a")])
    stream, batch = sink_driver.stage_stream(options, "q", 0, [rows("a")])
    with rmqstore.open(tmp_path / "store", "a", config=options["config"]):
        happens(rmqstore.StoreLockedError, lambda: writer.commit(messages))
        happens(rmqstore.StoreLockedError, lambda: stream.commit(batch, 0))
    for path in tmp_path.rglob("*.arrow"):
        path.unlink()
    happens(StagedFileError, lambda: writer.commit(messages))
    unfinished(rmqstore.PutError("no space is left"))
    told = ["RowError"] * 2 + ["StoreLockedError"] * 2 + ["StagedFileError", "UnfinishedWriteError"]
    assert plain == told
    unfinished(KeyError("a bug"))
    monkeypatch.setattr(staging, "prepare", lambda *_: {}["a bug"])
    happens(KeyError, lambda: sink_driver.stage_batch(options, [rows("a")]))
    assert len(plain) == 6
