"""``restore``: what was cut or filled goes back into the log where it checks and has its place."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from rmqstore.files import paths
from rmqstore.offline import quarantine
from support import oracle_store
from support.damaged_store import (
    BROKER_LOG,
    CONFIG,
    COUNT,
    LOG_SIZE,
    bodies,
    flip,
    killed,
    make,
    poke,
    read,
    records,
    state,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def keys_of(root) -> set[int]:
    with rmqstore.open(root) as store:
        return {n for n in range(COUNT) if len(store.query("Topic1", f"k{n}")) == 1}


def run(*arguments):
    return CliRunner().invoke(main, ["restore", *map(str, arguments)])


def rows(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def cut(root, offset: int) -> None:
    """Cut the log as earlier versions did: all from ``offset`` on, saved a file at a time."""
    (root / paths.QUARANTINE).mkdir()
    log = sorted(int(path.name) for path in (root / "commitlog").iterdir())
    for start in log:
        path = root / "commitlog" / f"{start:020d}"
        data = path.read_bytes()
        at = max(start, offset)
        part = data[at - start :]
        last = start == log[-1]
        if at < start + LOG_SIZE and part.strip(b"\0"):
            saved = part.rstrip(b"\0") if last else part
            (root / paths.QUARANTINE / f"{at:020d}-1700000000000").write_bytes(saved)
            poke(root, at, bytes(len(part)))


def test_what_was_filled_goes_back_once_it_is_right_again(root):
    whole = read(root)
    record = records(root)[40]
    flip(root, record.physical_offset + 100)
    with rmqstore.open(killed(root), "r+", config=CONFIG, on_corruption="fill") as store:
        [mended] = store.recovery.ranges
        assert len(bodies(store)) == COUNT - 1
    [row] = rows(run(root))
    assert (row["offset"], row["records"], row["place"]) == (record.physical_offset, 0, "filler")
    assert row["state"] == "no good record"
    with open(mended.saved_to, "r+b") as file:  # noqa: PTH123 - somebody repairs the bit
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))
    before = state(root)
    result = run(root)
    assert result.exit_code == 1
    assert rows(result)[0]["state"] == "restorable"
    assert "--apply" in result.stderr
    assert state(root) == before
    result = run(root, "--apply")
    assert result.exit_code == 0, result.output
    assert rows(result)[0]["state"] == "restored"
    assert read(root) == whole
    assert keys_of(root) == set(range(COUNT))
    [row] = rows(run(root))
    assert (row["place"], row["state"]) == ("same", "in the log")
    assert not (root / "abort").exists()


def test_a_tail_that_an_earlier_version_cut_goes_back(root):
    """Over several files, with the flipped bit that cost them: that record alone is a filler."""
    whole = read(root)
    every = records(root)
    record = every[COUNT // 2]
    flip(root, record.physical_offset + 100)
    cut(root, record.physical_offset)
    killed(root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.ranges == ()
        assert len(bodies(store)) == COUNT // 2
    listed = rows(run(root))
    assert [row["state"] for row in listed] == ["restorable"] * len(listed)
    assert sum(row["records"] for row in listed) == COUNT - COUNT // 2 - 1
    result = run(root, "--apply", "-o", "csv")
    assert result.exit_code == 0, result.output
    assert {row["state"] for row in csv.DictReader(io.StringIO(result.stdout))} == {"restored"}
    lost = {("Topic1", record.queue_id, record.queue_offset)}
    assert read(root) == {place: whole[place] for place in whole.keys() - lost}
    assert keys_of(root) == set(range(COUNT)) - {COUNT // 2}
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        put = store.put("Topic1", b"next", queue_id=0)
        assert put.queue_offset == COUNT // 2
        assert put.physical_offset == every[-1].physical_offset + every[-1].store_size


@pytest.mark.usefixtures("undelivered")
def test_a_brokers_tail_goes_back(broker_copy, tmp_path):
    root = broker_copy("broker-killed", tmp_path).root
    whole = read(root)
    log = root / "commitlog"
    last = max(path for path in log.iterdir() if path.read_bytes().strip(b"\0"))
    data = last.read_bytes().rstrip(b"\0")
    first = next(r for r in records(root) if r.physical_offset >= int(last.name))
    assert first.physical_offset == int(last.name)
    (root / paths.QUARANTINE).mkdir()
    (root / paths.QUARANTINE / f"{last.name}-1700000000000").write_bytes(data)
    poke(root, int(last.name), bytes(len(data)), BROKER_LOG)
    with rmqstore.open(root, "r+") as store:
        assert len(bodies(store)) < len(whole)
    [found] = quarantine.restore(root)
    assert found.restorable
    assert found.records > 100
    assert read(root) == whole


def test_nothing_goes_where_something_was_written_since(root):
    record = records(root)[-20]
    cut(root, record.physical_offset)
    with rmqstore.open(killed(root), "r+", config=CONFIG) as store:
        store.put("Topic1", b"since", queue_id=0)
    before = {name: value for name, value in state(root).items() if name.startswith("commitlog/")}
    result = run(root, "--apply")
    assert result.exit_code == 1
    assert {row["state"] for row in rows(result)} == {"kept"}
    assert rows(result)[0]["place"] == "written"
    after = {name: value for name, value in state(root).items() if name.startswith("commitlog/")}
    assert after == before


@pytest.mark.parametrize("apply", [[], ["--apply"]], ids=["look", "apply"])
def test_an_empty_quarantine_and_other_errors(root, tmp_path, apply):
    result = run(root, *apply)
    assert (result.exit_code, result.stdout) == (0, "")
    assert run(tmp_path / "nothing", *apply).exit_code == 4
    (root / paths.QUARANTINE).mkdir()
    (root / paths.QUARANTINE / "README").write_text("not ours")
    (root / paths.QUARANTINE / f"{7 * LOG_SIZE:020d}-17").write_bytes(b"x" * 300)
    result = run(root, *apply)
    assert result.exit_code == 0
    assert [row["state"] for row in rows(result)] == ["no good record"]
    with rmqstore.open(root, "r+", config=CONFIG):
        assert run(root, "--apply").exit_code == 3
    assert len(list((root / paths.QUARANTINE).iterdir())) == 2
    oracle_store.check_store(root, slot_num=50)


def test_writing_verbs_show_what_opening_mended(root):
    record = records(root)[-1]
    flip(root, record.physical_offset + 100)
    result = CliRunner().invoke(
        main, ["put", str(killed(root)), "Topic1", "-q", "0"], input="one\n"
    )
    assert result.exit_code == 0
    assert f"commit log cut from {record.physical_offset}" in result.stderr
    assert paths.QUARANTINE in result.stderr
