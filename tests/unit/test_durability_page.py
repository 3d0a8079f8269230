"""docs/durability.md lists each place that forces something to the disk: the code has no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SOURCE = TOP / "src/rmqstore"
PAGE = TOP / "docs/durability.md"
CALLS = re.compile(
    r"\b(?:sys_sync|sys_sync_range|mapped_file_sync|sync_directory|sync_file|sync_path|fsync"
    r"|fdatasync|msync|syncfs)\("
)
DEFINITION = re.compile(r"^ *(?:cdef|cpdef|def|async def)\s[^=(]*?(\w+)\(")
ROW = re.compile(r"^\| `([\w/.]+): (\w+)` \|", re.MULTILINE)


def places() -> set[tuple[str, str]]:
    """File and function of each call that syncs."""
    found = set()
    for path in SOURCE.rglob("*.p*"):
        if path.suffix not in {".py", ".pxi", ".pxd"} or path.name == "cposix.pxd":
            continue  # that one only declares them
        function = ""
        for line in path.read_text().splitlines():
            definition = DEFINITION.match(line)
            if definition:
                function = definition[1]
            elif CALLS.search(line.split("#")[0]):
                found.add((str(path.relative_to(SOURCE)), function))
    return found


def listed() -> list[tuple[str, str]]:
    return [(file, function) for file, function in ROW.findall(PAGE.read_text())]


def test_the_page_lists_each_place_that_syncs() -> None:
    assert ("_native/checkpoint.pxi", "checkpoint_write") in places()
    assert sorted(places()) == sorted(listed())


@pytest.mark.parametrize("name", ["durability.md", "known-broker-faults.md"])
def test_the_readme_leads_there(name: str) -> None:
    assert f"(docs/{name})" in (TOP / "README.md").read_text()
    text = (TOP / "docs" / name).read_text()
    assert text.isascii()
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (TOP / "docs" / link).exists(), link
