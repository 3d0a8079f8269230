"""Sizes of many index files, inferred: a few are sampled where all are of one length."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rmqstore

FILES = 60
ENTRIES = 200  # of a file
CONFIG = rmqstore.StoreConfig.small(max_hash_slot_num=50, max_index_num=ENTRIES + 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("index") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        keys = [f"k{n}" for n in range(FILES * ENTRIES)]
        store.put_many("t", [b"x"] * len(keys), queue_id=0, keys=keys, uniq_key=False)
    assert len(list((root / "index").iterdir())) == FILES
    (root / "checkpoint").unlink()  # it names the sizes
    return root


def reads() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.partition("syscr:")[2].split()[0])


def test_each_file_is_not_sampled(made: Path) -> None:
    rmqstore.open(made).close()
    before = reads()
    with rmqstore.open(made) as store:
        assert reads() - before < FILES * 100
        for n in (0, FILES * ENTRIES // 2, FILES * ENTRIES - 1):
            assert [one.queue_offset for one in store.query("t", f"k{n}", index_only=True)] == [n]


@pytest.mark.parametrize("odd", [0, FILES // 2, FILES - 1])
def test_a_file_of_other_sizes(made: Path, tmp_path: Path, odd: int) -> None:
    """As long, with more slots: it does not change the sizes of the others."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    other = rmqstore.StoreConfig.small(max_hash_slot_num=100, max_index_num=ENTRIES - 9)
    with rmqstore.open(tmp_path / "other", "a", config=other) as store:
        keys = [f"o{n}" for n in range(150)]
        store.put_many("t", [b"x"] * 150, queue_id=0, keys=keys, uniq_key=False)
    (source,) = (tmp_path / "other/index").iterdir()
    target = sorted((root / "index").iterdir())[odd]
    assert source.stat().st_size == target.stat().st_size
    shutil.copy(source, target)
    with rmqstore.open(root) as store:
        for n in range(0, FILES * ENTRIES, 97):
            assert [one.queue_offset for one in store.query("t", f"k{n}")] == [n]
