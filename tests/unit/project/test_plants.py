"""The known defects: each patch applies to the sources, and each has a campaign to find it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from faults.framework import load_campaigns
from faults.reach import REACH

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
PATCHES = {path.stem: path for path in sorted((TOP / "tests/faults/plants").glob("*.patch"))}
SWITCH = "switch"
ASKED = re.compile(r"""(?i:planted)\(["']([^"']+)["']\)""")


def source_texts(tree: Path) -> dict[str, str]:
    """The text of each source file, by its path from ``tree``."""
    paths = [path for path in (tree / "src").rglob("*.p*") if path.suffix != ".pyc"]
    return {str(path.relative_to(tree)): path.read_text() for path in paths}


def copy_sources(to: Path) -> Path:
    """A copy that ``scripts/plant.sh`` may change."""
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(TOP / "src", to / "src", ignore=ignored)
    return to


def plant(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [TOP / "scripts/plant.sh", tree]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("plants"))


def test_each_patch_has_a_campaign_to_find_it():
    assert PATCHES.keys() == REACH.keys() | {SWITCH}
    assert {one for reach in REACH.values() for one in reach} <= load_campaigns().keys()
    assert all(REACH.values())


@pytest.mark.parametrize("name", PATCHES)
def test_patch_applies_to_the_sources_by_itself(sources: Path, name: str):
    """In a place that is the only one like it, or it may move to another unnoticed."""
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(sources.parent)}
    command = ["git", "apply", "--check", PATCHES[name]]
    done = subprocess.run(
        command, cwd=sources, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{name}.patch does not apply any more: {done.stderr}"
    planted = set()
    for change in re.split(r"^diff .*\n", PATCHES[name].read_text(), flags=re.MULTILINE)[1:]:
        header, *hunks = re.split(r"^@@.*\n", change, flags=re.MULTILINE)
        path = header.split()[1].removeprefix("a/")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            alike = (sources / path).read_text().count(before)
            assert alike == 1, f"{name}.patch: {alike} places in {path} are\n{before}"
            planted |= {one for line in lines if line[0] == "+" for one in ASKED.findall(line)}
    assert planted == ({name} if name != SWITCH else set())


def test_all_patches_apply_together(tmp_path: Path):
    done = plant(copy_sources(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    texts = source_texts(tmp_path)
    assert {name for text in texts.values() for name in ASKED.findall(text)} == REACH.keys()
    assert "def planted(" in texts["src/rmqstore/_native/python/module_init.pxi"]


def test_a_patch_that_does_not_apply_is_named(tmp_path: Path):
    path = copy_sources(tmp_path) / "src/rmqstore/_native/recover/quarantine.pxi"
    path.write_text(path.read_text().replace("zero_data", "erase_data"))
    done = plant(tmp_path)
    assert done.returncode == 1
    assert "plants/no-erase-of-cut-tail.patch does not apply" in done.stderr


def test_a_work_tree_is_not_planted(tmp_path: Path):
    copy_sources(tmp_path)
    (tmp_path / ".git").mkdir()
    assert plant(tmp_path).returncode == 1
    assert source_texts(tmp_path) == source_texts(TOP)


def test_the_sources_have_none():
    for path, text in source_texts(TOP).items():
        assert not re.search(r"PLANTED|PLANTS|RMQ_PLANT|\bplanted\b", text), path
