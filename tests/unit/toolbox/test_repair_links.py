"""``toolbox.repair`` and ``rebuild`` of stores with links that lead nowhere."""

import shutil

import pytest

import rmqstore
from rmqstore.toolbox import rebuild, repair
from support import repairs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


def state(root):
    return {
        str(path.relative_to(root)): (
            path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes()
        )
        for path in root.rglob("*")
    }


@pytest.mark.parametrize(
    "name",
    [
        "config", "config/topics.json", "config/topics.json.bak", "config/delayOffset.json",
        "consumequeue", "consumequeue/orders", "consumequeue/orders/0", repairs.queue_file(0),
        "index", "checkpoint", "abort", repairs.log(1), "commitlog",
    ],
)  # fmt: skip
def test_all_stays_as_it_is(whole, tmp_path, name):
    """The disk may only be unmounted: nothing is made in its place, nor cut for lack of it."""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    (root / "config/consumerOffset.json").write_text("{")
    path = root / name
    if path.exists():
        path.rename(tmp_path / "unmounted")
    path.symlink_to(tmp_path / "nowhere")
    before = state(root)
    for apply in (False, True):
        [one] = repair(root, apply=apply).actions
        assert (one.action, one.file, one.done) == ("none", name, False)
        assert f"{tmp_path / 'nowhere'}, which is not there: mount its disk" in one.message
        assert state(root) == before
    if name.startswith(("consumequeue", "index", "commitlog")):
        for apply in (False, True):
            with pytest.raises((OSError, rmqstore.StoreNotFoundError), match="which is not there"):
                rebuild(root, apply=apply)
            assert state(root) == before
    path.unlink()
    if (tmp_path / "unmounted").exists():
        path.symlink_to(tmp_path / "unmounted")
    assert [one for one in repair(root, apply=True).actions if not one.done] == []
