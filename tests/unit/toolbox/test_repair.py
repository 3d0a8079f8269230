"""``toolbox.repair`` and ``undo`` on damaged stores, against what could be read before."""

import errno
import os
import shutil

import pytest

import rmqstore
from rmqstore import offline
from rmqstore.toolbox import rebuild, repair, undo
from rmqstore.toolbox.repairs import journal
from support import repairs
from support.repairs import chosen, killed_at, points, without_times

# Each takes a fifth of a second: the others are for "make interop".
IN_SUITE = (
    "flip", "hole-over-many", "file-end", "two-missing", "middle-short", "last-empty",
    "torn-tail", "killed-flip", "unaligned-in-log", "queue-file-short", "queue-beyond",
    "topic-gone", "flips-and-queues-gone", "ds-store-as-topic", "queue-extra", "index-count",
    "lock-directory", "topics-torn-both", "all-at-once",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


def copied(whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    return root


def test_a_whole_store_has_nothing_to_repair(whole, tmp_path):
    root = copied(whole, tmp_path)
    before = repairs.tree(root)
    assert repair(root).actions == ()
    done = repair(root, apply=True)
    assert (done.actions, done.journal) == ((), None)
    assert repairs.tree(root) == before


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_SUITE else pytest.param(name, marks=pytest.mark.campaign)
        for name in repairs.DAMAGE
    ],
)
def test_damage_is_repaired_and_undone(whole, tmp_path, name):
    root = copied(whole, tmp_path)
    places = repairs.queued(root)
    repairs.DAMAGE[name](root)
    damaged = repairs.tree(root)
    before = repairs.readable(root)
    planned = repair(root)
    assert repairs.tree(root) == damaged
    assert planned.actions
    assert planned.journal is None
    assert not any(one.done for one in planned.actions)

    done = repair(root, apply=True)
    assert done.left == 0, done.actions
    assert before.items() <= repairs.readable(root).items()
    verdict = offline.broker_start(root)
    assert verdict.broker == "starts", verdict
    assert not verdict.findings
    assert repair(root).actions == ()
    # Whole messages are at their places, and no queue offset is given away.
    now = repairs.queued(root)
    assert not {key for key, at in places.items() if at in before and now.get(key) != at}
    ends = {key[:2]: max(at for *queue, at in places if (*queue,) == key[:2]) for key in places}
    if name != "torn-tail":
        assert all((*queue, end) in now for queue, end in ends.items())

    assert done.journal is not None
    undo(root, done.journal)
    assert repairs.tree(root) == damaged
    repair(root, apply=True)
    with rmqstore.open(root, "r+", verify="full") as store:
        assert store.recovery.ranges == ()
        assert store.recovery.units_written == 0


def test_dummies_say_what_they_are(whole, tmp_path):
    root = copied(whole, tmp_path)
    with rmqstore.open(root) as store:
        lost = store["orders"][0][100]
    repairs.flip(root, 100)
    for done in (repair(root), repair(root, apply=True)):
        [fill, *_] = done.actions
        assert (fill.action, fill.offset, fill.bytes) == (
            "fill", lost.physical_offset, lost.store_size)  # fmt: skip
        assert (fill.lost, fill.dummies) == (done.lost, done.dummies) == (1, 1)
    with rmqstore.open(root) as store:
        dummy = store["orders"][0][100]
    assert dummy.properties == {"RMQSTORE_LOST": "true"}
    assert not dummy.body.strip(b"\0")
    assert (dummy.physical_offset, dummy.store_size) == (lost.physical_offset, lost.store_size)
    assert dummy.store_timestamp >= lost.store_timestamp


def test_delayed_messages_that_are_due_stay_where_they_are(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=repairs.CONFIG) as store:
        store.put("orders", b"later", delay_level=1)
        store.put("orders", b"now", queue_id=0)
    (root / "abort").touch()
    before = repairs.readable(root)
    end = (root / "config/delayOffset.json").exists()
    repair(root, apply=True)
    assert repairs.readable(root) == before
    assert (root / "config/delayOffset.json").exists() == end


def test_what_cannot_be_mended_is_said(whole, tmp_path):
    root = copied(whole, tmp_path)
    (root / "consumequeue/orders/9").symlink_to(tmp_path / "nowhere")
    [one, *_] = repair(root).actions
    assert (one.action, one.file) == ("none", "consumequeue/orders/9")
    assert "mount its disk" in one.message
    done = repair(root, apply=True)
    assert (done.left >= 1, done.journal) == (True, None)


@pytest.mark.parametrize(
    "name",
    ["consumerOffset.json", "subscriptionGroup.json", "delayOffset.json", "consumerFilter.json"],
)
@pytest.mark.parametrize("torn", ["both", "alone", "backup"])
def test_torn_json_is_set_aside(whole, tmp_path, name, torn):
    root = copied(whole, tmp_path)
    for one in (name, f"{name}.bak"):
        (root / "config" / one).unlink(missing_ok=True)
        if torn == "both" or (torn == "backup") == one.endswith(".bak"):
            (root / "config" / one).write_bytes(b'{"off')
    before = repairs.tree(root)
    starts = offline.broker_start(root).broker
    assert starts == ("loses" if torn == "alone" and name != "delayOffset.json" else (
        "starts" if torn == "alone" else "refuses"))  # fmt: skip
    [one, *_] = repair(root).actions
    known = name == "subscriptionGroup.json"  # by the groups' offsets
    assert (one.action, one.file) == (
        "rebuild-json" if known else "set-aside-json", f"config/{name}")  # fmt: skip
    if not known:
        assert ("a broker does not start, and without both begins" in one.message) == (
            torn != "alone")  # fmt: skip
    done = repair(root, apply=True)
    assert done.left == 0
    if not known:
        assert (root / done.actions[0].saved_to).read_bytes() == b'{"off'
    assert offline.broker_start(root).broker == "starts"
    assert repair(root).actions == ()
    undo(root, done.journal)
    assert repairs.tree(root) == before


def test_a_json_file_that_only_a_broker_can_read_stays(whole, tmp_path):
    root = copied(whole, tmp_path)
    os.truncate(root / "config/consumerOffset.json", 65 << 20)
    [one] = repair(root, apply=True).actions
    assert (one.action, one.file) == ("none", "config/consumerOffset.json")
    assert "move it away" in one.message


@pytest.mark.parametrize("backup", ["good", "dense", "gone"])
@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "delayOffset.json"])
def test_a_json_file_of_more_lists_than_are_read_stays(whole, tmp_path, name, backup):
    root = copied(whole, tmp_path)
    main, other = (root / "config" / one for one in (name, f"{name}.bak"))
    if backup == "good":
        if main.exists():
            main.replace(other)
        else:
            other.write_text("{}")
    else:
        other.unlink(missing_ok=True)
    dense = '{"x":[' + "[]," * 300_000 + "[]]}"
    (other if backup == "dense" else main).write_text(dense)
    if backup == "dense":
        main.unlink(missing_ok=True)
    before = repairs.tree(root / "config")
    [one] = repair(root, apply=True).actions
    assert (one.action, one.file) == (
        "none", f"config/{name}{'.bak' if backup == 'dense' else ''}")  # fmt: skip
    assert "objects and lists in" in one.message
    assert "move it away" in one.message
    assert repairs.tree(root / "config") == before


def test_undo_is_refused_once_the_store_was_written_to(whole, tmp_path):
    root = copied(whole, tmp_path)
    repairs.DAMAGE["queue-file-empty"](root)
    name = repair(root, apply=True).journal
    with rmqstore.open(root, "r+") as store:
        store.put("orders", b"more", queue_id=0)
    before = repairs.tree(root)
    with pytest.raises(ValueError, match=r"did not change since \(.* did\)"):
        undo(root, name)
    assert repairs.tree(root) == before
    with pytest.raises(ValueError, match=f"a journal of .*{name}"):
        undo(root, "rmqstore-repair-1")
    with pytest.raises(ValueError, match="a journal of"):
        undo(root, tmp_path)


@pytest.mark.parametrize("name", ["flip", "middle-short", "queue-file-short", "index-count"])
def test_hard_links_of_a_backup_keep_their_bytes(whole, tmp_path, name):
    root = copied(whole, tmp_path)
    repairs.DAMAGE[name](root)
    backup = tmp_path / "backup"
    shutil.copytree(root, backup, copy_function=os.link)
    damaged = repairs.tree(backup)
    done = repair(root, apply=True)
    assert done.left == 0
    assert repair(root).actions == ()
    assert repairs.tree(backup) == damaged
    assert done.journal is not None
    undo(root, done.journal)
    assert repairs.tree(root) == repairs.tree(backup) == damaged
    if name == "flip":
        assert (root / "commitlog" / ("0" * 20)).samefile(backup / "commitlog" / ("0" * 20))


def test_an_undo_of_a_linked_file_killed_at_any_point_is_finished_by_the_next(
    whole, tmp_path, monkeypatch
):
    root = copied(whole, tmp_path)
    repairs.flip(root, 100)
    backup = tmp_path / "backup"
    shutil.copytree(root, backup, copy_function=os.link)
    damaged = repairs.tree(backup)
    name = repair(root, apply=True).journal
    assert name is not None
    steps = points(lambda: undo(shutil.copytree(root, tmp_path / "count"), name), monkeypatch)
    for number in range(len(steps)):
        again = tmp_path / f"again-{number}"
        shutil.copytree(root, again)
        assert killed_at(number, lambda again=again: undo(again, name))
        undo(again, name)
        assert repairs.tree(again) == damaged


def test_a_journal_with_a_damaged_line_is_kept(whole, tmp_path):
    root = copied(whole, tmp_path)
    repairs.flip(root, 100)
    done = repair(root, apply=True)
    assert done.journal is not None
    manifest = root / done.journal / "manifest.jsonl"
    lines = manifest.read_bytes().split(b"\n")
    lines[2] = b"\0" * len(lines[2])
    manifest.write_bytes(b"\n".join(lines))
    before = repairs.tree(root)
    with pytest.raises(rmqstore.StoreCorruptError, match="a line is damaged"):
        undo(root, done.journal)
    assert repairs.tree(root) == before


def test_a_journal_without_its_manifest_is_kept(whole, tmp_path):
    root = copied(whole, tmp_path)
    repairs.flip(root, 100)
    done = repair(root, apply=True)
    assert done.journal is not None
    (root / done.journal / "manifest.jsonl").unlink()
    before = repairs.tree(root)
    with pytest.raises(ValueError, match="journal must be a journal of"):
        undo(root, done.journal)
    with pytest.raises(rmqstore.StoreCorruptError, match="is missing: nothing is undone"):
        repair(root, apply=True)
    assert repairs.tree(root) == before


def test_a_journal_that_names_a_file_outside_is_refused(whole, tmp_path):
    root = copied(whole, tmp_path)
    (tmp_path / "precious").write_bytes(b"x")
    made = root / f"{journal.PREFIX}1"
    made.mkdir()
    line = '{"op":"place","file":"../precious","new":"a"}\n{"op":"done","files":{}}'
    (made / "manifest.jsonl").write_text(line)
    with pytest.raises(rmqstore.StoreCorruptError, match="no path within the store"):
        undo(root, made.name)
    assert (tmp_path / "precious").exists()


def test_a_store_in_use_is_refused(whole, tmp_path):
    root = copied(whole, tmp_path)
    with rmqstore.open(root, "r+"):
        repair(root)  # beside it
        with pytest.raises(rmqstore.StoreLockedError, match="open for writing"):
            repair(root, apply=True)
        with pytest.raises(rmqstore.StoreLockedError):
            undo(root, "rmqstore-repair-1")


def test_a_log_that_lies_elsewhere_is_repaired_through_a_link(whole, tmp_path):
    root = copied(whole, tmp_path)
    away = tmp_path / "away"
    (root / "commitlog").rename(away)
    config = repairs.CONFIG.replace(store_path_commit_log=str(away))
    assert repair(root, config=config).actions == ()
    with pytest.raises(rmqstore.StoreNotFoundError, match="a log that lies elsewhere needs config"):
        repair(root)
    (root / "commitlog").symlink_to(away)
    before = repairs.tree(root) | repairs.tree(away)
    repairs.several(repairs.flipped(30), repairs.gone(repairs.log(1)))(root)
    damaged = repairs.tree(root) | repairs.tree(away)
    assert damaged != before
    done = repair(root, apply=True)
    assert done.left == 0
    assert offline.broker_start(root, config=config).broker == "starts"
    assert done.journal is not None
    undo(root, done.journal)
    assert repairs.tree(root) | repairs.tree(away) == damaged


def test_a_gap_too_large_to_fill_is_said_at_once(whole, tmp_path):
    root = copied(whole, tmp_path)
    (root / f"commitlog/{repairs.LOG << 40:020d}").write_bytes(bytes(repairs.LOG))
    before = repairs.tree(root)
    for apply in (False, True):
        [one] = repair(root, apply=apply).actions
        assert (one.action, one.offset) == ("none", 3 * repairs.LOG)
        assert "1,099,511,627,773 files are missing" in one.message
    assert repairs.tree(root) == before


def test_the_size_of_an_only_file_that_was_cut_is_the_configured_one(tmp_path):
    root = tmp_path / "store"
    repairs.make(root, count=100)
    os.truncate(root / repairs.log(0), 50_000)
    before = repairs.tree(root)
    whole = repairs.readable(root)
    for apply in (False, True):
        [one] = repair(root, apply=apply).actions
        assert one.action == "none"
        assert "give the broker.conf" in one.message
    assert repairs.tree(root) == before
    assert repair(root, config=repairs.CONFIG).actions[0].action == "extend-file"
    assert repair(root, config=repairs.CONFIG, apply=True).left == 0
    assert (root / repairs.log(0)).stat().st_size == repairs.LOG
    assert whole.items() <= repairs.readable(root).items()
    assert repair(root).actions == ()
    assert offline.broker_start(root, config=repairs.CONFIG).broker == "starts"


def test_ext_files_stay_and_have_their_length_again(tmp_path):
    root = tmp_path / "store"
    size = 4096
    config = repairs.CONFIG.replace(
        enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=size
    )
    repairs.make(root, config=config, count=100)
    assert repair(root).actions == ()
    [path, *others] = sorted(root.glob("consumequeue_ext/*/*/*"))
    assert others
    before = path.read_bytes()
    os.truncate(path, size - 100)
    repairs.patch(repairs.queue_file(0), 100, bytes(40))(root)
    assert {one.action for one in repair(root, apply=True).actions} == {
        "extend-file", "rebuild-queue", "close"}  # fmt: skip
    assert path.read_bytes() == before
    assert repair(root).actions == ()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_a_repair_killed_at_any_point_is_finished_by_the_next(whole, tmp_path, monkeypatch, every):
    damaged = copied(whole, tmp_path / "damaged")
    repairs.DAMAGE["all-at-once"](damaged)
    shutil.copytree(damaged, tmp_path / "wanted")
    found = points(lambda: repair(tmp_path / "wanted", apply=True), monkeypatch)
    assert {"overwrite-noted", "resize-noted", "move-noted", "place-noted"} - {*found} == {
        "resize-noted"}  # fmt: skip
    wanted = without_times(tmp_path / "wanted")
    numbers = chosen(found)
    for number in range(len(found)) if every else numbers[1 :: len(numbers) // 3]:
        root = tmp_path / f"killed-{number}"
        shutil.copytree(damaged, root)
        assert killed_at(number, lambda root=root: repair(root, apply=True))
        done = repair(root, apply=True)
        assert len(done.undone) == 1
        assert without_times(root) == wanted, found[number]
        assert len(journal.journals(root)) == 1


def test_a_rebuild_of_all_killed_at_any_point_is_finished_by_the_next(whole, tmp_path, monkeypatch):
    damaged = copied(whole, tmp_path / "damaged")
    repairs.DAMAGE["queues-and-index-gone"](damaged)
    wanted = tmp_path / "wanted"
    shutil.copytree(damaged, wanted)
    found = points(lambda: rebuild(wanted, apply=True), monkeypatch)
    for number in chosen(found)[::3]:
        root = tmp_path / f"killed-{number}"
        shutil.copytree(damaged, root)
        assert killed_at(number, lambda root=root: rebuild(root, apply=True))
        rebuild(root, apply=True)
        assert without_times(root) == without_times(wanted), found[number]
        assert len(journal.journals(root)) == 1


def test_an_undo_killed_at_any_point_is_finished_by_the_next(whole, tmp_path, monkeypatch):
    damaged = copied(whole, tmp_path / "damaged")
    repairs.DAMAGE["all-at-once"](damaged)
    repairs.truncate(repairs.log(0), repairs.LOG + 5)(damaged)
    done = tmp_path / "done"
    shutil.copytree(damaged, done)
    name = repair(done, apply=True).journal
    shutil.copytree(done, tmp_path / "undone")
    found = points(lambda: undo(tmp_path / "undone", name), monkeypatch)
    assert without_times(tmp_path / "undone") == without_times(damaged)
    for number in (0, 1, len(found) // 2, len(found) - 2, len(found) - 1):
        root = tmp_path / f"killed-{number}"
        shutil.copytree(done, root)
        assert killed_at(number, lambda root=root: undo(root, name))
        if journal.journals(root):
            journal.undo_unfinished(root)  # as the next repair: its last line is gone, or
            for one in journal.journals(root):
                journal.Journal(root, one).undo()
        assert without_times(root) == without_times(damaged), found[number]


def test_a_repair_is_not_undone_under_a_store_that_was_opened_since(whole, tmp_path):
    root = copied(whole, tmp_path)
    repairs.DAMAGE["queue-file-empty"](root)
    assert killed_at(3, lambda: repair(root, apply=True))
    [one] = repair(root).actions
    assert one.action == "undo-unfinished"
    with rmqstore.open(root, "r+") as store:
        store.put("orders", b"more", queue_id=0)
    before = repairs.tree(root)
    with pytest.raises(rmqstore.StoreCorruptError, match="opened for writing since"):
        repair(root, apply=True)
    assert repairs.tree(root) == before


@pytest.mark.parametrize("number", [0, 4, 15])
def test_a_full_disk_leaves_the_store_as_it_was(whole, tmp_path, monkeypatch, number):
    root = copied(whole, tmp_path)
    repairs.DAMAGE["all-at-once"](root)
    damaged = repairs.tree(root)
    real = journal.Journal._note
    left = iter(range(number))

    def note(self, entry):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, entry)

    monkeypatch.setattr(journal.Journal, "_note", note)
    with pytest.raises(OSError, match="No space left"):
        repair(root, apply=True)
    assert repairs.tree(root) == damaged
