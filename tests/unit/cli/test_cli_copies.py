"""``extract``, ``diff``, ``snapshot`` and ``backup`` as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for number in range(20):
            store.put(("orders", "audit")[number % 2], b"%d" % number, queue_id=0)
    return tmp_path / "s"


def test_extract(run: Run, root: Path, tmp_path: Path) -> None:
    (row,) = rows(run("extract", root, tmp_path / "out", "-t", "orders", "--until", "now"))
    assert list(row) == ["messages", "bytes", "seconds", "skipped"]
    assert (row["messages"], row["skipped"]) == (10, 0)
    assert [one["topic"] for one in rows(run("topics", tmp_path / "out"))] == ["orders"]
    assert "is not empty" in one_line(run("extract", root, tmp_path / "out", "-t", "orders"), 2)
    error = one_line(run("extract", root, tmp_path / "o", "-t", "order"), 1)
    assert "did you mean 'orders'" in error
    assert "-t" in run("extract", root, tmp_path / "o").stderr
    error = one_line(run("extract", root, root / "o", "-t", "orders"), 2)
    assert "DIRECTORY must be outside the store" in error
    assert run("extract", tmp_path / "none", tmp_path / "o", "-t", "orders").exit_code == 4


def test_diff(run: Run, root: Path, tmp_path: Path) -> None:
    assert rows(run("diff", root, root)) == rows(run("diff", root, root, "--full")) == []
    run("extract", root, tmp_path / "out", "-t", "orders")
    assert rows(run("diff", root, tmp_path / "out", "-t", "orders", "--full")) == []
    result = run("diff", root, tmp_path / "out", "-o", "jsonl")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == (
        '{"where":"a","topic":"audit","queue_id":0,"queue_offset":0,"what":"10 messages"}'
    )
    assert "10 messages" in run("diff", root, tmp_path / "out", "-o", "table").stdout
    assert "did you mean 'orders'" in one_line(run("diff", root, root, "-t", "order"), 1)
    sized = tmp_path / "sized"
    with rmqstore.open(sized, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"another length", queue_id=0)
    hint = "--full compares bodies inflated"
    assert hint in run("diff", root, sized, "-t", "orders").stderr
    assert hint not in run("diff", root, sized, "-t", "orders", "--full").stderr
    assert hint not in run("diff", root, sized, "-t", "audit").stderr
    assert "A and B are needed" in one_line(run("diff"), 2)
    assert run("diff", root, tmp_path / "none").exit_code == 4


def test_backup(run: Run, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    found = rows(run("backup", root, copy))
    assert list(found[0]) == ["file", "bytes", "xxh3", "copied"]
    assert all(one["copied"] for one in found)
    checked = rows(run("backup", "--verify", copy))
    assert [one["xxh3"] for one in checked] == [one["xxh3"] for one in found]
    assert "commitlog" in run("backup", copy, "--verify", "-o", "table").stdout
    (copy / "config" / "topics.json").write_text("{}")
    result = run("backup", "--verify", copy)
    assert result.exit_code == 1
    assert result.stderr == (
        "rmqstore: config/topics.json: differs from the manifest; remove it, and back up again to "
        "have it copied\n"
    )
    assert "takes DIRECTORY alone" in one_line(run("backup", root, copy, "--verify"), 2)
    assert "DIRECTORY must be outside the store" in one_line(run("backup", root, root / "x"), 2)
    assert "no backup" in one_line(run("backup", "--verify", root), 4)
    assert "STORE and DIRECTORY are needed" in one_line(run("backup", root), 2)


def test_a_directory_that_is_not_empty(run: Run, root: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/note").write_text("mine")
    (tmp_path / "o.unfinished").mkdir()
    for verb, *more in (("extract", "-t", "orders"), ("snapshot",), ("backup",)):
        assert "is not empty" in one_line(run(verb, root, tmp_path / "full", *more), 2)
        at_file = one_line(run(verb, root, tmp_path / "full/note", *more), 2)
        assert "note is no directory: give an empty directory or a new name" in at_file
        if verb != "backup":  # which continues one that was not finished
            assert "not finished" in one_line(run(verb, root, tmp_path / "o", *more), 2)
    assert [one.name for one in (tmp_path / "full").iterdir()] == ["note"]
    none = run("backup", "--verify", tmp_path / "full")
    assert none.exit_code == 4
    assert "commitlog" not in none.stderr


@pytest.mark.parametrize("verb", ["extract", "unconsumed", "export"])
def test_an_error_for_damage_names_the_option_that_goes_on(
    run: Run, root: Path, tmp_path: Path, verb: str
) -> None:
    to = ["-g", "billing", "-t", "orders", "--to", "first"]
    assert run("offsets", root, "set", *to, "--apply").exit_code == 0
    with rmqstore.open(root, "r") as store:
        damaged = store["orders"][0][5]
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[damaged.physical_offset + 88] ^= 1  # of its body
    log.write_bytes(data)
    words = {
        "extract": [tmp_path / "o", "-t", "orders"],
        "unconsumed": ["-g", "billing"],
        "export": [tmp_path / "o.jsonl"],
    }[verb]
    done = run(verb, root, *words)
    assert done.exit_code == 4
    assert "--on-corruption skip" in done.stderr
    assert "--on-corruption skip" not in run(verb, root, *words, "--on-corruption", "skip").stderr
