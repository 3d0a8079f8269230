"""``toolbox.repair`` and ``undo`` on damaged stores, against what could be read before."""

import shutil

import pytest

import rmqstore
from rmqstore import offline
from rmqstore.toolbox.repair import repair, undo
from support import repairs


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


@pytest.mark.parametrize("name", repairs.DAMAGE)
def test_damage_is_repaired_and_undone(whole, tmp_path, name):
    root = copied(whole, tmp_path)
    places = repairs.queued(root)
    repairs.DAMAGE[name](root)
    damaged = repairs.tree(root)
    before = repairs.readable(root)
    planned = repair(root)
    assert repairs.tree(root) == damaged
    assert planned.actions and planned.journal is None
    assert not any(one.done for one in planned.actions)

    done = repair(root, apply=True)
    assert done.left == 0, done.actions
    after = repairs.readable(root)
    assert before.items() <= after.items()
    verdict = offline.broker_start(root)
    assert verdict.broker == "starts", verdict
    assert not [one for one in verdict.findings if one.kind != "index-behind"], verdict
    assert repair(root).actions == ()
    # Whole messages are at their places, and no offset is given away.
    now = repairs.queued(root)
    whole_now = {key for key, at in places.items() if at in before}
    assert {key for key in whole_now if now.get(key) != places[key]} == set()
    with rmqstore.open(root, "r+", verify="full") as store:
        assert not store.recovery.ranges
        ends = {key[:2]: 0 for key in places}
        for topic, queue_id, at in places:
            ends[topic, queue_id] = max(ends[topic, queue_id], at + 1)
        if "killed" not in name:
            for (topic, queue_id), end in ends.items():
                assert store[topic][queue_id].max_offset >= end

    root = copied(whole, tmp_path / "again")
    repairs.DAMAGE[name](root)
    damaged = repairs.tree(root)
    journal = repair(root, apply=True).journal
    assert journal is not None
    undo(root, journal)
    assert repairs.tree(root) == damaged
