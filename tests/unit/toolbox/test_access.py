"""Stores that a repair's user may not read or write: named in the plan, and nothing changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.toolbox.repairs.journal import Journal, unfinished
from support import repairs
from support.unprivileged import REMEDY, run_unprivileged

READ = {
    "queue directory": "consumequeue/orders/1",
    "topic directory": "consumequeue/orders",
    "queues": "consumequeue",
    "queue file": repairs.queue_file(0),
    "log": "commitlog",
    "log file": repairs.log(0),
    "index": "index",
    "config": "config",
    "topics": "config/topics.json",
    "offsets": "config/consumerOffset.json",
    "backup of offsets": "config/consumerOffset.json.bak",
    "checkpoint": "checkpoint",
    "lock": "lock",
}
WRITE = {
    "store": ".",
    "queue directory": "consumequeue/orders/0",
    "log": "commitlog",
    "log file": repairs.log(1),
    "index": "index",
}
TAKEN = "rmqstore-quarantine/00000000000000000000-1700000000000"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "s"
    repairs.make(root)
    repairs.write("config/consumerOffset.json.bak", b"{}")(root)
    for damage in ("flip", "queue-unit-wrong", "index-header", "ds-store-in-log"):
        repairs.DAMAGE[damage](root)
    return root


@pytest.fixture
def closed(whole: Path, tmp_path: Path) -> Iterator[Callable[[str, int], Path]]:
    shut: list[Path] = []
    root = tmp_path / "s"

    def close(file: str, mode: int) -> Path:
        shutil.copytree(whole, root)
        shut.append(root / file)
        shut[0].chmod(mode)
        return root

    yield close
    for one in shut:
        if one.exists():
            one.chmod(0o755)


def state(root: Path) -> dict[str, object]:
    return {
        str(one.relative_to(root)): (one.lstat().st_mode, one.is_dir() or one.read_bytes())
        for one in root.rglob("*")
    }


def run(root: Path, *words: str) -> tuple[int, list[dict[str, str]], str]:
    """Run a verb, by which nothing may change; return its code, rows and messages."""
    before = state(root)
    done = run_unprivileged("-m", "rmqstore", words[0], root, *words[1:])
    assert state(root) == before
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    return done.returncode, [json.loads(one) for one in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("file", READ.values(), ids=READ)
def test_unreadable(closed: Callable[[str, int], Path], file: str) -> None:
    root = closed(file, 0)
    bits = "u+rwx" if (root / file).is_dir() else "u+rw"
    for apply in ((), ("--apply",)):
        code, [row], said = run(root, "repair", *apply)
        assert (code, row["action"], row["file"]) == (1, "none", file)
        owner = root.stat().st_uid
        assert row["message"].endswith(f"run as its owner, user {owner}, or chmod {bits} it")
        assert said == "rmqstore: nothing was changed\n"
        code, rows, said = run(root, "rebuild", *apply)
        assert (code, rows) == (4, [])
        assert f"{root / file}: " in said
        assert "as its owner" in said or "as the owner" in said


@pytest.mark.parametrize("file", WRITE.values(), ids=WRITE)
def test_unwritable(closed: Callable[[str, int], Path], file: str) -> None:
    root = closed(file, 0o444 if "/000" in file else 0o555)
    code, rows, _ = run(root, "repair")
    assert code == 1
    assert {one["action"] for one in rows} >= {"fill", "rebuild-queue", "rebuild-index", "close"}
    [named] = [one for one in rows if one["action"] == "none"]
    code, rows, said = run(root, "repair", "--apply")
    assert (code, rows) == (1, [named])
    assert named["file"] == file
    assert "chmod u+rw" in named["message"]
    assert said == "rmqstore: nothing was changed\n"


@pytest.mark.parametrize("file", [".", "consumequeue/orders/0", "index"])
def test_rebuild_of_what_it_may_not_write(
    tmp_path: Path, closed: Callable[[str, int], Path], file: str
) -> None:
    root = closed(file, 0o755)
    repairs.gone("commitlog")(root)  # without the damage
    repairs.make(tmp_path / "sound")
    shutil.copytree(tmp_path / "sound/commitlog", root / "commitlog")
    (root / file).chmod(0o555)
    code, rows, said = run(root, "rebuild", "--apply")
    assert (code, rows) == (4, [])
    assert "this user may not write it" in said
    assert str(root / file).removesuffix("/.") in said


def test_a_foreign_file_is_moved_unread(closed: Callable[[str, int], Path]) -> None:
    root = closed("commitlog/.DS_Store", 0)
    done = run_unprivileged("-m", "rmqstore", "repair", root, "--apply")
    assert done.returncode == 0, done.stderr
    assert not (root / "commitlog/.DS_Store").exists()
    [moved] = root.glob("rmqstore-repair-*/*.DS_Store")
    moved.chmod(0o600)


@pytest.mark.parametrize("file", [TAKEN, "rmqstore-quarantine"])
@pytest.mark.parametrize("apply", [(), ("--apply",)])
def test_an_unreadable_quarantine(tmp_path: Path, file: str, apply: tuple[str, ...]) -> None:
    root = tmp_path / "s"
    repairs.make(root, count=20)
    repairs.write(TAKEN, b"x" * 100)(root)
    (root / file).chmod(0)
    done = run_unprivileged("-m", "rmqstore", "restore", root, *apply)
    (root / file).chmod(0o755)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{root / file}: Permission denied{REMEDY}" in done.stderr
    assert (root / TAKEN).read_bytes() == b"x" * 100


@pytest.mark.parametrize("change", ["overwrite", "resize"])
def test_a_journal_of_a_change_that_is_refused_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    root = tmp_path / "s"
    repairs.make(root, count=20)
    before = repairs.tree(root)
    journal = Journal.create(root)

    def refused(path: Path, *, write: bool = False) -> object:
        if write:
            raise PermissionError(13, "Permission denied", str(path))
        return path.open("rb")

    monkeypatch.setattr("rmqstore.toolbox.repairs.journal.open_regular", refused)
    arguments = (0, 10) if change == "overwrite" else (10,)
    with pytest.raises(PermissionError):
        getattr(journal, change)(repairs.log(0), *arguments)
    journal.undo()
    assert repairs.tree(root) == before


def test_a_journal_is_undone_where_no_file_could_be_placed(tmp_path: Path) -> None:
    root = tmp_path / "s"
    repairs.make(root, count=20)
    code = """
import sys
from pathlib import Path
from rmqstore.toolbox.repairs.journal import Journal
root = Path(sys.argv[1])
journal = Journal.create(root)
(root / journal.saved_name("x")).write_bytes(b"")
new = next(journal.directory.glob("*-x"))
try:
    journal.place("consumequeue/orders/1/x", str(new.relative_to(root)))
except PermissionError:
    journal.undo()
    print("undone")
"""
    (root / "consumequeue/orders/1").chmod(0)
    done = run_unprivileged("-c", code, root)
    (root / "consumequeue/orders/1").chmod(0o755)
    assert done.stdout == "undone\n", done.stderr
    assert unfinished(root) == []
    assert not list(root.glob("rmqstore-repair-*"))
