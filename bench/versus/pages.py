"""Put the figures of ``make versus`` into docs/performance.md, the README and the plot.

PYTHONPATH=bench python -m versus.pages build/versus.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
PERFORMANCE, README, PLOT = (
    PROJECT / name for name in ("docs/performance.md", "README.md", "docs/versus.svg")
)
MEASURES = ("clock", "cpu")
UNSTEADY = "unsteady"
BEGIN, END = "<!-- versus: {} -->", "<!-- /versus -->"
IN_README = (
    'query, "r"',
    'offset_at, "r"',
    'locate_many, "r"',
    'get of 32, fields used, "r"',
    'scan, body and six columns, "r"',
    'scan, six columns, "r"',
    "put, 1 KiB",
    "put, 128 B",
    "put_many until visible, 128 B",
    "put_many until visible, 1 KiB",
    "synchronous put, 1 thread",
    "put to visible, median",
    "dispatch, 1 KiB",
    "recovery of a broker's killed store",
    "index file: select_many from Arrow",
    "process start to first message",
)


def verdict(one: dict[str, Any] | None) -> str:
    """Return whether a goal is reached, or that the rounds differ too much to say."""
    if one is None:
        return ""
    if one["ratio"] is None:
        return UNSTEADY
    if one["goal"] is None:
        return ""
    return "reached" if one["ratio"] >= one["goal"] else "MISSED"


def number(value: float | None, text: str = ",.0f") -> str:
    """Return a figure as text, or nothing."""
    return "" if value is None else format(value, text)


def table(figures: list[dict[str, Any]], measure: str) -> str:
    """Return the table of one measure, with what is counted beside the clock."""
    head = ["workload", "ours, ns", "theirs, ns", "theirs / ours", "of bests", "spread", "goal", ""]
    lines = [head, ["---", *["--:"] * 4, "---", "--:", "---"]]
    if measure == "clock":
        lines[0] = [*head, "faults", "limit in C, ns", "busy rounds"]
        lines[1] += ["--:"] * 3
    for row in figures:
        one = row[measure]
        if one is None:
            continue
        cells = [
            named(row["name"]),
            number(one["ours"]),
            number(one["theirs"]),
            number(one["ratio"], ".2f"),
            number(one["bests"], ".2f"),
            f"{one['least']:.2f} to {one['greatest']:.2f}",
            number(one["goal"], "g"),
            verdict(one),
        ]
        if measure == "clock":
            cells += [
                number(row["faults"], ",.1f"),
                number(row["limit"]),
                f"{row['busy']} of {row['rounds']}" if row["busy"] else "",
            ]
        lines.append(cells)
    return markdown(lines)


def named(name: str) -> str:
    """Return a workload's name with its mode as code."""
    what, quote, mode = name.partition('"')
    return f"{what}`{quote}{mode}`" if quote else what


def short(figures: list[dict[str, Any]]) -> str:
    """Return the README's table."""
    rows = {row["name"]: row["clock"] for row in figures}
    lines = [["workload", "rmqstore, ns", "real 4.9.3, ns", "ratio"], ["---", *["--:"] * 3]]
    for name in filter(rows.get, IN_README):
        one = rows[name]
        ratio = number(one["ratio"], ".2f") or UNSTEADY
        lines.append([named(name), number(one["ours"]), number(one["theirs"]), ratio])
    return markdown(lines)


def markdown(lines: list[list[str]]) -> str:
    """Return lines of cells as a Markdown table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def between(page: str, name: str) -> tuple[str, str, str]:
    """Return a page's text before, between and behind the markers of a name."""
    before, begin, rest = page.partition(BEGIN.format(name) + "\n")
    inside, end, after = rest.partition(END)
    assert begin, f"no {BEGIN.format(name)} in the page"
    assert end, f"no {END} behind {BEGIN.format(name)}"
    return before + begin, inside, end + after


def replaced(page: str, tables: dict[str, str]) -> str:
    """Return a page with other tables between its markers."""
    for name, text in tables.items():
        before, _old, after = between(page, name)
        page = f"{before}\n{text}\n\n{after}"
    return page


def main() -> None:
    """Write both pages and the plot."""
    from versus import plot  # matplotlib, which tests have not

    figures = json.loads(Path(sys.argv[1]).read_text())
    tables = {measure: table(figures, measure) for measure in MEASURES}
    PERFORMANCE.write_text(replaced(PERFORMANCE.read_text(), tables))
    README.write_text(replaced(README.read_text(), {"short": short(figures)}))
    plot.draw(figures, PLOT)


if __name__ == "__main__":
    main()
