"""``repair``, ``rebuild`` and copies of stores whose log lies in several directories."""

import errno
import re
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore import offline, toolbox
from rmqstore.toolbox import rebuild, repair, undo
from rmqstore.toolbox.repairs import journal
from support import mounts, repairs
from support.repairs import chosen, killed_at, without_times

IN_SUITE = (
    "flips", "hole-over-many", "middle-missing", "middle-short", "middle-long", "first-short",
    "last-missing", "last-empty", "last-short", "torn-tail", "killed-flip", "bak-in-log",
    "directory-in-log", "unaligned-in-log", "queue-gone", "all-at-once",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root, count=2000)
    return root


@pytest.fixture
def disks(monkeypatch):
    """Renames between the directory of the store and another are refused, as by file systems."""
    real = Path.rename

    def rename(self, target):
        if {"store"} & {*self.parts} ^ {"store"} & {*Path(target).parts}:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)


def damaged(whole, directory, name="flip", **more):
    """Return a damaged store with its log in two directories, and its configuration."""
    root = directory / "store"
    shutil.copytree(whole, root)
    repairs.DAMAGE[name](root)
    return root, repairs.spread(root, directory / "a", directory / "b", **more)


def contents(directory):
    """Return the bytes of a store and its log, wherever the log's files lie."""
    found = without_times(directory / "store")
    for log in ("a", "b"):
        found |= {f"commitlog/{one}": data for one, data in without_times(directory / log).items()}
    return {"commitlog": True, **found}


def untimed(files):
    """Return the files without the time at which topics.json was made anew."""
    name = "config/topics.json"
    return files | {name: re.sub(rb'"timestamp":\d+', b"", files[name])}


def states(directory):
    """Return bytes and times of a store and of its log."""
    return {name: repairs.tree(directory / name) for name in ("store", "a", "b")}


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_SUITE else pytest.param(name, marks=pytest.mark.campaign)
        for name in repairs.DAMAGE
    ],
)
def test_a_repair_is_that_of_one_directory(whole, tmp_path, name, disks):
    root, config = damaged(whole, tmp_path, name)
    before = states(tmp_path)
    alone = tmp_path / "alone"
    shutil.copytree(whole, alone)
    repairs.DAMAGE[name](alone)
    wanted = repair(alone, config=repairs.CONFIG, apply=True)

    planned = repair(root, config=config)
    assert states(tmp_path) == before
    assert planned.actions
    done = repair(root, config=config, apply=True)
    assert done.left == 0, done.actions
    assert [one.action for one in done.actions] == [one.action for one in wanted.actions]
    assert untimed(contents(tmp_path)) == untimed(without_times(alone))
    assert offline.broker_start(root, config=config).broker == "starts"
    assert repair(root, config=config).actions == ()
    kinds = [one.kind for one in toolbox.verify(alone, full=True).problems]
    assert [one.kind for one in toolbox.verify(root, config=config, full=True).problems] == kinds

    assert done.journal is not None
    undo(root, done.journal, config=config)
    assert states(tmp_path) == before


@pytest.mark.parametrize("name", ["queues-gone", "queues-and-index-gone", "index-count"])
def test_a_rebuild_is_that_of_one_directory(whole, tmp_path, name):
    root, config = damaged(whole, tmp_path, name)
    before = states(tmp_path)
    assert any(not one.same for one in rebuild(root, config=config))
    assert states(tmp_path) == before
    rebuild(root, config=config, apply=True)
    alone = tmp_path / "alone"
    shutil.copytree(whole, alone)
    repairs.DAMAGE[name](alone)
    rebuild(alone, config=repairs.CONFIG, apply=True)
    assert contents(tmp_path) == without_times(alone)
    assert all(one.same for one in rebuild(root, config=config))
    [name] = [one.name for one in journal.journals(root)]
    undo(root, name, config=config)
    assert states(tmp_path) == before


def test_a_missing_file_is_made_where_a_broker_would(whole, tmp_path):
    root, config = damaged(whole, tmp_path, "two-missing")
    repair(root, config=config, apply=True)
    for place, log in enumerate(("a", "b")):
        numbers = [int(one.name) // repairs.LOG for one in (tmp_path / log).iterdir()]
        assert sorted(numbers) == [*range(place, 6, 2)]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", ["all-at-once", "bak-in-log"])
def test_a_repair_killed_at_any_point_is_finished_by_the_next(
    whole, tmp_path, monkeypatch, disks, name, every
):
    wanted = tmp_path / "wanted"
    root, config = damaged(whole, wanted, name)

    def again(number):
        directory = tmp_path / f"killed-{number}"
        root, config = damaged(whole, directory, name)
        return directory, root, config

    found = []
    with monkeypatch.context() as patch:
        patch.setattr(journal, "reached", found.append)
        repair(root, config=config, apply=True)
    assert {"copy-made", "copy-placed"} <= {*found}
    numbers = chosen(found)
    for number in range(len(found)) if every else numbers[:: 1 + len(numbers) // 6]:
        directory, root, config = again(number)
        assert killed_at(number, lambda r=root, c=config: repair(r, config=c, apply=True))
        done = repair(root, config=config, apply=True)
        assert len(done.undone) == 1
        assert contents(directory) == contents(wanted), found[number]


@pytest.mark.parametrize("name", ["all-at-once", "bak-in-log"])
def test_an_undo_killed_at_any_point_is_finished_by_the_next(
    whole, tmp_path, monkeypatch, disks, name
):
    found = []
    root, config = damaged(whole, tmp_path / "first", name)
    wanted = contents(tmp_path / "first")
    done = repair(root, config=config, apply=True).journal
    with monkeypatch.context() as patch:
        patch.setattr(journal, "reached", found.append)
        undo(root, done, config=config)
    assert contents(tmp_path / "first") == wanted
    assert {"copy-made", "copy-placed"} <= {*found}
    for number in chosen(found):
        root, config = damaged(whole, tmp_path / str(number), name)
        done = repair(root, config=config, apply=True).journal
        assert killed_at(number, lambda r=root, c=config, d=done: undo(r, d, config=c))
        for one in journal.journals(root):
            undo(root, one.name, config=config)
        assert contents(tmp_path / str(number)) == wanted, found[number]


def test_a_journal_is_undone_only_with_the_directories_that_it_names(whole, tmp_path):
    root, config = damaged(whole, tmp_path)
    done = repair(root, config=config, apply=True).journal
    before = states(tmp_path)
    with pytest.raises(
        rmqstore.StoreCorruptError, match=r"/b/0+262144' is no path .* give that with -c"
    ):
        undo(root, done)
    assert states(tmp_path) == before


@pytest.mark.parametrize("name", ["last-missing", "middle-missing"])
def test_an_empty_directory_may_be_the_mount_point_of_a_disk(whole, tmp_path, name):
    """Nothing is made in place of its files, and no queue cut at their begin."""
    root, config = damaged(whole, tmp_path, name)
    (tmp_path / "b").rename(tmp_path / "unmounted")
    before = [repairs.tree(tmp_path / one) for one in ("store", "a")]
    for work in (repair, rebuild):
        for apply in (False, True):
            with pytest.raises(rmqstore.StoreNotFoundError, match="/b is missing: is its disk"):
                work(root, config=config, apply=apply)
    (tmp_path / "b").mkdir()
    for work in (repair, rebuild):
        for apply in (False, True):
            with pytest.raises(rmqstore.StoreNotFoundError, match="/b: there is no log file, and"):
                work(root, config=config, apply=apply)
    assert [repairs.tree(tmp_path / one) for one in ("store", "a")] == before


def test_a_new_directory_may_be_empty(whole, tmp_path):
    root, config = damaged(whole, tmp_path)
    (tmp_path / "c").mkdir()
    config = config.replace(
        store_path_commit_log=f"{config.store_path_commit_log},{tmp_path / 'c'}"
    )
    assert repair(root, config=config, apply=True).left == 0


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("flip", "fill"), ("first-short", "extend-file"), ("bak-in-log", "move-foreign"),
        ("garbage-behind", "zero-tail"),
    ],
)  # fmt: skip
def test_a_directory_that_is_only_read_is_not_written(whole, tmp_path, name, action):
    root, config = damaged(whole, tmp_path, name)
    both = [tmp_path / "a", tmp_path / "b"]
    closed = next(one for one in both if repair(root, config=config).actions[0].file.startswith(
        str(one)))  # fmt: skip
    only = config.replace(read_only_commit_log_store_paths=str(closed))
    (root / "config/topics.json").unlink()
    before = repairs.tree(closed)
    for apply in (False, True):
        done = repair(root, config=only, apply=apply)
        left = [one for one in done.actions if one.action == "none"]
        assert all(one.file.startswith(str(closed)) for one in left)
        assert f"{action} is not done" in left[0].message
        assert "in storePathCommitLog alone" in left[0].message
        assert repairs.tree(closed) == before
    assert done.left == len(left)
    assert repair(root, config=config, apply=True).left == 0
    assert repair(root, config=only).actions == ()


def test_a_missing_file_is_not_made_in_a_directory_that_is_only_read(whole, tmp_path):
    root, config = damaged(whole, tmp_path, "two-missing")
    config = config.replace(read_only_commit_log_store_paths=str(tmp_path / "b"))
    before = repairs.tree(tmp_path / "b")
    assert repair(root, config=config, apply=True).left == 0
    assert repairs.tree(tmp_path / "b") == before
    assert (tmp_path / f"a/{repairs.LOG:020d}").exists()


ONE, TWO = (f"{number * repairs.LOG:020d}" for number in (1, 2))


@pytest.mark.parametrize("kind", ["same", "empty", "zeros", "begun"])
@pytest.mark.parametrize("read_only", [None, "a", "b"])
def test_a_file_in_two_directories_is_moved_away_where_nothing_is_lost(
    whole, tmp_path, kind, read_only
):
    root, config = damaged(whole, tmp_path, "killed")
    data = (tmp_path / "b" / ONE).read_bytes()
    other = {"same": data, "empty": b"", "zeros": bytes(repairs.LOG), "begun": data[:70_000]}[kind]
    (tmp_path / "a" / ONE).write_bytes(other)
    if read_only is not None:
        config = config.replace(read_only_commit_log_store_paths=str(tmp_path / read_only))
    before = states(tmp_path)
    report = toolbox.verify(root, config=config)
    assert (report.broker, report.problems[0].kind) == ("loses", "file-twice")
    assert report.problems[0].file == str(tmp_path / "a" / ONE)
    assert report.fix == f"rmqstore repair {root}"
    [planned] = [one for one in repair(root, config=config).actions if one.action != "close"]
    done = repair(root, config=config, apply=True)
    if read_only == "a" and kind != "same":
        assert (planned.action, planned.file) == ("none", str(tmp_path / "a" / ONE))
        assert done.left == 1
        assert states(tmp_path) == before
        return
    gone = "b" if read_only == "a" or (kind == "same" and read_only is None) else "a"
    assert (planned.action, planned.file) == ("move-repeated", str(tmp_path / gone / ONE))
    assert done.left == 0
    assert (root / done.actions[0].saved_to).read_bytes() == (data if gone == "b" else other)
    assert not (tmp_path / gone / ONE).exists()
    assert offline.broker_start(root, config=config).broker == "starts"
    undo(root, done.journal, config=config)
    assert states(tmp_path) == before


@pytest.mark.parametrize("name", ["all-at-once", "directory-in-log"])
def test_a_disk_of_its_own(whole, tmp_path, name):
    wanted = tmp_path / "wanted"
    root, config = damaged(whole, wanted, name)
    repair(root, config=config, apply=True)
    with mounts.disk(tmp_path / "disk", "tmpfs", 16) as disk:
        (tmp_path / "a").symlink_to(disk, target_is_directory=True)
        root, config = damaged(whole, tmp_path, name)
        (disk / "linked").symlink_to(root / "checkpoint")
        before = states(tmp_path)
        done = repair(root, config=config, apply=True)
        assert done.left == 0
        assert contents(tmp_path) == contents(wanted)
        undo(root, done.journal, config=config)
        assert (disk / "linked").readlink() == root / "checkpoint"
        assert {**states(tmp_path), "a": None} == {**before, "a": None}
        del before["a"]["linked"]  # whose time is new
        (disk / "linked").unlink()
        assert states(tmp_path) == before


def test_a_file_in_two_directories_with_other_bytes_is_left_to_the_user(whole, tmp_path):
    root, config = damaged(whole, tmp_path, "killed")
    (tmp_path / "a" / ONE).write_bytes((tmp_path / "a" / TWO).read_bytes())
    before = states(tmp_path)
    for apply in (False, True):
        left, *_ = repair(root, config=config, apply=apply).actions
        assert (left.action, left.file, left.offset) == (
            "none", str(tmp_path / "a" / ONE), repairs.LOG)  # fmt: skip
        assert f"also {tmp_path / 'b' / ONE}, with other bytes" in left.message
        assert states(tmp_path) == before
    with pytest.raises(rmqstore.IncompatibleStoreError, match="twice"):
        rebuild(root, config=config, apply=True)
    assert states(tmp_path) == before


def test_copies_of_a_log_in_several_directories(whole, tmp_path):
    root, config = damaged(whole, tmp_path, "killed")
    with rmqstore.open(root, "r+", config=config):
        pass
    before = states(tmp_path)
    toolbox.backup(root, tmp_path / "backup", config=config)
    assert not any(one.problem for one in toolbox.verify_backup(tmp_path / "backup"))
    for one, other in ((root, tmp_path / "backup"), (whole, root)):
        assert [*toolbox.difference(one, other, full=True, config=config)] == []
    toolbox.extract(root, tmp_path / "new", topics=["orders"], config=config)
    toolbox.extract(whole, tmp_path / "alone", topics=["orders"])
    wanted = without_times(tmp_path / "alone/commitlog")
    assert without_times(tmp_path / "new/commitlog") == wanted
    assert states(tmp_path) == before


def test_a_record_in_a_directory_that_is_only_read_is_left(whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    repairs.patch_record(root, 1, 12, (3).to_bytes(4, "big"))
    name = f"{repairs.place_of(root, 1) // repairs.LOG * repairs.LOG:020d}"
    config = repairs.spread(root, tmp_path / "a", tmp_path / "b")
    [file] = tmp_path.glob(f"[ab]/{name}")
    assert [one.action for one in repair(root, config=config).actions] == ["mend-record", "close"]
    config = config.replace(read_only_commit_log_store_paths=str(file.parent))
    before = file.read_bytes()
    for done in (repair(root, config=config), repair(root, config=config, apply=True)):
        assert [one.action for one in done.actions if one.file == str(file)] == ["none"]
    assert file.read_bytes() == before


def test_a_plan_beside_damage_that_is_left_is_what_is_done(whole, tmp_path):
    root, config = damaged(whole, tmp_path)
    (root / "config/topics.json").write_bytes(b'{"torn')
    for closed in (tmp_path / "a", tmp_path / "b"):
        only = config.replace(read_only_commit_log_store_paths=str(closed))
        planned = repair(root, config=only)
        if any(one.action == "none" for one in planned.actions):
            break
    else:
        pytest.fail("no directory has the damage")
    done = repair(root, config=only, apply=True)
    assert [one.action for one in done.actions] == [one.action for one in planned.actions]
