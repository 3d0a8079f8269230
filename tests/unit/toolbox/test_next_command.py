"""The command that ``verify`` names next mends what was found: it is never named a second time."""

import shlex
import shutil

import pytest

import rmqstore
from rmqstore.toolbox import rebuild, repair, undo, verify
from support import repairs

CONFIG_FILES = ("topics", "consumerOffset", "subscriptionGroup", "consumerFilter", "delayOffset")


def replaced(name, data, backup=None):
    def change(root):
        path = root / "config" / f"{name}.json"
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.bak").unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        if backup is not None:
            path.with_name(f"{path.name}.bak").write_bytes(backup)

    return change


def delayed(change):
    """Damage to a store that has delayed messages."""

    def run(root):
        with rmqstore.open(root, "r+") as store:
            store.put("orders", b"later", delay_level=1)
        change(root)

    return run


DAMAGE = {
    **repairs.DAMAGE,
    "checkpoint-gone": repairs.gone("checkpoint"),
    "checkpoint-bytes": repairs.patch("checkpoint", 2000, b"\xee" * 100),
    "checkpoint-short": repairs.truncate("checkpoint", 10),
    "checkpoint-directory": repairs.directory("checkpoint"),
    "abort-directory": repairs.directory("abort"),
    "deleted-torn": repairs.write("rmqstore-deleted.json", b"{"),
    "queues-a-file": repairs.several(
        repairs.gone("consumequeue"), repairs.write("consumequeue", b"")
    ),
    "index-a-file": repairs.several(repairs.gone("index"), repairs.write("index", b"")),
    "index-size": lambda root: repairs.truncate(
        next((root / "index").iterdir()).relative_to(root), 4096
    )(root),
    "bak-directory": repairs.directory("config/topics.json.bak"),
    "link": lambda root: (root / "consumequeue/bills/9").symlink_to("nowhere"),
    "link-and-flip": repairs.several(
        lambda root: (root / "consumequeue/bills/9").symlink_to("nowhere"), repairs.flipped(100)
    ),
    "delays-gone": delayed(replaced("delayOffset", None)),
    "delays-torn": delayed(replaced("delayOffset", b'{"off')),
    **{
        f"{name}-{kind}": replaced(name, *data)
        for name in CONFIG_FILES
        for kind, data in {
            "empty": (b"",),
            "empties": (b"", b""),
            "no-object": (b"null",),
            "backup-empty": (None, b""),
            "backup-torn": (None, b"{"),
        }.items()
    },
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


def run(root, fix):
    """Run the command with ``--apply``; return the actions, and the journal if there is one."""
    program, verb, place, *options = shlex.split(fix)
    assert (program, place) == ("rmqstore", str(root))
    if verb == "repair":
        done = repair(root, apply=True)
        return done.actions, done.journal
    assert verb == "rebuild"
    found = rebuild(root, queues="--queues" in options, index="--index" in options, apply=True)
    return [one for one in found if not one.same], None


@pytest.mark.parametrize("name", DAMAGE)
def test_no_command_is_named_twice(whole, tmp_path, name):
    root = shutil.copytree(whole, tmp_path / "store")
    DAMAGE[name](root)
    report = verify(root, full=True, jobs=1)
    if report.fix is None:
        return
    actions, journal = run(root, report.fix)
    assert actions
    again = verify(root, full=True, jobs=1)
    assert again.fix is None, again.problems
    if journal is not None:
        undo(root, journal)
        assert verify(root, full=True, jobs=1).problems == report.problems


@pytest.mark.parametrize("name", ["checkpoint-gone", "checkpoint-short", "topics-empties", "flip"])
def test_a_command_is_named(whole, tmp_path, name):
    root = shutil.copytree(whole, tmp_path / "store")
    DAMAGE[name](root)
    assert verify(root, full=True, jobs=1).fix == f"rmqstore repair {root}"
