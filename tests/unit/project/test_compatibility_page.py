"""docs/compatibility.md names the files, functions and versions of the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqstore.base import layout
from rmqstore.files import paths
from rmqstore.spark.common import side_files

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
SOURCE = TOP / "src/rmqstore"
TABLE = (TOP / "docs/compatibility.md").read_text().partition("## Files of its own")[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.partition("\nPromised")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| file ")
]


def version_of(file: str) -> int:
    found = re.search(r"^_VERSION = (\d+)$", (SOURCE / file).read_text(), re.MULTILINE)
    assert found is not None, file
    return int(found[1])


def test_the_writers_are_there() -> None:
    named = [one for row in ROWS for one in re.findall(r"`([\w/]+\.p\w+)(?:: (\w+))?`", row[2])]
    assert len(named) >= len(ROWS) - 1
    for file, name in named:
        defined = rf"^(?:cdef|class|def)\b.*\b{name}\b"
        assert re.search(defined, (SOURCE / file).read_text(), re.MULTILINE), (file, name)


def test_the_versions_are_those_of_the_source() -> None:
    shown = {row[0]: int(row[1].partition(",")[0]) for row in ROWS if row[1][0].isdigit()}
    watermark, *sink, stream = shown.values()
    assert watermark == layout.WATERMARK_VERSION
    assert len(sink) == 2
    assert set(sink) == {version_of("spark/sink/ledger.py")}
    assert stream == version_of("spark/stream/offsets.py")


@pytest.mark.parametrize(
    "name",
    [
        paths.DELETED_TOPICS,
        f"{paths.QUARANTINE}/",
        f"{side_files.IN_STORE}/",
        side_files.MAKING,
        side_files.REPLACED,
    ],
)
def test_each_file_of_its_own_is_named(name: str) -> None:
    assert any(name in row[0] for row in ROWS)
