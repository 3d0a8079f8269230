"""``snapshot`` to a link: what it leads to is the place of the copy, and it stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

import rmqstore
from rmqstore.services import snapshot as module

CONFIG = rmqstore.StoreConfig.small()
COUNT = 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("t", b"%d" % number, queue_id=0)
    (tmp_path / "disk" / "backup").mkdir(parents=True)
    return tmp_path / "store"


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("to", ["disk/backup", "chain", "disk/backup/"])
def test_to_a_link_to_an_empty_directory(
    root: Path, tmp_path: Path, mode: Literal["r", "r+"], to: str
) -> None:
    (tmp_path / "chain").symlink_to("disk/backup")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / to)
    with rmqstore.open(root, mode) as store:
        made = store.snapshot(link)
        assert made.path == str(link)
        with pytest.raises(FileExistsError, match=f"is not empty: '{link}'"):
            store.snapshot(link)
    assert link.is_symlink()
    assert [one.name for one in (tmp_path / "disk").iterdir()] == ["backup"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chain", "disk", "link", "store"]
    with rmqstore.open(link, "r+") as copy:
        assert copy.recovery.clean
        assert [int(one.body) for one in copy["t"][0]] == list(range(COUNT))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("to", "place", "why", "kind"),
    [
        ("gone", "link", "link is a symbolic link to .*gone, which is not there", OSError),
        ("gone", "link/new", "link is a symbolic link to .*gone, which is not there", OSError),
        ("link", "link", "link is a symbolic link to .*link, which leads in a circle", OSError),
        ("file", "link", "[Nn]ot a directory", NotADirectoryError),
        ("full", "link", "is not empty", FileExistsError),
        ("store", "link/new", "must be outside the store, got '.*link/new'", ValueError),
        ("store/extra", "link", "must be outside the store, got '.*link'", ValueError),
        ("store/config/extra", "link", "must be outside the store", ValueError),
        ("/proc", "link", "no mount point, but may be in one, got '.*link'", ValueError),
    ],
)
def test_refused_before_anything_is_copied(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Literal["r", "r+"],
    to: str,
    place: str,
    why: str,
    kind: type[Exception],
) -> None:
    for extra in ("store/extra", "store/config/extra", "full/x"):
        (tmp_path / extra).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / to)
    monkeypatch.delattr(module, "_Copy")
    with rmqstore.open(root, mode) as store:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(kind, match=why):
            store.snapshot(tmp_path / place)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_store_opened_by_a_link_has_no_copy_in_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "by").symlink_to(root)
    for opened, place in ((tmp_path / "by", root / "new"), (root, tmp_path / "by" / "new")):
        with (
            rmqstore.open(opened) as store,
            pytest.raises(ValueError, match="must be outside the store"),
        ):
            store.snapshot(place)


def test_on_the_command_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    command = [sys.executable, "-m", "rmqstore", "snapshot", str(root), str(tmp_path / "link")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert "is a symbolic link to" in done.stderr
    (tmp_path / "gone").mkdir()
    subprocess.run(command, capture_output=True, check=True)
    with rmqstore.open(tmp_path / "gone") as copy:
        assert len(copy["t"][0]) == COUNT
