"""Random damage: ``toolbox.verify`` names the file, never crashes, and writes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqstore import toolbox
from support import damaged_store, oracle_index, oracle_store

SLOTS, ENTRIES = damaged_store.CONFIG.max_hash_slot_num, damaged_store.CONFIG.max_index_num


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged_store.with_group(tmp_path_factory.mktemp("verify") / "store")


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in [root, *root.rglob("*")]
    }


def used_parts(root: Path, path: Path) -> Iterator[range]:
    """Yield the bytes of a file that a check must look at: others are free, or of any value."""
    kind = path.relative_to(root).parts[0]
    if kind == "commitlog":
        # Hosts, times, flags and properties have no checksum.
        for one in oracle_store.walk_log(root / "commitlog"):
            start = one.physical_offset % damaged_store.LOG_SIZE
            if one.physical_offset - start == int(path.name):
                yield range(start, start + 12)  # total size, magic, body's CRC
                yield range(start + 20 + 8, start + 20 + 16)  # its own place
                yield range(start + 88, start + 88 + len(one.body))
    elif kind == "consumequeue":
        units = path.read_bytes()
        ends = [at for at in range(0, len(units), 20) if any(units[at : at + 20])]
        yield range(0, ends[-1] + 20)
    elif kind == "index":
        data = path.read_bytes()
        count = int.from_bytes(data[36:40], "big")
        base = oracle_index.HEADER_SIZE + 4 * SLOTS
        yield range(16, 40)
        yield range(base + 20, base + 20 * count)
    elif path.suffix == ".json":
        yield range(0, 1)


def names(report: toolbox.Report, file: str) -> bool:
    """Whether a problem names a file, or its queue or the index."""
    return any(
        one.file == file or file.startswith(one.file + "/") for one in report.problems if one.file
    )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_changed_byte(made: Path, data: st.DataObject) -> None:
    files = sorted(path for path in made.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files), "file")
    parts = list(used_parts(made, path))
    if not parts:
        return
    at = data.draw(st.sampled_from(data.draw(st.sampled_from(parts), "part")), "byte")
    flip = data.draw(st.integers(1, 255), "flip")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(shutil.copytree(made, Path(directory, "store")))
        copy = root / path.relative_to(made)
        changed = bytearray(copy.read_bytes())
        changed[at] ^= flip
        copy.write_bytes(changed)
        before = snapshot(root)
        report = toolbox.verify(root, full=True, jobs=1)
        assert snapshot(root) == before
        assert names(report, str(path.relative_to(made))), report.problems
        assert not report.clean


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_anything_else_is_survived(made: Path, data: st.DataObject) -> None:
    files = sorted(path for path in made.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory() as directory:
        root = Path(shutil.copytree(made, Path(directory, "store")))
        if data.draw(st.booleans(), "killed"):
            (root / "abort").touch()
        for _ in range(data.draw(st.integers(1, 3), "number")):
            path = root / data.draw(st.sampled_from(files), "file").relative_to(made)
            if not path.is_file():
                continue
            size = path.stat().st_size
            act = data.draw(st.sampled_from(["cut", "noise", "zeros", "remove", "link", "longer"]))
            at = data.draw(st.integers(0, max(0, size - 1)), "at")
            if act == "cut":
                os.truncate(path, at)
            elif act == "longer":
                os.truncate(path, size + 1 + at)
            elif act in ("noise", "zeros"):
                some = data.draw(st.binary(min_size=1, max_size=64), "bytes")
                with path.open("r+b") as file:
                    file.seek(at)
                    file.write(some if act == "noise" else bytes(len(some) * 8))
            else:
                path.unlink()
                if act == "link":
                    path.symlink_to("nowhere")
        before = snapshot(root)
        for full in (False, True):
            report = toolbox.verify(root, full=full, jobs=1)
            kinds = {one.severity for one in report.problems}
            assert (report.broker == "refuses") <= ("stop" in kinds)
            assert report.messages_lost <= damaged_store.COUNT
        assert snapshot(root) == before
