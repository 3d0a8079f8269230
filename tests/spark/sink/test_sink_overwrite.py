"""The sinks that overwrite: what takes the place of what, and what stays where it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.sink import exchange, overwrite
from rmqstore.spark.sink.writers import BatchWriter, StreamWriter
from support import sink_driver
from support.sink_driver import bodies, rows, settings, write_batch, write_stream

pytestmark = pytest.mark.spark


def test_a_store_is_overwritten_as_a_whole(tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    without = {key: value for key, value in options.items() if key != "allowoverwrite"}
    write_batch(without | {"queuenums": "3"}, [rows("a", "b")], overwrite=True)
    write_stream(options, "q", 5, [rows("s")])
    assert bodies(tmp_path) == [b"a", b"b", b"s"]
    del options["config"]
    with rmqstore.open(tmp_path / "store") as reader:
        old = reader.scan(columns=["body"])
        write_batch(options, [rows("c"), rows("d", "e", "f", "g")], overwrite=True)
        assert old.count() == 3
    assert bodies(tmp_path) == [b"c", b"d", b"e", b"f", b"g"]
    with rmqstore.open(tmp_path / "store", "a", verify="full") as store:
        assert store.recovery.clean
        assert store.config.mapped_file_size_commit_log == 65536
        assert store["orders"].write_queue_nums == 3
    write_stream(options, "q", 5, [rows("s")])
    assert bodies(tmp_path) == [b"c", b"d", b"e", b"f", b"g"]
    write_batch(options, [[]], overwrite=True)
    assert bodies(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store"}


def test_a_link_to_a_store_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk" / "real")
    options = settings(tmp_path, allowoverwrite="true")
    for text in ("a", "b"):
        write_batch(options, [rows(text)], overwrite=True)
    assert bodies(tmp_path) == [b"b"]
    assert (tmp_path / "store").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


@pytest.mark.parametrize("text", ["", "maxMessageSize=1000\n", "mappedFileSizeCommitLog=65536\n"])
def test_sizes_that_a_configuration_leaves_open(tmp_path: Path, text: str) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    write_batch(options, [rows("a")], overwrite=True)
    Path(options["config"]).write_text(text)
    write_batch(options, [rows("b")])
    write_batch(options, [rows("c")], overwrite=True)
    assert bodies(tmp_path) == [b"c"]
    store = tmp_path / "store"
    (log,) = (store / "commitlog").iterdir()
    (queue,) = (store / "consumequeue" / "orders" / "0").iterdir()
    assert (log.stat().st_size, queue.stat().st_size) == (65536, 2000)


def test_what_may_not_be_overwritten(tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    with rmqstore.open(tmp_path / "store", "a", config=options["config"]) as store:
        store.put("orders", b"not the sink's")
    for make in (BatchWriter, StreamWriter):
        with pytest.raises(OptionError, match="this sink did not create what is there"):
            make(options, sink_driver.schema(), True)
    other = options | {"path": str(tmp_path / "other")}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").touch()
    with pytest.raises(OptionError, match="this sink did not create what is there"):
        BatchWriter(other, sink_driver.schema(), True)
    (tmp_path / "other" / "diary.txt").unlink()
    write_batch(other, [rows("a")], overwrite=True)
    other["allowoverwrite"] = "false"
    with pytest.raises(OptionError, match="with option 'allowOverwrite' true only"):
        BatchWriter(other, sink_driver.schema(), True)
    assert bodies(tmp_path) == [b"not the sink's"]


@pytest.mark.parametrize("late", [False, True])
def test_an_overwrite_removes_no_file_of_others(tmp_path: Path, late: bool) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    write_batch(options, [rows("a")])
    thesis = tmp_path / "store" / "thesis.txt"
    error = r"there is 'thesis.txt', which no store has and which would be lost, so it is not over"
    if late:
        writer, messages = sink_driver.stage_batch(options, [rows("b")], True)
        thesis.touch()
        with pytest.raises(OptionError, match=error):
            writer.commit(messages)
    else:
        thesis.touch()
        with pytest.raises(OptionError, match=error):
            BatchWriter(options, sink_driver.schema(), True)
    assert thesis.exists()
    assert bodies(tmp_path) == [b"a"]


JOBS = ("b." + "0f" * 16, "s-" + "a1" * 8 + ".7.0123abcd", "s-" + "a1" * 8 + ".70.none")
NO_JOBS = (
    "2024",
    "0f" * 16,
    "b." + "0f" * 15,
    "b." + "0F" * 16,
    "b." + "0f" * 16 + ".old",
    "my-b." + "0f" * 16,
    "s-" + "a1" * 8,
    "s-" + "a1" * 8 + ".x.none",
    "s-" + "a1" * 8 + ".7.some",
)


@pytest.mark.parametrize("name", ["store", "store.making-1", "[a]*.replaced-1"])
def test_what_has_no_name_of_a_job_is_left(tmp_path: Path, name: str) -> None:
    options = settings(tmp_path, allowoverwrite="true") | {"path": str(tmp_path / name)}
    kept = {"broker.conf", name}
    for marker in ("making", "replaced"):
        for job in (*JOBS, *NO_JOBS):
            path = tmp_path / f"{name}.{marker}-{job}"
            path.mkdir()
            (path / "thesis.txt").touch()
            for found in (path / "thesis.txt", path):
                os.utime(found, (0, 0))
        kept |= {f"{name}.{marker}-{job}" for job in NO_JOBS}
    (tmp_path / name).mkdir()
    write_batch(options, [rows("a")])
    write_batch(options, [rows("b")], True)
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert len(list(tmp_path.rglob("thesis.txt"))) == 2 * len(NO_JOBS)
    assert overwrite.making_names(options["path"]) == []


def test_a_foreign_directory_takes_no_place(tmp_path: Path) -> None:
    (tmp_path / "store.replaced-2024").mkdir()
    BatchWriter(settings(tmp_path), sink_driver.schema(), False)
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store.replaced-2024"}


def test_all_jobs_have_names_of_jobs(tmp_path: Path) -> None:
    named = settings(tmp_path, allowoverwrite="true", queryname="q")
    unnamed = settings(tmp_path, allowoverwrite="true")
    sink_driver.stage_batch(named, [rows("a")], True)
    for options in (named, unnamed):
        sink_driver.stage_stream(options, "q", 12, [rows("a")], True)
    made = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert len(made) == 3
    assert sorted(f"store.making-{name}" for name in overwrite.making_names(named["path"])) == (
        sorted(made)
    )


def test_complete_mode_is_idempotent(tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    write_stream(options, "q", 0, [rows("a1")], True)
    write_stream(options, "q", 1, [rows("a2"), rows("b1")], True)
    write_stream(options, "q", 1, [rows("b1"), rows("a2")], True)
    assert bodies(tmp_path) == [b"a2", b"b1"]
    _, _ = sink_driver.stage_stream(options, "q", 2, [rows("lost")], True)
    write_stream(options, "q", 2, [rows("a3"), rows("b1")], True)
    assert bodies(tmp_path) == [b"a3", b"b1"]
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store"}


def test_an_aborted_overwrite_leaves_the_old_store(tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    write_batch(options, [rows("a")])
    writer, messages = sink_driver.stage_batch(options, [rows("b")], True)
    writer.abort(messages)
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store"}
    assert bodies(tmp_path) == [b"a"]


@pytest.mark.parametrize("step", range(3))
def test_without_an_exchange_of_names_a_crash_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    write_batch(options, [rows("a")])
    monkeypatch.setattr(exchange, "_exchange", lambda one, other: False)
    real = Path.rename
    calls = []

    def rename(path: Path, target: Path) -> Any:
        calls.append(path)
        if len(calls) > step:
            raise KeyboardInterrupt
        return real(path, target)

    writer, messages = sink_driver.stage_batch(options, [rows("b")], True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            writer.commit(messages)
    assert len(overwrite.making_names(options["path"])) == (1 if step < 2 else 0)
    if step == 1:
        assert not (tmp_path / "store").exists()
    write_batch(options, [[]])
    assert bodies(tmp_path) == ([b"a"] if step == 0 else [b"b"])
    write_batch(options, [rows("c")], True)
    assert bodies(tmp_path) == [b"c"]
    assert [p.name for p in tmp_path.iterdir() if ".replaced-" in p.name] == []
