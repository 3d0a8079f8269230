"""Tasks on a host that does not see the planned store: each says so, and makes or changes nothing.

No cluster is needed: what Spark hands to a task is planned here, and run after the store is gone
from its path, is empty there, or is another one.
"""

from __future__ import annotations

import pickle
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytest.importorskip("pyspark")

from rmqstore.offline import Build, LogPiece, LogSource, plan_log
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.common.sight import SeenStore, StoreNotVisibleError, seen
from rmqstore.spark.jobs import arrow_map, tasks, verify
from rmqstore.spark.jobs.copy_tasks import CopyTask
from rmqstore.spark.jobs.rebuild_tasks import RebuildTasks
from rmqstore.spark.read.batch import BatchReader
from rmqstore.spark.read.partitions import read_partition
from rmqstore.spark.sink import writers
from rmqstore.spark.stream.source import StreamReader
from support import sink_driver

pytestmark = pytest.mark.spark

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16384,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=150,
)
MADE: dict[bytes, Path] = {}  # closed stores by the text of their messages, to copy
NAMED = rf"host {socket.gethostname()} does not see /"


def fill(root: Path, text: bytes = b"x") -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(200):
            store.put("T", text * 100, queue_id=number % 2, keys=[f"k{number}"])


@pytest.fixture(scope="module", autouse=True)
def made(tmp_path_factory: pytest.TempPathFactory) -> None:
    for text in (b"x", b"other"):
        MADE[text] = tmp_path_factory.mktemp("made") / "store"
        fill(MADE[text], text)


def make(root: Path, text: bytes = b"x") -> None:
    shutil.copytree(MADE[text], root, dirs_exist_ok=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path / "store")
    return tmp_path / "store"


def gone(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def empty(root: Path) -> None:
    gone(root)
    root.mkdir()


def another(root: Path) -> None:
    gone(root)
    make(root, b"other")


def without_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def without_last_file(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()


def emptied(name: str) -> Callable[[Path], None]:
    """A mount point whose disk is not there."""

    def empty(root: Path) -> None:
        shutil.rmtree(root / name)
        (root / name).mkdir()

    return empty


def without_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def without_index(root: Path) -> None:
    shutil.rmtree(root / "index")


IN_PLACE = [without_log, without_last_file]
BLIND: list[Callable[[Path], None]] = [gone, empty, another, *IN_PLACE]
EMPTIED = [emptied(name) for name in ("commitlog", "consumequeue", "index")]
PARTS = [*BLIND, without_queues, without_index, *EMPTIED]


def files(root: Path) -> dict[str, bytes | None]:
    found = sorted(root.parent.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def refused(root: Path, work: Callable[[], Any]) -> None:
    before = files(root)
    with pytest.raises(StoreNotVisibleError, match=NAMED) as told:
        work()
    assert "\n" not in str(told.value)
    assert "same path" in str(told.value)
    assert files(root) == before


@pytest.mark.parametrize("blind", PARTS)
def test_what_was_seen(root: Path, blind: Callable[[Path], None]) -> None:
    planned = pickle.loads(pickle.dumps(seen(str(root))))
    planned.check()
    blind(root)
    refused(root, planned.check)


def test_the_same_store_elsewhere_and_later(root: Path) -> None:
    planned = seen(str(root))
    copy = shutil.copytree(root, root.with_name("copy"))
    shutil.rmtree(root)
    copy.rename(root)  # other inodes, as on another host
    planned.check()
    with rmqstore.open(root, "r+") as store:
        store.put_many("T", [b"later" * 50] * 300)
    sorted((root / "commitlog").iterdir())[0].unlink()  # retention
    planned.check()


def test_a_store_without_messages(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG):
        pass
    planned = seen(str(root))
    planned.check()
    empty(root)
    refused(root, planned.check)


@pytest.mark.parametrize("blind", PARTS)
@pytest.mark.parametrize("number", [0, -2, -1])
def test_verify(root: Path, blind: Callable[[Path], None], number: int) -> None:
    check = verify._Check(
        plan_log(root, CONFIG), tuple(verify._index_files(str(root))), seen(str(root))
    )
    count = check.plan.count + len(check.index_files) + 1
    check = pickle.loads(pickle.dumps(check))
    rows = [row for batch in check.run(number % count) for row in batch.to_pylist()]
    assert all(row["kind"].startswith(".") for row in rows)
    blind(root)
    refused(root, lambda: list(check.run(number % count)))
    refused(root, lambda: list(check.finish(iter(()))))


@pytest.mark.parametrize("name", ["T", "T/1"])
def test_verify_names_a_link_to_nothing(root: Path, name: str) -> None:
    """A topic or a queue on a disk that this host has not mounted."""
    check = verify._Check(plan_log(root, CONFIG), (), seen(str(root)))
    link = root / "consumequeue" / name
    shutil.rmtree(link)
    link.symlink_to("/nowhere/queues")
    rows = [row for batch in check.run(check.plan.count) for row in batch.to_pylist()]
    rows = [row for batch in check.finish(iter([_batch(rows)])) for row in batch.to_pylist()]
    (row,) = (row for row in rows if row["kind"] == "unreadable")
    assert row["topic"] == "T"
    assert f"{link} is a symbolic link to /nowhere/queues" in row["found"]
    assert f"on host {socket.gethostname()}" in row["found"]


def _batch(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, arrow_map.arrow_schema(verify._ROWS))


@pytest.mark.parametrize("blind", BLIND)
@pytest.mark.parametrize("step", ["scan_direct", "scan_rows", "write_rows", "run_step"])
def test_rebuild(root: Path, tmp_path: Path, blind: Callable[[Path], None], step: str) -> None:
    made = tmp_path / "rebuilt"
    made.mkdir()
    build = Build(plan_log(root), str(made))
    build.create()
    for lost in (root, made):
        work = RebuildTasks(build, (seen(str(root)), SeenStore(str(made))))
        (blind if lost == root else gone)(lost)
        arguments = {"write_rows": [iter(())], "run_step": [[None], 0]}.get(step, [0])
        before = files(root)
        if step == "write_rows":
            (row,) = [row for batch in work.write_rows(*arguments) for row in batch.to_pylist()]
            failure = pickle.loads(row["data"])
        else:
            (row,) = list(getattr(work, step)(*arguments))
            failure = pickle.loads(row[4])
        assert isinstance(failure.error, StoreNotVisibleError)
        assert f"host {socket.gethostname()} does not see" in str(failure.error)
        assert files(root) == before
        if lost == root:
            shutil.rmtree(root, ignore_errors=True)
            make(root) if blind in IN_PLACE else root.with_name("elsewhere").rename(root)


def test_jobs_that_make_a_store(root: Path, tmp_path: Path) -> None:
    making = tmp_path / "new.making-1"
    (making / "commitlog").mkdir(parents=True)
    source = LogSource(str(root / "commitlog"), CONFIG.mapped_file_size_commit_log)
    copy = CopyTask((LogPiece(0, 0, 1000, 1000),), {0: source}, str(making / "commitlog"), 16384, 0)
    planned = (seen(str(root)), SeenStore(str(making)))
    gone(making)
    before = files(root)
    batch = tasks._answered(0, copy.run, planned)
    error = pickle.loads(batch.column(1)[0].as_py())
    assert isinstance(error, StoreNotVisibleError)
    assert f"on host {socket.gethostname()}" in error.__notes__
    assert files(root) == before


def test_an_error_of_a_task_names_its_host() -> None:
    def fail() -> None:
        raise rmqstore.StoreCorruptError("/data/file", 7, "no record")

    batch = tasks._answered(0, fail, ())
    error = pickle.loads(batch.column(1)[0].as_py())
    assert str(error) == "/data/file, offset 7: no record"
    assert error.__notes__ == [f"on host {socket.gethostname()}"]


@pytest.mark.parametrize("scan", ["commitlog", "consumequeue"])
def test_a_batch_query(root: Path, scan: str) -> None:
    schema = spark_schema()
    reader = BatchReader({"path": str(root), "scan": scan, "minPartitions": "3"}, schema)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    gone(root)
    for partition in partitions:
        refused(root, lambda partition=partition: list(read_partition(partition, schema)))


def test_a_stream(root: Path) -> None:
    reader = StreamReader({"path": str(root), "consumeFrom": "first"}, spark_schema())
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    partitions = reader.partitions(start, reader.latestOffset(start, limit))
    task = pickle.loads(pickle.dumps(reader))
    reader.stop()
    gone(root)
    for partition in partitions:
        refused(root, lambda partition=partition: list(task.read(partition)))


@pytest.mark.parametrize("kind", ["batch", "overwrite", "stream"])
@pytest.mark.parametrize("blind", [gone, empty, another])
@pytest.mark.parametrize("is_there", [True, False])
def test_sinks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    blind: Callable[[Path], None],
    is_there: bool,
) -> None:
    home = tmp_path / "mounted"
    home.mkdir()
    options = sink_driver.settings(home, allowoverwrite="true")
    path = Path(options["path"])
    if is_there:
        sink_driver.write_batch(options, [[{"body": b"first"}]], overwrite=True)
    schema = sink_driver.schema("body")
    context = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    if kind == "stream":
        writer: Any = writers.StreamWriter(options, schema, False)
    else:
        writer, context = writers.BatchWriter(options, schema, kind == "overwrite"), {}
    planned = pickle.dumps(writer)
    blind(home)
    if blind is another:
        shutil.copy(tmp_path / "elsewhere" / "broker.conf", home)
        make(path, b"other")
    before = files(home)
    monkeypatch.setattr(writers, "_task", lambda: sink_driver.Task(0, context))
    with pytest.raises(StoreNotVisibleError, match=NAMED):
        pickle.loads(planned).write(sink_driver.batches([{"body": b"lost"}]))
    assert files(home) == before
