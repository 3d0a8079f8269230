"""``info`` and ``cat`` of a damaged store: files that are missing or short, holes, odd counts."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from rmqstore.files.logfiles import damaged_log_files
from support import damaged_store

pytestmark = pytest.mark.pure

MIDDLE = "00000000000001048576"
SIZE = 1 << 20


def info(root: Path) -> tuple[dict[str, object], int, str]:
    done = CliRunner().invoke(main, ["info", str(root), "-o", "jsonl"])
    return json.loads(done.stdout), done.exit_code, done.stderr


def table(root: Path) -> list[str]:
    done = CliRunner().invoke(main, ["info", str(root), "-o", "table"])
    lines = done.stdout.splitlines()
    return [line.split(None, 1)[1] for line in lines if line.startswith("damage")]


@pytest.fixture
def root(broker_copy, tmp_path):
    return broker_copy("broker-clean", tmp_path).root


def entries(count: int) -> str:
    return f"{count:,} entries of the queues name no good record of the log, the first at "


@pytest.mark.parametrize("killed", [False, True])
def test_a_missing_file(root, broker_store, killed):
    rows = broker_store("broker-clean").dump
    healthy, code, said = info(root)
    assert (healthy["damage"], code, said) == ([], 0, "")
    (root / "commitlog" / MIDDLE).unlink()
    if killed:
        (root / "abort").touch()
    found, code, said = info(root)
    lost = healthy["messages"] - found["messages"]
    assert lost == len([row for row in rows if SIZE <= row.physical_offset < 2 * SIZE])
    assert code == 4
    assert found["damage"][0] == f"missing {MIDDLE}"
    # Of those delivered already some were delivered in the file, which nobody knows then.
    [delayed] = found["damage"][1:]
    assert re.fullmatch(r"\d+ delayed messages that wait are damaged, the first at .*", delayed)
    assert found["queue_entries"] == healthy["queue_entries"]
    assert f"{lost:,} entries of the queues stand for messages that are lost" in found["notes"]
    assert said == f"rmqstore: {root} is damaged: {'; '.join(found['damage'])}\n"
    assert table(root) == found["damage"]
    done = CliRunner().invoke(main, ["cat", str(root), "-f", "%p\n"])
    assert (len(done.stdout.splitlines()), done.exit_code) == (found["messages"], 4)
    assert done.stderr.splitlines()[0] == f"rmqstore: commit log: missing {MIDDLE}"
    with rmqstore.open(root) as store:
        assert store.recovery.damaged_files == (f"missing {MIDDLE}",)


def test_a_short_file(root):
    with (root / "commitlog" / MIDDLE).open("r+b") as file:
        file.truncate(500_000)
    found, code, said = info(root)
    assert (found["damage"][0], code) == (f"short {MIDDLE}: 500,000 of 1,048,576 bytes", 4)
    assert any("name no good record of the log" in one for one in found["damage"])
    assert f"short {MIDDLE}" in said
    done = CliRunner().invoke(main, ["cat", str(root), "-f", "%p\n"])
    assert f"rmqstore: commit log: short {MIDDLE}: 500,000" in done.stderr
    assert done.exit_code == 4


@pytest.mark.parametrize("killed", [False, True])
def test_a_hole(root, killed):
    healthy = info(root)[0]
    damaged_store.poke(root, SIZE + 10 * 4096, bytes(20 << 10), SIZE)
    if killed:
        (root / "abort").touch()
    found, code, said = info(root)
    lost = healthy["messages"] - found["messages"]
    assert lost > 10
    assert code == 4
    assert found["damage"][-1].startswith(entries(lost) + "1,089,557, the last at 1,1")
    assert ("bytes 1,089,557 to " in found["damage"][0]) == killed
    assert "is damaged: " in said
    assert table(root) == found["damage"]


def test_a_hole_of_a_log_alone(root):
    for name in ("consumequeue", "index"):
        (root / name).rename(root.parent / name)
    damaged_store.poke(root, SIZE + 10 * 4096, bytes(20 << 10), SIZE)
    found, code, _ = info(root)
    [text] = found["damage"]
    assert text.startswith("bytes 1,089,557 to ")
    assert code == 4


def test_deleted_topics_are_no_damage(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        for topic in ("a", "b"):
            store.put_many(topic, [b"x"] * 100)
        store.delete_topic("a")
    found, code, said = info(root)
    assert (found["damage"], code, said) == ([], 0, "")
    assert any(note.startswith("100 of the messages are in no queue") for note in found["notes"])


def test_a_filled_record_is_no_damage(tmp_path):
    root = damaged_store.killed(damaged_store.make(tmp_path / "store"))
    damaged_store.flip(root, damaged_store.records(root)[61].physical_offset + 100)
    with rmqstore.open(root, "r+", on_corruption="fill"):
        pass
    found, code, said = info(root)
    assert (found["damage"], code, said) == ([], 0, "")


def log(directory: Path, lengths: dict[int, int]) -> Path:
    directory.mkdir(exist_ok=True)
    for start, length in lengths.items():
        (directory / f"{start:020d}").write_bytes(b"x" * length)
    return directory


def test_files_of_several_directories(tmp_path):
    one = log(tmp_path / "one", {100: 100, 300: 60})
    other = log(tmp_path / "other", {200: 100, 700: 100, 900: 10})
    (one / "no offset").touch()
    name = "{:020d}".format
    said = [
        f"short {name(300)}: 60 of 100 bytes",
        f"missing {name(400)} to {name(600)}, 3 files",
        f"missing {name(800)}",
        f"short {name(900)}: 10 of 100 bytes",
    ]
    gone = tmp_path / "gone"
    assert damaged_log_files([one, other, gone], 100, 905) == said
    # What lies behind the end is not finished.
    assert damaged_log_files([one, other], 100, 900) == said[:3]
    assert damaged_log_files([one, other], 100, 601) == said[:2]
    assert damaged_log_files([one, other], 100, 400) == said[:1]
    assert damaged_log_files([one, other], 100, 300) == []
    assert damaged_log_files([gone], 100, 905) == []


def test_so_many_messages_with_damage_among_them(tmp_path):
    root = tmp_path / "store"
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(root, "a", config=config) as store:
        store.put_many("t", [b"x"] * 100)
        place = store["t"][2][12].physical_offset
    for name in ("consumequeue", "index"):
        (root / name).rename(tmp_path / name)
    damaged_store.poke(root, place, bytes(8), config.mapped_file_size_commit_log)

    def shown(*arguments: str) -> tuple[int, int]:
        done = CliRunner().invoke(main, ["cat", str(root), "-f", "%o\n", *arguments])
        return len(done.stdout.splitlines()), done.exit_code

    assert shown() == (99, 4)
    assert shown("-n", "40") == (40, 0)  # the damage lies behind them
    assert shown("-n", "60") == (60, 4)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("damaged", [[10], [0], [9, 10, 11], [4, 15], [19], range(5, 20)])
def test_times_with_damage_on_the_way(tmp_path, conf, damaged, killed):
    """Of a light queue as of any other; a scan has no rows of one."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.from_file(conf)) as store:
        done = []
        for _ in range(20):
            done.append(store.put("orders", b"x", queue_id=0, lite_topics=["a", "b"]))
            store.clock.advance(1)
        store.put_many("filler", [b"x" * 50_000] * 100, queue_id=0)
        times = [one.store_timestamp for one in store["orders"][0]]
    for at in damaged:
        damaged_store.poke(root, done[at].physical_offset + 4, b"~~~~", SIZE)
    if killed:
        (root / "abort").touch()
    good = [at for at in range(20) if at not in damaged]
    for topic, first in itertools.product(("orders", "%LMQ%b"), (0, 3, 10, 15, 19)):
        arguments = ["cat", root, "-t", topic, "-c", conf, "-f", "%p\n", "--from"]
        places = [done[at].physical_offset for at in good if at >= first]
        for until in ([], ["--until", f"@{times[first]}"]):
            start = "@0" if until else f"@{times[first]}"
            shown = CliRunner().invoke(main, [*map(str, arguments), start, *until])
            if until:
                places = [done[at].physical_offset for at in good if at < first]
            assert [int(line) for line in shown.stdout.split()] == places, (topic, first, until)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("within", [4, 88])
def test_get_of_a_damaged_message(tmp_path, conf, within, index, killed):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.from_file(conf)) as store:
        done = [store.put("orders", b"m%d" % n, queue_id=0, keys=f"k{n}") for n in range(20)]
        store.put_many("filler", [b"x" * 50_000] * 100, queue_id=0)
    damaged_store.poke(root, done[5].physical_offset + within, b"\xff" * 4, SIZE)
    if not index:
        shutil.rmtree(root / "index")
    if killed:
        (root / "abort").touch()
    where = f"commitlog/{0:020d}, offset {done[5].physical_offset}: "

    def got(*arguments: str, config: Path | None = None) -> tuple[int, bool]:
        options = [] if config is None else ["-c", str(config)]
        shown = CliRunner().invoke(main, [arguments[0], str(root), *arguments[1:], *options])
        return shown.exit_code, where in shown.stderr

    for config in (None, conf):
        for one in (done[5].msg_id, done[5].uniq_key, "orders/0@5"):
            assert got("get", one, config=config) == (4, True), one
        assert got("find", "-k", done[5].uniq_key, config=config) == (4, True)
        for one in (done[6].msg_id, done[6].uniq_key, "orders/0@6"):
            assert got("get", one, config=config)[0] == 0
        # Damage that no index covers may hide any key.
        missing = (1, False) if index else (4, True)
        assert got("get", "nothing", config=config)[0] == missing[0]
        # An id of another store: no record begins there.
        inside = done[9].msg_id[:16] + f"{done[9].physical_offset + 7:016X}"
        assert got("get", inside, config=config) == missing
