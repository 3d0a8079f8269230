"""Versions agree everywhere, and the check of a release finds what does not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import check_release

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "CHANGELOG.md", "src/rmqstore/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_versions_agree(copy: Path) -> None:
    assert check_release.text_problems(TOP) == []
    assert check_release.text_problems(copy) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pyproject.toml", 'version = "', 'version = "9.'),
        ("src/rmqstore/__init__.py", '__version__ = "', '__version__ = "9.'),
        ("CHANGELOG.md", "\n## [", "\n## [9."),
        ("CHANGELOG.md", "\n## [", "\n## "),
    ],
)
def test_another_version_is_found(copy: Path, name: str, old: str, new: str) -> None:
    change(copy / name, old, new)
    problems = check_release.text_problems(copy)
    assert problems
    assert all("9." in one or "none" in one for one in problems)


def test_a_tag_is_at_the_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *author, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "one")
    assert check_release.tag_problems(tmp_path, "v1") == ["v1: no such tag"]
    git("tag", "v1")
    assert check_release.tag_problems(tmp_path, "v1") == []
    (tmp_path / "file").touch()
    assert check_release.tag_problems(tmp_path, "v1") == ["v1: the files differ from it"]
    git("add", "file")
    git("commit", "-m", "two")
    assert check_release.tag_problems(tmp_path, "v1") == ["v1: not at this commit"]


@pytest.mark.parametrize(
    ("wheel", "good"),
    [
        ("rmqstore-1.2.0-cp311-cp311-manylinux_2_34_x86_64.whl", True),
        ("rmqstore-1.2.0-cp311-cp311-linux_x86_64.whl", False),
        ("rmqstore-1.1.0-cp311-cp311-manylinux_2_34_x86_64.whl", False),
    ],
)
def test_built_files(tmp_path: Path, wheel: str, good: bool) -> None:
    (tmp_path / wheel).touch()
    assert check_release.file_problems(tmp_path, "1.2.0")
    (tmp_path / "rmqstore-1.2.0.tar.gz").touch()
    assert (check_release.file_problems(tmp_path, "1.2.0") == []) is good
