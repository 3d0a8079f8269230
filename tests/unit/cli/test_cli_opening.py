"""Where the command line makes no store, and the words in which it says why one is not opened."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
import pytest

import rmqstore
from rmqstore.cli import put, serve
from rmqstore.cli.failures import in_options
from support import oracle_store
from support.command_line import Run, one_line

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(100):
            store.put("orders", b"x" * 100, queue_id=0, keys=f"k{number}")
    return tmp_path / "store"


@pytest.mark.parametrize("place", ["commitlog", "index/new", "consumequeue/orders/0", "config"])
@pytest.mark.parametrize("verb", ["put", "demo", "serve", "snapshot"])
def test_no_store_is_made_in_another_one(
    root: Path, tmp_path: Path, run: Run, verb: str, place: str
) -> None:
    shutil.copytree(root, tmp_path / "other")
    before = oracle_store.snapshot(root)
    there = root / place
    arguments = {
        "put": ["put", there, "orders"],
        "demo": ["demo", there],
        "serve": ["serve", there, "--port", "0"],
        "snapshot": ["snapshot", tmp_path / "other", there],
    }[verb]
    assert str(root) in one_line(run(*arguments, input=b"x\n"), 2)
    assert oracle_store.snapshot(root) == before


def damage(root: Path) -> None:
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 300)
    (root / "abort").touch()
    (root / "checkpoint").unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["put", "orders"],
            "'rmqstore serve --on-corruption fill --keep forever' loses no other record",
        ),
        (["demo"], "'rmqstore serve --on-corruption fill --keep forever' loses no other record"),
        (
            ["clean", "--before=@1", "--apply"],
            "'rmqstore serve --on-corruption fill --keep forever' loses",
        ),
        (["restore", "--apply"], "'rmqstore serve --on-corruption fill --keep forever' loses"),
        (["serve", "--port", "0", "--verify", "full"], "--on-corruption fill loses no other"),
    ],
)
def test_the_way_on_is_an_option(root: Path, run: Run, arguments: list[str], said: str) -> None:
    damage(root)
    before = oracle_store.snapshot(root)
    line = one_line(run(arguments[0], root, *arguments[1:], input=b"x\n"), 4)
    assert said in line
    assert "verbs that only read show them" in line
    assert "on_corruption" not in line
    assert "mode 'r'" not in line
    assert oracle_store.snapshot(root) == before


@pytest.mark.parametrize(
    ("text", "with_option", "without"),
    [
        (
            "on_corruption='fill' loses",
            "--on-corruption fill loses",
            "serve --on-corruption fill --keep forever'",
        ),
        ("verify='full' finds", "--verify full finds", "serve --verify full'"),
        ("it needs config=, with", "needs --config, with", "needs --config, with"),
        ("of RocketMQ 5: open with mode 'r'", "only read show", "only read show"),
    ],
)
def test_arguments_become_options(text: str, with_option: str, without: str) -> None:
    assert with_option in in_options(text, serve.serve)
    assert without in in_options(text, put.put)
    assert "=" not in in_options(text, None)


def test_every_option_that_is_named_is_there() -> None:
    options = {one for parameter in serve.serve.params for one in parameter.opts}
    assert {"--on-corruption", "--verify", "--config"} <= options
    [verify] = [one for one in serve.serve.params if one.name == "verify"]
    assert isinstance(verify.type, click.Choice)
    assert list(verify.type.choices) == ["tail", "full"]


def test_a_store_in_use_whose_lock_was_deleted(root: Path, run: Run) -> None:
    store = rmqstore.open(root, "r+")
    (root / "lock").unlink()
    line = one_line(run("put", root, "orders", input=b"x\n"), 3)
    assert "do not delete 'lock'" in line
    assert '"state":"in use"' in run("info", root, "-o", "jsonl").stdout
    (root / "lock").write_bytes(b"lock")
    assert one_line(run("put", root, "orders", input=b"x\n"), 3) == line
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()
    assert run("put", root, "orders", input=b"x\n").exit_code == 0


@pytest.mark.parametrize("name", ["consumequeue/orders", "consumequeue/orders/0", "commitlog"])
def test_a_link_to_nothing_is_no_matter_of_sizes(root: Path, run: Run, name: str) -> None:
    shutil.rmtree(root / name)
    (root / name).symlink_to("/nowhere")
    before = [os.fspath(one) for one in sorted(root.rglob("*"))]
    line = one_line(run("put", root, "orders", input=b"x\n"), 4)
    reason = "is a symbolic link to /nowhere, which is not there: is its disk mounted?"
    assert line.endswith(f"{root / name} {reason}\n")
    assert [os.fspath(one) for one in sorted(root.rglob("*"))] == before


@pytest.mark.parametrize("name", ["lock", "checkpoint", "config/topics.json"])
def test_info_waits_for_no_fifo(root: Path, run: Run, name: str) -> None:
    (root / name).unlink()
    os.mkfifo(root / name)
    result = run("info", root)
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert f"{name}: " in result.stderr
    assert "not a regular file" in result.stderr
