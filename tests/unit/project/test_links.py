"""Relative links of all pages lead to a file and a heading; every page is in the index."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.documents import blocks

pytestmark = pytest.mark.pure

PROJECT = Path(__file__).parents[3]
DOCS = PROJECT / "docs"
FOLDERS = (DOCS, PROJECT / "bench", PROJECT / ".github")
PAGES = [*sorted(PROJECT.glob("*.md")), *(p for d in FOLDERS for p in sorted(d.rglob("*.md")))]

LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|(?:href|src)=\"([^\"]+)\"", re.MULTILINE
)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")  # a URL has a scheme
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def prose(page: Path) -> str:
    """Return the text without its fenced blocks."""
    parts = re.split(r"^```.*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "\n".join(parts[::2])


def links(page: Path) -> list[str]:
    """Return the targets of links and pictures; a link's text may be code."""
    text = SPAN.sub("code", prose(page))
    return [next(filter(None, found)) for found in LINK.findall(text)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, by GitHub's rule."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} +(.*?)(?: +#+)?$", prose(page), re.MULTILINE):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    found = []
    for link in links(page):
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        known = anchors(target) if target.suffix == ".md" and target.exists() else set()
        if not target.exists() or (anchor and anchor not in known):
            found.append(link)
    return found


def indexed(page: Path) -> set[Path]:
    """Return a page with all pages that its lists of pages name."""
    found = {page}
    for block in blocks(page):
        if block.language == "{toctree}":
            for name in re.findall(r"^\w\S*$", block.text, re.MULTILINE):
                found |= indexed(page.parent / f"{name}.md")
    return found


def test_links_lead_somewhere() -> None:
    assert len(PAGES) > 30
    assert {
        str(page.relative_to(PROJECT)): found for page in PAGES if (found := broken(page))
    } == {}


def test_every_page_is_in_the_index() -> None:
    assert indexed(DOCS / "index.md") == set(DOCS.rglob("*.md"))


def test_what_a_broken_link_is(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    other = tmp_path / "more/other.md"
    other.write_text("# The `put_many`, or *not*\n\n## Same\n\n## Same\n\n```text\n# none\n```\n")
    page = tmp_path / "page.md"
    good = ["more/other.md", "more", "#page", "more/other.md#same-1", "https://example.org/x#y",
            "more/other.md#the-put_many-or-not", "mailto:a@example.org"]  # fmt: skip
    bad = ["gone.md", "more/other.md#none", "#none", "more/other.md#same-2", "gone/#page"]
    page.write_text(
        "# Page\n\n" + "\n".join(f"See [`it`]({link}), ![p]({link})." for link in good + bad)
        + "\n\n[name]: missing.md\n\n<img src=\"missing.png\">\n\n`[a](code.md)`\n\n"
        "```text\n[a](block.md)\n```\n"
    )  # fmt: skip
    assert list(dict.fromkeys(broken(page))) == [*bad, "missing.md", "missing.png"]
