"""What the campaigns rest on: deaths and hangs are counted, and images hold what they must."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from crash.checks import output_of
from faults.__main__ import cell
from faults.campaign_power import build_shim
from faults.framework import CAMPAIGNS, Case, Run, campaign
from faults.power_image import Recording

pytestmark = [pytest.mark.crash, pytest.mark.pure]

WRITE = """
import mmap, os
os.chdir({top!r})
os.mkdir("made")
with open("made/synced", "wb") as file:
    file.truncate(8192)
    os.fsync(file.fileno())
directory = os.open("made", os.O_RDONLY)
os.fsync(directory)
top = os.open(".", os.O_RDONLY)
os.fsync(top)
with open("made/synced", "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
    view[0:4] = b"kept"
    view.flush(0, 4096)
    view[4096:4100] = b"late"
with open("made/unsynced", "wb") as file:
    file.write(b"x" * 100)
os.rename("made/unsynced", "made/renamed")
"""

SYNC = """
import os
os.chdir({top!r})
for name in {synced!r}:
    os.fsync(os.open(name, os.O_RDONLY))
"""

MOVE = """
import os
os.rename({top!r} + "/old/name", {top!r} + "/new/name")
"""


@pytest.fixture
def run(tmp_path):
    @campaign("self-test", cases=8, slice=4)
    def nothing(run: Run) -> None:
        pass

    yield Run(CAMPAIGNS["self-test"], tmp_path, seed="1")
    del CAMPAIGNS["self-test"]


def behave(case: Case, how: str) -> str:
    if how == "raise":
        raise ValueError(how)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)
    if how == "lose":
        case.violation("I1", "lost")
    if how == "eat":
        bytearray(4 << 30)
    return how


@pytest.mark.long
def test_what_goes_wrong_in_a_child_is_counted(run):
    ways = ["fine", "raise", "die", "hang", "lose", "eat"]
    results = run.fork(behave, ways, seconds=15, memory=2 << 30)
    assert results == ["fine", None, None, None, "lose", None]
    found = {violation.case: violation.kind for violation in run.column("ours").violations}
    expected = {"raise": "error", "die": "died", "hang": "hung", "lose": "I1", "eat": "error"}
    assert found == expected
    assert run.column("ours").cases == len(ways)
    assert run.column("ours").counts() == "I1:1 died:1 hung:1 error:2"


def test_cases_within_a_case_are_named_and_counted(run):
    def outer(case: Case, number: int) -> None:
        case.fork(behave, ["fine", "lose"])

    run.fork(outer, [1, 2], counts=False)
    assert run.column("ours").cases == 4
    assert sorted(v.case for v in run.column("ours").violations) == ["1/lose", "2/lose"]


def recorded(top: Path, scratch: Path, script: str) -> Recording:
    """What a program makes durable of a directory."""
    recording = Recording.begin(top, scratch / "shadow")
    output_of(script, **recording.environment(build_shim(scratch)))
    recording.end()
    return recording


def test_images_of_a_cut_have_what_was_synced_and_any_of_the_rest(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    recording = recorded(top, tmp_path, WRITE.format(top=str(top)))
    seen = set()
    for number in range(60):
        image = tmp_path / f"image{number}"
        recording.image(random.Random(number), image, "strict")
        synced = (image / "made" / "synced").read_bytes()
        assert synced[:4] == b"kept"
        assert len(synced) == 8192
        assert synced[4096:4100] in {b"late", bytes(4)}
        names = tuple(sorted(path.name for path in (image / "made").iterdir()))
        seen.add((synced[4096:4100], names))
    assert {late for late, _ in seen} == {b"late", bytes(4)}
    assert {names for _, names in seen} == {
        ("synced",),
        ("synced", "unsynced"),
        ("renamed", "synced"),
    }
    alone = tmp_path / "alone"
    recording.synced(alone, "strict")
    assert [path.name for path in (alone / "made").iterdir()] == ["synced"]
    assert (alone / "made" / "synced").read_bytes() == b"kept" + bytes(8188)


@pytest.mark.parametrize("synced", [[], ["new"], ["old"], ["new", "old"], ["old", "new"]])
def test_a_name_is_moved_for_good_when_both_directories_are_synced(tmp_path, synced):
    top = tmp_path / "top"
    for name in ("old", "new"):
        (top / name).mkdir(parents=True)
    (top / "old" / "name").write_bytes(b"moved")
    recording = recorded(top, tmp_path, (MOVE + SYNC).format(top=str(top), synced=synced))
    seen = set()
    for number in range(30):
        image = tmp_path / f"image{number}"
        recording.image(random.Random(number), image, "strict")
        (there,) = image.rglob("name")
        assert there.read_bytes() == b"moved"
        seen.add(there.parent.name)
    assert seen == ({"new"} if len(synced) == 2 else {"old", "new"})


UNSAID = {
    "put": lambda top: (top / "old" / "more").mkdir(),
    "cut": lambda top: (top / "old" / "gone").unlink(),
    "move": lambda top: (top / "old" / "name").rename(top / "new" / "name"),
    "replace": lambda top: (top / "old" / "name").replace(top / "old" / "gone"),
    "nothing": lambda top: None,
}


@pytest.mark.parametrize("how", UNSAID)
def test_a_change_of_names_that_a_killed_program_could_not_say(tmp_path, how):
    """The next one syncs the directories, and with them what the first one did."""
    top = tmp_path / "top"
    for name in ("old", "new"):
        (top / name).mkdir(parents=True)
    for name in ("name", "gone"):
        (top / "old" / name).write_bytes(name.encode())
    recording = Recording.begin(top, tmp_path / "shadow")
    environment = recording.environment(build_shim(tmp_path))
    output_of("", **environment)
    UNSAID[how](top)
    recording.catch_up()
    output_of(SYNC.format(top=str(top), synced=[".", "old", "new"]), **environment)
    recording.end()
    names = sorted(str(path.relative_to(top)) for path in top.rglob("*"))
    for number in range(10):
        image = tmp_path / f"image{number}"
        recording.image(random.Random(number), image, "strict")
        assert sorted(str(path.relative_to(image)) for path in image.rglob("*")) == names
    assert len(recording.changes["strict"]) == (how != "nothing")


def test_what_is_not_run_is_told_in_its_column(run):
    run.not_run("no way", "theirs")
    assert (cell(run, "ours"), cell(run, "theirs")) == ("-", "not run: no way")
    run.case(3)
    run.not_run("a part")
    assert cell(run, "ours") == "3: 0; not run: a part"


def test_what_the_cases_need_is_made_when_one_of_them_is_repeated(run):
    run.only_case = "lose"
    assert run.fork(behave, ["fine"], counts=False, chosen=False) == ["fine"]
    assert run.fork(behave, ["fine", "lose"]) == ["lose"]


def test_a_run_may_end_with_its_first_violation(run):
    run.first, run.jobs = True, 1
    run.fork(behave, ["fine", "lose", "lose", "fine"])
    assert run.column("ours").cases == 2
    run.fork(behave, ["fine"])
    assert run.column("ours").cases == 2
