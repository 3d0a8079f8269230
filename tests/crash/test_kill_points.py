"""Die at every kill point of the sources, twice: what was acknowledged is there, nothing else."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

import oracle_store
import rmqstore
from crash import checks, writer
from crash.checks import SHORT, Known
from rmqstore import _core

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

SOURCES = Path(__file__).resolve().parents[2] / "src" / "rmqstore" / "_native"
POINTS = sorted(
    {
        name
        for path in SOURCES.glob("*.px[di]")
        for name in re.findall(r'KILL_POINT\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
)
KILLED = -9
FLUSHES = ["ASYNC_FLUSH", "SYNC_FLUSH"]
SECONDS = 0.15
LONGER = 5.0


@pytest.fixture(scope="module", autouse=True)
def _faults_build():
    if not _core.FAULTS:
        pytest.fail("this build has no kill points: build it with RMQSTORE_BUILD=faults")


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """A store that was killed, with half a record at the end of its log, and what is in it."""
    root = tmp_path_factory.mktemp("torn") / "store"
    known = Known(prefixes={"base"})
    status, said = checks.run_writer(root, "base", "ASYNC_FLUSH", 5, RMQ_KILL_AT="after-append:500")
    assert status == KILLED
    known.learn(said)
    assert known.places
    checks.tear(root)
    return root, known


def die(root, known, prefix, flush, plan, seconds=SECONDS):
    known.prefixes.add(prefix)
    status, said = checks.run_writer(root, prefix, flush, seconds, RMQ_KILL_AT=plan)
    words = known.learn(said)
    assert status == (0 if "closed" in words else KILLED)
    return status == KILLED


def test_there_are_kill_points_everywhere():
    assert len(POINTS) >= 20
    for part in ["copy", "sync", "checkpoint", "recover", "link", "unit", "index", "abort"]:
        assert any(part in name for name in POINTS), part


@pytest.mark.parametrize("point", POINTS[::3] if SHORT else POINTS)
def test_kill_point(tmp_path, torn, point):
    flush, other = random.Random(point).choice([FLUSHES, FLUSHES[::-1]])
    base, before = torn
    root = tmp_path / "store"
    shutil.copytree(base, root)
    known = Known(dict(before.places), set(before.prefixes))
    # On a machine that is busy little is written in that time: then once more, for longer.
    assert die(root, known, "first", flush, f"{point}:1") or die(
        root, known, "longer", flush, f"{point}:1", LONGER
    ), f"{point} is never passed"
    assert not oracle_store.is_clean(root)
    # and again on what that left, a little later: not every point is passed so often
    count = random.Random(f"{point}{flush}").randrange(2, 30)
    die(root, known, "second", other, f"{point}:{count}")
    checks.verify(root, known, flush)
    with rmqstore.open(root, "a", config=writer.config(flush)) as store:
        checks.assert_holds(store, known)


@pytest.mark.parametrize("point", [name for name in POINTS if name.startswith("recover")])
def test_a_recovery_that_dies_again_and_again(tmp_path, torn, point):
    base, before = torn
    root = tmp_path / "store"
    shutil.copytree(base, root)
    known = Known(dict(before.places), set(before.prefixes))
    for number in range(4):
        assert die(root, known, f"n{number}", "ASYNC_FLUSH", f"{point}:1")
    checks.verify(root, known, "ASYNC_FLUSH")
