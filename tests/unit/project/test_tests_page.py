"""docs/tests.md names what is there, and leaves out no source and no test file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
SOURCE, TESTS = TOP / "src" / "rmqstore", TOP / "tests"
ROWS = [
    tuple(re.findall(r"`([^`\s]*)`", cell) for cell in row.strip("|").split("|"))
    for row in re.findall(r"^\| .*`.*\|$", (TOP / "docs/tests.md").read_text(), re.MULTILINE)
]
PARTS = [part for parts, _ in ROWS for part in parts]
NAMED = [test for _, tests in ROWS for test in tests]


def is_in(path: str, folders: list[str]) -> bool:
    return path in folders or any(path.startswith(one) for one in folders if one.endswith("/"))


def test_parts_and_tests_are_there() -> None:
    assert len(ROWS) > 80
    assert len(PARTS) == len(set(PARTS))
    for top, names in ((SOURCE, PARTS), (TESTS, NAMED)):
        for name in names:
            assert (top / name).is_dir() if name.endswith("/") else (top / name).exists(), name
    assert all(tests for _, tests in ROWS)


def test_every_source_has_a_row() -> None:
    sources = [path for kind in ("py", "pyx", "pxi", "pxd") for path in SOURCE.rglob(f"*.{kind}")]
    names = [str(path.relative_to(SOURCE)) for path in sources]
    at_the_top = [name for name in names if "/" not in name and name.endswith(".py")]
    rest = [name for name in names if name not in at_the_top and Path(name).stem != "__init__"]
    assert [name for name in rest if not is_in(name, PARTS)] == []


def test_no_test_file_is_missing() -> None:
    names = [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")]
    assert len(names) > 300
    assert [name for name in names if not is_in(name, NAMED)] == []
