"""Damage of many kinds, alone and together, then a repair; also one that is killed."""

import os
import random
import shutil
import signal
import time

import pytest

import rmqstore
from rmqstore.toolbox import repair, undo, verify
from support import damage, repairs


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    home = tmp_path_factory.mktemp("shapes")
    for shape in damage.SHAPES:
        (home / shape).mkdir()
        damage.make(home / shape, shape)
    return home


def damaged(home, root, kinds, draw):
    """Copy a store and damage the copy, by each kind for which it still has files."""
    shutil.copytree(home / "new", root)
    for kind in kinds:
        damage.KINDS[kind](root, draw, home / "old")


def shown(root):
    """Return the messages that any reader is shown, of the log or of a queue."""
    try:
        found = repairs.readable(root)
        places = repairs.queued(root)
    except OSError:  # no directory
        return {}
    with rmqstore.open(root) as store:
        for place, offset in places.items():
            try:
                one = store.at(offset) if offset >= 0 else None
            except rmqstore.StoreError:
                continue
            if one is not None and (one.topic, one.queue_id, one.queue_offset) == place:
                found[offset] = (*place, one.body)
    return found


def without_times(root):
    """Return a store's files but for what says when it was repaired."""
    names = ("rmqstore-repair-", "checkpoint", "lock", "config/topics.json")
    return {
        name: one if one is True else one[0]
        for name, one in repairs.tree(root).items()
        if not name.startswith(names)
    }


def check(root):
    before, seen = repairs.tree(root), shown(root)
    report = verify(root, full=True, jobs=1)
    planned = repair(root)
    assert repairs.tree(root) == before
    assert report.clean or planned.actions
    done = repair(root, apply=True)
    assert done.left == 0, done.actions
    after = repairs.readable(root)
    assert seen.items() <= after.items()
    assert repair(root).actions == ()
    report = verify(root, full=True, jobs=1)
    kinds = {one.kind for one in report.problems if one.severity != "warn"}
    assert (report.broker, report.clean, kinds) == ("starts", True, set()), report.problems
    if done.journal is not None:
        undo(root, done.journal)
        now = repairs.tree(root)
        now.pop("lock", None)
        assert now == {name: one for name, one in before.items() if name != "lock"}


@pytest.mark.parametrize("kind", damage.KINDS)
def test_each_kind_is_repaired(shapes, tmp_path, kind):
    shape = sorted(damage.SHAPES)[len(kind) % 3]
    damaged(shapes / shape, tmp_path / "store", [kind], random.Random(kind))
    check(tmp_path / "store")


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", damage.KINDS)
def test_each_kind_is_repaired_often(shapes, tmp_path, kind, seed):
    shape = sorted(damage.SHAPES)[seed % 3]
    damaged(shapes / shape, tmp_path / "store", [kind], random.Random(f"{kind} {seed}"))
    check(tmp_path / "store")


def test_a_repair_killed_at_any_moment_is_finished_by_the_next(shapes, tmp_path):
    kill_at_random(shapes, tmp_path, 0)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 100))
def test_repairs_killed_at_any_moment(shapes, tmp_path, seed):
    kill_at_random(shapes, tmp_path, seed)


def kill_at_random(shapes, tmp_path, seed):
    draw = random.Random(seed)
    shape = draw.choice(sorted(damage.SHAPES))
    kinds = [draw.choice(["cut", "hole", "early_blanks", "swapped_pages"]) for _ in range(3)]
    damaged(shapes / shape, tmp_path / "damaged", kinds, draw)
    shutil.copytree(tmp_path / "damaged", tmp_path / "wanted")
    began = time.monotonic()
    repair(tmp_path / "wanted", apply=True)
    seconds = time.monotonic() - began
    root = tmp_path / "killed"
    shutil.copytree(tmp_path / "damaged", root)
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                repair(root, apply=True)
            finally:
                os._exit(0)
        time.sleep(draw.random() * seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    repair(root, apply=True)
    assert without_times(root) == without_times(tmp_path / "wanted")
    [journal] = root.glob("rmqstore-repair-*")
    undo(root, journal)
    assert without_times(root) == without_times(tmp_path / "damaged")
