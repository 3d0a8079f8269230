"""The pages of docs/api/ are what the docstrings say, with every public name once."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.pure

SCRIPTS = Path(__file__).parents[3] / "scripts"
MODULES = ["rmqstore"] + [
    f"rmqstore.{name}"
    for name in (
        "filters",
        "metrics",
        "offline",
        "replies",
        "spark",
        "testing",
        "toolbox",
        "traces",
    )
]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["make_api_page.py", "--check"])
    return importlib.import_module("make_api_page")


def test_the_pages_are_up_to_date(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main() == 0, capsys.readouterr().err

    copy = tmp_path / "api"
    shutil.copytree(script.PAGES, copy)
    monkeypatch.setattr(script, "PAGES", copy)
    old = copy / "files.md"
    old.write_text(old.read_text().replace("## crc32", "## crc"))
    (copy / "asyncio.md").unlink()
    (copy / "more.md").touch()
    assert script.main() == 1
    names = [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert names == ["asyncio.md", "files.md", "more.md"]

    monkeypatch.setattr(sys, "argv", ["make_api_page.py"])
    assert script.main() == 0
    assert {path.name: path.read_text() for path in copy.iterdir()} == script.pages()


def test_every_public_name_is_on_one_page(script: ModuleType) -> None:
    public = set(MODULES[1:])
    for name in MODULES:
        module = importlib.import_module(name)
        for one in module.__all__:
            public.add(f"{name}.{one}")
            kind = getattr(module, one)
            for member in script.own_members(kind) if isinstance(kind, type) else []:
                members = script.member_entries(name, kind, f"{one}.{member}", 3)
                public |= {entry.full_name for entry in members}
    shown = Counter(entry.full_name for page in script.page_entries().values() for entry in page)
    assert set(shown) == public
    assert max(shown.values()) == 1
    index = script.pages()["index.md"]
    assert index.count("\n| [") == len(shown)


def test_roles_become_links(script: ModuleType) -> None:
    places = {"rmqstore.Scan": "columns.md#scan", "rmqstore.Scan.count": "columns.md#scancount"}
    entry = script.Entry("rmqstore", "Scan", 2, "", [])
    text = "See :meth:`count`, :class:`Scan` and :class:`Other`."
    assert script.linked(text, entry, "reading", places) == (
        "See [`count`](columns.md#scancount), [`Scan`](columns.md#scan) and `Other`."
    )
    assert "[`Scan`](#scan)" in script.linked(text, entry, "columns", places)
