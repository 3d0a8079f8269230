"""``toolbox.repair`` of logs whose end is gone: as many are lost as queues name there."""

import os
import shutil

import pytest

from rmqstore.toolbox import repair
from support import repairs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


def zeroed(kept):
    def change(path):
        os.truncate(path, kept)
        os.truncate(path, repairs.LOG)

    return change


def torn(path):
    zeroed(8000)(path)
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"x")


ENDS = {"end": zeroed(8000), "all": zeroed(0), "torn": torn, "gone": os.unlink}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_the_plan_counts_what_queues_name(whole, tmp_path, end, killed):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    ENDS[end](sorted((root / "commitlog").iterdir())[-1])
    if killed:
        (root / "abort").touch()
    lost = repairs.COUNT - len(repairs.readable(root))
    assert lost > 200
    planned = repair(root)
    assert planned.lost == lost
    assert planned.dummies == (0 if killed else lost)
    done = repair(root, apply=True)
    assert (done.lost, done.left) == (lost, 0)
    assert repair(root).actions == ()
    assert len(repairs.readable(root)) == repairs.COUNT - lost + done.dummies
