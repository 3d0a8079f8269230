"""What is shown of a store that nobody has mended yet: all that is good; the rest is told."""

from __future__ import annotations

import json
import os
import signal

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from support import damaged_store

HEAD = 88  # bytes in front of a body
HIT = 61  # the number of the message that is hit: Topic1/1 at 30


@pytest.fixture
def killed(tmp_path):
    root = damaged_store.make(tmp_path / "store")
    record = damaged_store.records(root)[HIT]
    damaged_store.flip(root, record.physical_offset + HEAD + 7)
    return damaged_store.killed(root), record


def rows(*arguments):
    """The keys of the messages that a verb shows, its exit code, and the lines it says."""
    done = CliRunner().invoke(main, [*map(str, arguments)])
    keys = [json.loads(line)["keys"] for line in done.stdout.splitlines()]
    return [key for (key,) in keys], done.exit_code, done.stderr.splitlines()


def keys_of(numbers):
    return [f"k{number}" for number in numbers]


def test_cat_shows_what_is_good_and_names_the_rest(killed):
    root, record = killed
    shown, code, said = rows("cat", root)
    assert shown == keys_of(n for n in range(damaged_store.COUNT) if n != HIT)
    assert code == 4
    assert said[0].startswith("rmqstore: Topic1/1 at 30: ")
    assert f"offset {record.physical_offset}: BODYCRC" in said[0]
    assert said[1:] == ["rmqstore: 1 damaged message was left out"]


def test_cat_up_to_the_damage_and_from_behind_it(killed):
    root, record = killed
    behind = record.physical_offset + 1
    assert rows("cat", root, "--until", record.physical_offset) == (keys_of(range(HIT)), 0, [])
    later = keys_of(range(HIT + 1, damaged_store.COUNT))
    assert rows("cat", root, "--from", behind) == (later, 0, [])
    shown, code, _ = rows("cat", root, "--from", record.physical_offset)
    assert (shown, code) == (later, 4)


def test_many_damaged_ones_are_counted(killed):
    root, _ = killed
    for record in damaged_store.records(root)[20:50]:
        damaged_store.flip(root, record.physical_offset + HEAD + 7)
    shown, code, said = rows("cat", root)
    assert (len(shown), code) == (damaged_store.COUNT - 31, 4)
    assert len(said) == 11
    assert said[-1] == "rmqstore: 31 damaged messages were left out"


def test_find_shows_the_good_ones(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        puts = [store.put("Topic1", b"body %d" % n, queue_id=0, keys="same") for n in range(5)]
    damaged_store.flip(root, puts[2].physical_offset + HEAD + 1)
    done = CliRunner().invoke(main, ["find", str(root), "-k", "same"])
    found = [json.loads(line)["queue_offset"] for line in done.stdout.splitlines()]
    assert found == [4, 3, 1, 0]
    assert done.exit_code == 4
    assert f"offset {puts[2].physical_offset}: BODYCRC" in done.stderr


def test_a_message_id_of_a_damaged_record(killed):
    root, record = killed
    with rmqstore.open(root) as store:
        with pytest.raises(rmqstore.StoreCorruptError, match="BODYCRC"):
            store.at(record.physical_offset)
        name = f"7F00000100002A9F{record.physical_offset:016X}"
        with pytest.raises(rmqstore.MessageNotFoundError, match=r"no message .*BODYCRC"):
            store.message(name)


def test_what_stands_for_lost_bytes_is_no_message(killed):
    root, record = killed
    with rmqstore.open(root, "r+", on_corruption="fill"):
        pass
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            assert [m.keys for m in store.scan()] == [
                (f"k{n}",) for n in range(damaged_store.COUNT) if n != HIT
            ]
            assert store.scan().count() == damaged_store.COUNT - 1
            assert store.scan(columns=["keys"]).to_table().num_rows == damaged_store.COUNT - 1
            with pytest.raises(rmqstore.MessageNotFoundError):
                store.at(record.physical_offset)


@pytest.mark.parametrize("sector", [0, 1])
def test_a_torn_last_record_is_shown_by_nobody(tmp_path, sector):
    """Its body checks and its properties are zero, as a power cut leaves them."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        store.put("Topic1", b"first", queue_id=0)
        torn = store.put(
            "Topic1", b"torn", queue_id=0, keys=" ".join(f"key{n:04d}" for n in range(400))
        )
    damaged_store.killed(root)
    at = torn.physical_offset + 1024 + 512 * sector
    damaged_store.poke(root, at - at % 512, bytes(512))
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store.scan()] == [b"first"]
            assert [m.body for m in store["Topic1"][0]] == [b"first"]
            with pytest.raises(rmqstore.MessageNotFoundError):
                store.at(torn.physical_offset)


def test_full_verification_tells_of_a_torn_record(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        torn = store.put(
            "Topic1", b"torn", queue_id=0, keys=" ".join(f"key{n:04d}" for n in range(400))
        )
    damaged_store.killed(root)
    damaged_store.poke(root, 1024, bytes(512))
    with rmqstore.open(root, "r", verify="full") as store:
        notes = " ".join(store.recovery.notes)
    assert f"bytes {torn.physical_offset} to " in notes
    assert "0 records" in notes


def test_restore_says_what_is_in_no_queue(tmp_path):
    """The last of its queue was filled, and another message has its place by now."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        puts = [store.put("Topic1", b"body %d" % n, queue_id=0) for n in range(3)]
        store.put("Topic1", b"behind", queue_id=1)
    damaged_store.killed(root)
    at = puts[2].physical_offset + HEAD
    damaged_store.flip(root, at)
    with rmqstore.open(root, "r+", on_corruption="fill") as store:
        assert store.put("Topic1", b"in its place", queue_id=0).queue_offset == 2
    (saved,) = (root / "rmqstore-quarantine").glob("[0-9]*")
    done = CliRunner().invoke(main, ["restore", str(root), "--apply"])
    assert (done.exit_code, json.loads(done.stdout)["state"]) == (0, "no good record")
    with saved.open("r+b") as file:
        file.seek(HEAD)
        file.write(b"b")
    done = CliRunner().invoke(main, ["restore", str(root), "--apply"])
    assert (done.exit_code, json.loads(done.stdout)["state"]) == (0, "restored")
    assert "1 of the messages are in no queue" in done.stderr
    with rmqstore.open(root) as store:
        assert [m.body for m in store["Topic1"][0]] == [b"body 0", b"body 1", b"in its place"]
        assert store.at(puts[2].physical_offset).body == b"body 2"


def test_restore_of_nothing_says_so(tmp_path):
    root = damaged_store.make(tmp_path / "store")
    done = CliRunner().invoke(main, ["restore", str(root)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing lies in the quarantine" in done.stderr


def test_cat_of_tags_counts_a_damaged_one_once(killed):
    root, record = killed
    shown, code, said = rows("cat", root, "-t", "Topic1", "-q", 1, "--tags", "t1 || t2")
    numbers = [n for n in range(1, damaged_store.COUNT, 2) if n % 3 and n != HIT]
    assert (shown, code) == (keys_of(numbers), 4)
    assert len(said) == 2
    assert f"at 30: {root}/commitlog" in said[0]
    assert f"offset {record.physical_offset}:" in said[0]


def test_cat_of_sql_goes_on_behind_a_damaged_one(killed):
    root, _ = killed
    sql = "TAGS IN ('t1', 't2') AND UNIQ_KEY IS NOT NULL"
    shown, code, said = rows("cat", root, "-t", "Topic1", "-q", 1, "--sql", sql)
    numbers = [n for n in range(1, damaged_store.COUNT, 2) if n % 3 and n != HIT]
    assert (shown, code, len(said)) == (keys_of(numbers), 4, 2)


def test_cat_behind_what_was_filled(killed):
    """Places that nothing has lie in front of the next damaged record."""
    root, _ = killed
    with rmqstore.open(root, "r+", on_corruption="fill"):
        pass
    next_one = damaged_store.records(root)[HIT + 2]
    damaged_store.flip(root, next_one.physical_offset + HEAD + 7)
    shown, code, said = rows("cat", root)
    assert shown == keys_of(n for n in range(damaged_store.COUNT) if n not in {HIT, HIT + 2})
    assert (code, len(said)) == (4, 2)
    assert said[0].startswith("rmqstore: Topic1/1 at 31: ")


@pytest.mark.parametrize("option", ["--from", "--until"])
def test_cat_of_a_time_past_damage(tmp_path, option):
    root = damaged_store.make(tmp_path / "store")
    log = damaged_store.records(root)
    for record in log[10:100]:
        damaged_store.flip(root, record.physical_offset + HEAD + 7)
    time = log[5].store_timestamp
    shown, _, _ = rows("cat", root, option, f"@{time}")
    good = [n for n in range(damaged_store.COUNT) if not 10 <= n < 100]
    after = option == "--from"
    assert shown == keys_of(n for n in good if (log[n].store_timestamp >= time) == after)


def test_cat_from_an_offset_past_a_unit_of_zeros(tmp_path):
    root = damaged_store.make(tmp_path / "store")
    log = damaged_store.records(root)
    (queue, *_) = sorted((root / "consumequeue" / "Topic1" / "0").iterdir())
    data = bytearray(queue.read_bytes())
    data[10 * 20 : 11 * 20] = bytes(20)
    queue.write_bytes(data)
    for number in range(12, 30):
        shown, _, _ = rows("cat", root, "-t", "Topic1", "--from", log[number].physical_offset)
        assert set(shown) >= set(keys_of(range(number, damaged_store.COUNT))) - {"k20"}


def test_find_past_damage_keeps_its_limits(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        puts = [store.put("Topic1", b"body %d" % n, queue_id=0, keys="same") for n in range(9)]
    damaged_store.flip(root, puts[7].physical_offset + HEAD + 1)
    done = CliRunner().invoke(main, ["find", str(root), "-k", "same", "-n", "3"])
    found = [json.loads(line)["queue_offset"] for line in done.stdout.splitlines()]
    assert (found, done.exit_code) == ([8, 6, 5], 4)
    done = CliRunner().invoke(main, ["find", str(root), "-k", "same", "--index-only"])
    assert (done.stdout, done.exit_code) == ("", 4)


def test_a_last_record_whose_short_properties_are_zero(tmp_path):
    """As of a broker that was killed while it copied the record into its log."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        store.put("Topic1", b"first", queue_id=0)
        torn = store.put("Topic1", b"torn" * 50, queue_id=0, tags="t", uniq_key=False)
    damaged_store.killed(root)
    record = damaged_store.records(root)[-1]
    assert record.store_size < 512 - torn.physical_offset % 512
    damaged_store.poke(root, torn.physical_offset + record.store_size - 7, bytes(7))
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store.scan()] == [b"first"]
            assert [m.body for m in store["Topic1"][0]] == [b"first"]


@pytest.mark.needs_debug_build
@pytest.mark.parametrize("many", [False, True])
def test_killed_in_the_middle_of_a_record(tmp_path, many):
    """What was not written whole is no record, though its body checks."""
    root = tmp_path / "store"
    child = os.fork()
    if child == 0:
        os.environ["RMQ_KILL_AT"] = "mid-record:4"
        store = rmqstore.open(root, "a", config=damaged_store.CONFIG)
        if many:
            store.put_many("Topic1", [b"body %d" % n for n in range(9)], queue_id=0)
        else:
            for number in range(9):
                store.put("Topic1", b"body %d" % number, queue_id=0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=damaged_store.CONFIG) as store:
            assert [m.body for m in store.scan()] == [b"body 0", b"body 1", b"body 2"]
            assert [m.body for m in store["Topic1"][0]] == [b"body 0", b"body 1", b"body 2"]


def test_an_empty_log_file_is_missing_before_another(tmp_path):
    """A broker makes two files ahead; what is in the log is all there."""
    root = damaged_store.killed(damaged_store.make(tmp_path / "store"))
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    ahead = int(names[-1]) + 2 * damaged_store.LOG_SIZE
    (root / "commitlog" / f"{ahead:020d}").write_bytes(bytes(damaged_store.LOG_SIZE))
    for options in ({}, {"config": damaged_store.CONFIG}, {"verify": "full"}):
        with rmqstore.open(root, **options) as store:
            assert len(damaged_store.bodies(store)) == damaged_store.COUNT
            assert store.scan().count() == damaged_store.COUNT
    with pytest.raises(rmqstore.IncompatibleStoreError, match="is missing"):
        rmqstore.open(root, "r+")
    with rmqstore.open(root, "r+", on_corruption="fill") as store:
        assert len(damaged_store.bodies(store)) == damaged_store.COUNT
    assert not (root / "commitlog" / f"{ahead:020d}").exists()
