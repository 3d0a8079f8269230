"""``groups``, ``lag`` and ``dlq``."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.base.times import format_millis
from rmqstore.spark.stream.offsets import record_at
from support.command_line import Run

pytestmark = pytest.mark.pure

HOUR = 3_600_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for number in range(8):
            store.put("orders", b"%d" % number, queue_id=number % 2, keys=f"k{number}", tags="t")
        store.create_group("audit", retry_max=0)
        for group in ("audit", "billing"):
            with store.consumer("orders", group=group) as orders:
                messages = iter(orders)
                for _ in range(3):
                    message = next(messages)
                    if group == "audit":
                        orders.retry(message)
                orders.commit()
    return tmp_path / "s"


def rows(run: Run, *words: object) -> list[dict[str, object]]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_groups(run: Run, root: Path) -> None:
    audit, billing = rows(run, "groups", root)
    assert audit == {
        "group": "audit",
        "topics": ["orders"],
        "retry_max": 0,
        "consume_enable": True,
        "consume_broadcast_enable": True,
    }
    assert billing["retry_max"] == 16
    assert rows(run, "groups", root, "-g", "billing") == [billing]


def test_groups_of_the_system_are_hidden(run: Run, root: Path) -> None:
    for name in ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "CID_ONSAPI_PULL", "CID_RMQ"):
        with rmqstore.open(root, "r+") as store:
            store.create_group(name)
    seen = [row["group"] for row in rows(run, "groups", root)]
    assert seen == ["CID_RMQ", "audit", "billing"]
    assert run("groups", root).stderr == ""
    assert len(rows(run, "groups", root, "--all")) == 6
    assert [row["group"] for row in rows(run, "groups", root, "-g", "TOOLS_CONSUMER")] == [
        "TOOLS_CONSUMER"
    ]
    table = run("groups", root, "-o", "table")
    assert table.stderr == "rmqstore: 3 groups of the system are hidden; --all shows them\n"
    assert run("groups", root, "-o", "table", "--all").stderr == ""


def test_groups_with_their_lag(run: Run, tmp_path: Path) -> None:
    size = 1 << 20
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=size)
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config) as store:
        store.create_group("idle")
        for number in range(25):
            store.put("orders", b"%d" % number * 50_000, queue_id=0)
            time.sleep(0.002)  # another store time
        for group, count in (("first", 1), ("late", 24), ("done", 25)):
            with store.consumer("orders", group=group) as orders:
                messages = iter(orders)
                for _ in range(count):
                    next(messages)
                orders.commit()
        every = list(store.scan())
    assert every[-1].physical_offset > size
    behind = next(one for one in every if one.physical_offset >= size)
    found = {str(row["group"]): row for row in rows(run, "groups", root, "--lag")}
    counts = [found[group]["messages"] for group in ("idle", "first", "late", "done")]
    assert counts == [0, 24, 1, 0]
    assert found["first"]["bytes"] == sum(one.store_size for one in every[1:])
    assert found["first"]["behind"] == pytest.approx(
        (every[-1].store_timestamp - every[1].store_timestamp) / 1000
    )
    # The first file goes 72 hours after its end; the last one stays.
    assert found["first"]["expires"] == format_millis(behind.store_timestamp + 72 * HOUR)
    assert [found[group]["expires"] for group in ("idle", "late", "done")] == [None] * 3
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={size}\nfileReservedTime=1\n")
    (first,) = rows(run, "groups", root, "-g", "first", "--lag", "-c", conf)
    assert first["expires"] == format_millis(behind.store_timestamp + HOUR)
    # Retention itself goes by the same time.
    with rmqstore.open(root) as store:
        before = behind.store_timestamp
        assert store.delete_expired(before=before, dry_run=True).files == 1
        assert store.delete_expired(before=before - 100, dry_run=True).files == 0


def test_dead_letters_by_a_format_and_a_number(run: Run, root: Path) -> None:
    assert run("dlq", root, "-f", "%k\\n").stdout == "k0\nk2\nk4\n"
    assert run("dlq", root, "-n", "2", "-f", "%k %s,").stdout == "k0 0,k2 2,"
    assert len(rows(run, "dlq", root, "-n", "1")) == 1
    assert rows(run, "dlq", root, "-n", "0") == []
    assert run("dlq", root, "-f", "%Z").exit_code == 2


def test_lag(run: Run, root: Path) -> None:
    every = rows(run, "lag", root)
    with rmqstore.open(root) as store:
        expected = store.lag()
    assert [(row["group"], row["queue_id"], row["messages"], row["bytes"]) for row in every] == [
        (lag.group, lag.queue_id, lag.messages, lag.bytes) for lag in expected
    ]
    assert [row["behind"] for row in every] == [lag.behind.total_seconds() for lag in expected]
    # Of each group's 3 of 4 messages in queue 0, and of what it has committed nothing of.
    assert [row["messages"] for row in every if row["queue_id"] == 0 and row["committed"]] == [1, 1]
    assert rows(run, "lag", root, "-g", "billing", "-t", "orders") == [
        row for row in every if (row["group"], row["topic"]) == ("billing", "orders")
    ]
    assert rows(run, "lag", root, "-t", "%DLQ%audit") == []


def test_lag_says_that_nobody_has_committed(run: Run, root: Path, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "new", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"x")
        store.create_group("billing")
    for file in (tmp_path / "new" / "config").glob("consumerOffset.json*"):
        file.unlink()
    result = run("lag", tmp_path / "new")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "rmqstore: no group has committed anything: config/consumerOffset.json is missing\n"
    )
    (tmp_path / "new/config/consumerOffset.json").write_text('{"offsetTable":{}}')
    assert run("lag", tmp_path / "new").stderr == "rmqstore: no group has committed anything\n"
    assert run("lag", root).stderr == ""


def stream(directory: Path, *batches: str, done: int) -> None:
    """A checkpoint as Spark writes it."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    (directory / "metadata").write_text('{"id":"5e3c-q"}')
    for number, sources in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1}}\n{sources}'
        (directory / "offsets" / str(number)).write_text(text)
        (directory / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(done):
        (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def source(store: str, *offsets: int) -> str:
    queues = {str(queue): offset for queue, offset in enumerate(offsets)}
    return json.dumps({"v": 1, "q": {store: {"orders": queues}}, "from": {}})


def test_lag_of_a_stream(run: Run, root: Path, tmp_path: Path) -> None:
    """Also beside an owner, who alone writes the groups' progress."""
    directory = tmp_path / "checkpoint"
    other = json.dumps({"logOffset": 3})
    stream(directory, source(".", 1, 1), f"-\n{other}\n{source('.', 3, 4)}", source(".", 4, 4),
           done=2)  # fmt: skip
    began = time.time()
    os.utime(directory / "commits" / "1", (began - 500, began - 500))
    with rmqstore.open(root, "r+") as store:
        store.put("orders", b"newest", queue_id=1)
        assert store["orders"][1].max_offset == 5  # dispatched: another reader sees it
        result = run("lag", root, "--checkpoint", directory)
        found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [
        (row["group"], row["topic"], row["queue_id"], row["committed"], row["messages"])
        for row in found
    ] == [("5e3c-q", "orders", 0, 3, 1), ("5e3c-q", "orders", 1, 4, 1)]
    assert all(row["bytes"] > 0 for row in found)
    said = r"rmqstore: as of batch 1, which was done (\d+) s ago; a later batch is not done yet\n"
    done = re.fullmatch(said, result.stderr)
    assert done is not None, result.stderr
    assert 499 <= int(done[1]) <= 501 + time.time() - began
    assert rows(run, "lag", root, "--checkpoint", directory, "-t", "%DLQ%audit") == []


def test_lag_of_a_stream_of_several_stores(run: Run, root: Path, tmp_path: Path) -> None:
    both = json.loads(source("/data/other", 9))
    both["q"] |= json.loads(source(str(root), 2, 2))["q"]
    for name, text in (("v1", json.dumps(both)), ("named", json.dumps({"0": both}))):
        stream(tmp_path / name, text, done=1)
        found = rows(run, "lag", root, "--checkpoint", tmp_path / name)
        assert [(row["committed"], row["messages"]) for row in found] == [(2, 2), (2, 2)]


def test_lag_of_a_stream_of_another_store(run: Run, root: Path, tmp_path: Path) -> None:
    """The offset has what the log began with: unless retention took that, it is still there."""
    offset = json.loads(source(".", 1, 1))
    for name, logs, code in (
        ("its", {".": [0, record_at(str(root), 0)]}, 0),
        ("removed", {".": [1 << 40, "0011223344556677"]}, 0),
        ("other", {".": [0, "0011223344556677"]}, 4),
        ("bad", {".": [0]}, 4),
    ):
        stream(tmp_path / name, json.dumps(offset | {"logs": logs}), done=1)
        result = run("lag", root, "--checkpoint", f"file://{tmp_path / name}")
        assert (result.exit_code, bool(result.stdout)) == (code, code == 0)
        assert ("of a stream of another store" in result.stderr) == (name == "other")
        assert result.stderr.count("\n") == 1


def test_what_is_no_progress_of_a_stream(run: Run, root: Path, tmp_path: Path) -> None:
    stream(tmp_path / "new", source(".", 1), done=0)
    stream(tmp_path / "foreign", '{"logOffset":3}', done=1)
    stream(tmp_path / "other", source("/data/other", 1), done=1)
    stream(tmp_path / "bad", '{"v":1,"q":{".":{"T":{"0":"x"}}}}', done=1)
    stream(tmp_path / "cut", '{"v":1,"q":{".":{"T":', done=1)
    stream(tmp_path / "deep", '{"v":1,"q":' + "[" * 100_000, done=1)
    stream(tmp_path / "bytes", "", done=1)
    with (tmp_path / "bytes" / "offsets" / "0").open("ab") as file:
        file.write(b'{"v":1,"q":{".":{"T":{"0":"\xff"}}}}')
    for name, text in (
        ("nowhere", "nowhere: no checkpoint of a Spark stream: no offsets/ in it"),
        ("new", "no batch is done yet"),
        ("foreign", "of a stream that reads no queue of "),
        ("other", "of a stream that reads no queue of "),
        ("bad", "offsets/0: an offset is not as it was written: "),
        ("cut", "offsets/0: an offset is not as it was written: "),
        ("deep", "offsets/0: an offset is not as it was written: "),
        ("bytes", "offsets/0: an offset is not as it was written: "),
    ):
        result = run("lag", root, "--checkpoint", tmp_path / name)
        assert (result.exit_code, result.stdout) == (4, "")
        assert text in result.stderr
        assert result.stderr.count("\n") == 1
    result = run("lag", root, "--checkpoint", " x")
    assert result.exit_code == 4
    assert "there is a blank before the path" in result.stderr
    assert run("lag", root, "--checkpoint", "x", "-g", "audit").exit_code == 2


def test_dead_letters(run: Run, root: Path) -> None:
    letters = rows(run, "dlq", root)
    assert [(row["group"], row["topic"], row["keys"], row["tags"]) for row in letters] == [
        ("audit", "orders", [key], "t") for key in ("k0", "k2", "k4")
    ]
    assert [row["reconsume_times"] for row in letters] == [1, 1, 1]
    assert rows(run, "dlq", root, "-g", "audit") == letters
    assert rows(run, "dlq", root, "-g", "billing") == []
    with rmqstore.open(root) as store:
        assert store.message(str(letters[0]["origin_msg_id"])).keys == ("k0",)


def test_tables(run: Run, root: Path) -> None:
    shown = run("groups", root, "-o", "table").stdout.splitlines()
    assert shown[0].split() == ["group", "topics", "retries", "consumes", "broadcasts"]
    assert shown[2].split() == ["billing", "orders", "16", "True", "True"]
    assert run("lag", root, "-o", "csv").stdout.splitlines()[0].startswith("group,topic,queue_id,")
    assert "k4" in run("dlq", root, "-o", "table", "--local").stdout


@pytest.mark.parametrize("verb", ["groups", "lag", "dlq"])
def test_a_misspelt_group_is_told(run: Run, root: Path, verb: str) -> None:
    result = run(verb, root, "-g", "biling")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "no group 'biling'; did you mean 'billing'?" in result.stderr
    assert run(verb, root, "-g", "../x").exit_code == 1
    assert run(verb, root, "-g", "a", "-g", "b").exit_code == 2


@pytest.mark.parametrize("name", ["a.b", "bill ing"])
def test_a_group_that_no_client_may_name(run: Run, root: Path, name: str) -> None:
    file = root / "config" / "consumerOffset.json"
    file.write_text(json.dumps({"offsetTable": {f"orders@{name}": {"0": 0}}}))
    listed = [row for row in rows(run, "lag", root) if row["group"] == name]
    assert listed
    assert rows(run, "lag", root, "-g", name) == listed
    assert [row["group"] for row in rows(run, "groups", root, "-g", name)] == [name]
    assert rows(run, "dlq", root, "-g", name) == []


def test_a_misspelt_topic_is_told(run: Run, root: Path) -> None:
    result = run("lag", root, "-t", "order")
    assert result.exit_code == 1
    assert "no topic 'order'; did you mean 'orders'?" in result.stderr


def test_beside_a_real_brokers_files(
    run: Run, tmp_path: Path, broker_copy: Callable[[str, Path], object]
) -> None:
    broker_copy("broker-killed", tmp_path)
    root = tmp_path / "broker-killed"
    assert {row["group"] for row in rows(run, "lag", root)} >= {"orders-group"}
    assert all(row["group"] == "orders-group" for row in rows(run, "dlq", root))


@pytest.mark.parametrize("name", ["consumerOffset.json", "subscriptionGroup.json"])
def test_a_torn_file_is_not_taken_for_no_groups(root: Path, run: Run, name: str) -> None:
    for file in (root / "config" / name, root / "config" / f"{name}.bak"):
        file.write_text("{ torn")
    for verb in ("groups", "lag"):
        result = run(verb, root)
        assert result.exit_code == 4
        assert f"{name}.bak" in result.stderr
        assert not result.stdout
