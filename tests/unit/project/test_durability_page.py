"""docs/durability.md lists each place that forces something to the disk: the code has no other."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[3]
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
        if path.suffix not in {".py", ".pxi", ".pxd"} or path.name == "posix.pxd":
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
    assert ("_native/log/checkpoint.pxi", "checkpoint_write") in places()
    assert sorted(places()) == sorted(listed())
