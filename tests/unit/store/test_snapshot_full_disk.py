"""A disk that is full under a snapshot: the file and the bytes are named, and nothing is left."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.services import snapshot as module

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=500,
    max_index_num=2000,
)
COUNT = 600


def contents(root: Path) -> dict[str, bytes]:
    kept = ("commitlog", "consumequeue", "index")
    return {str(p): p.read_bytes() for one in kept for p in (root / one).rglob("*") if p.is_file()}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("call", ["_copy_piece", "sync_file"])
def test_each_write_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, mode: Any, number: int
) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for i in range(COUNT):
            store.put("t", b"%06d" % i + b"x" * 300, keys=f"k{i}", queue_id=i % 3)
    real = getattr(module, call)
    passed = left = 0

    def failing(*arguments: Any) -> Any:
        nonlocal passed
        passed += 1
        if passed == left:
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(module, call, failing)
    monkeypatch.setattr(module._Copy, "_cloned", lambda *_: False)
    named = set()
    with rmqstore.open(tmp_path / "store", mode) as store:
        before = contents(tmp_path / "store")
        for left in range(1, 100):  # noqa: B007 - failing() reads it
            passed = 0
            try:
                made = store.snapshot(tmp_path / "copy")
                break
            except OSError as error:
                assert error.errno == number  # noqa: PT017
                assert "nothing of the snapshot is left; free " in str(error)  # noqa: PT017
                file = Path(os.fsdecode(error.filename))
                named.add(file.relative_to(tmp_path / "copy.unfinished").parts[0])
                needed = int(str(error).partition("free ")[2].split()[0])
                assert needed >= COUNT * 300
            assert [path.name for path in tmp_path.iterdir()] == ["store"]
            assert contents(tmp_path / "store") == before
        assert left > 10
        assert made.bytes <= needed
    assert {"consumequeue", "index"} < named
    with rmqstore.open(made.path, "r+") as copy:
        assert copy.recovery.clean
        assert sum(1 for _ in copy.scan("t")) == COUNT


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EIO])
def test_another_refusal_names_the_file_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("t", b"x" * 300)

        def failing(*_: Any) -> Any:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(module, "_copy_piece", failing)
        monkeypatch.setattr(module._Copy, "_cloned", lambda *_: False)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as raised:
            store.snapshot(tmp_path / "copy")
    assert raised.value.errno == number
    assert Path(os.fsdecode(raised.value.filename)).is_relative_to(tmp_path / "copy.unfinished")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
