"""Stores of symbolic links, and topics of any name, beside 4.9.3, which follows and reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from interop.driver import Driver
from interop.test_layouts import OURS, SIZES, ours_has, ours_puts, theirs_has, theirs_puts
from rmqstore import StoreConfig
from support.stored_names import COUNT, write_log

pytestmark = pytest.mark.long

SITES = {
    "commitlog": ["commitlog"],
    "log files": ["commitlog/*"],
    "consumequeue": ["consumequeue"],
    "queues": ["consumequeue/t/*"],
    "queue files": ["consumequeue/t/*/*"],
    "index": ["index"],
    "the rest": ["lock", "checkpoint", "config", "index/*"],
}


def move_and_link(root: Path, patterns: list[str], to: Path) -> None:
    for pattern in patterns:
        for number, path in enumerate(sorted(root.glob(pattern))):
            target = to / f"{number}" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            path.symlink_to(target)


@pytest.mark.parametrize("site", SITES)
def test_each_goes_on_through_links(
    site: str, real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with rmqstore.open(root, "a", config=StoreConfig(**OURS)) as store:
        ours_puts(store, range(300))
    move_and_link(root, SITES[site], tmp_path / "disk")
    have = 300
    for turn in ("theirs", "ours", "theirs"):
        if turn == "ours":
            with rmqstore.open(root, "r+", config=StoreConfig(**OURS)) as store:
                assert store.recovery.clean
                compared("links messages", ours_has(store, have))
                ours_puts(store, range(have, have + 100))
        else:
            opened = real.open(root, SIZES)
            assert opened["load"], real.log()
            assert opened["start"]
            compared("links messages", theirs_has(real, have))
            theirs_puts(real, range(have, have + 100))
            assert real.shutdown()
        have += 100
    with rmqstore.open(root) as store:
        compared("links messages", ours_has(store, have))


def test_a_link_that_leads_nowhere(real: Driver, tmp_path: Path) -> None:
    """4.9.3 refuses a store of which a log file is one, too."""
    root = tmp_path / "root"
    with rmqstore.open(root, "a", config=StoreConfig(**OURS)) as store:
        ours_puts(store, range(300))
    move_and_link(root, ["commitlog/*65536"], tmp_path / "disk")
    shutil.rmtree(tmp_path / "disk")
    assert not real.open(root, SIZES)["load"]
    with pytest.raises(rmqstore.IncompatibleStoreError, match="is a symbolic link to"):
        rmqstore.open(root, "r+", config=StoreConfig(**OURS))


@pytest.mark.parametrize("name", ["a.b", "a b", "a:b", "*", "a+b", "~", "#", "a&b"])
def test_any_name_is_read(
    name: str, real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    """From a log alone: 4.9.3 makes its queue and reads it, and so does ours, in turn."""
    write_log(tmp_path, [name, "plain"])
    theirs = {**SIZES, "mappedFileSizeCommitLog": 32 << 10, "mappedFileSizeConsumeQueue": 400}
    opened = real.open(tmp_path, theirs)
    assert opened["load"], real.log()
    assert opened["start"]
    assert len(real.dump(name, body=True)) == COUNT
    assert real.shutdown()
    assert (tmp_path / "consumequeue" / name).is_dir()
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path, mode) as store:  # type: ignore[arg-type]
            assert sorted(store) == sorted([name, "plain"])
            assert [m.body for m in store[name][1]] == [b"%d" % i for i in range(COUNT)]
            compared("links messages", COUNT)
