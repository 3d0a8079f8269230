"""HTML of a report: sections, tables and plots, in one page without scripts or other files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rmqstore.base.foreign import foreign

__all__ = ["bars", "columns", "escaped", "human_bytes", "page", "paragraph", "section", "table"]

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--paper:#fff;--line:#d5dbe3;
--bar:#2f6fb3;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa5b4;--paper:#14181e;
--line:#333c48;--bar:#6ea8e6;--bad:#ff8a80}}
body{color:var(--ink);background:var(--paper);font:15px/1.45 system-ui,sans-serif;
max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:1.8rem 0 .5rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600;overflow-wrap:normal}
td.n,td.w{white-space:nowrap}td.w{overflow-wrap:normal}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.b{width:30%}td.b svg{display:block;width:100%;height:1rem;margin-top:.15rem}
rect{fill:var(--bar)}line{stroke:var(--bad);stroke-width:2;vector-effect:non-scaling-stroke}
.plot svg{display:block;width:100%;height:9rem;border-bottom:1px solid var(--soft)}
.axis{display:flex;justify-content:space-between;gap:1rem}
.axis,.note{color:var(--soft);font-size:.85rem}.bad{color:var(--bad);font-weight:600}
p{margin:.4rem 0}
@media(max-width:40rem){body{font-size:14px;padding:.6rem}table{font-size:.8rem}
th,td{padding-right:.35rem}td.w{white-space:normal}}
@media print{body{max-width:none;padding:0;font-size:10pt}tr,.plot{break-inside:avoid}
rect{print-color-adjust:exact}h2{break-after:avoid}}
"""


def escaped(text: object) -> str:
    """Return a text for HTML: printable, cut if long."""
    return html.escape(foreign(str(text)))


def human_bytes(count: int) -> str:
    """Return a number of bytes for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count:,} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def paragraph(text: object, kind: str = "") -> str:
    """Return a paragraph; ``kind`` is ``"bad"``, ``"note"`` or nothing."""
    return f'<p class="{kind}">{escaped(text)}</p>\n' if kind else f"<p>{escaped(text)}</p>\n"


def section(title: str, *parts: str) -> str:
    """Return a section of HTML parts."""
    return f"<section>\n<h2>{escaped(title)}</h2>\n{''.join(parts)}</section>\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table.

    A heading that begins with ``#`` is of numbers, at the right; with ``=``, of whole words.
    """
    kinds = [{"#": ' class="n"', "=": ' class="w"'}.get(one[:1], "") for one in headings]
    head = "".join(
        f"<th{kind}>{escaped(one[1:] if kind else one)}</th>"
        for one, kind in zip(headings, kinds, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(f"<td{kind}>{_cell(value)}</td>" for kind, value in zip(kinds, row, strict=True))
        + "</tr>\n"
        for row in rows
    ]
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>\n</table>\n"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else escaped(value)


def bars(headings: Sequence[str], rows: Sequence[tuple[str, int, int]]) -> str:
    """Return a table of a name, a count and bytes, with a bar for the bytes."""
    most = max((size for _, _, size in rows), default=0) or 1
    lines = [
        f'<tr><td>{escaped(name)}</td><td class="n">{count:,}</td>'
        f'<td class="n">{human_bytes(size)}</td><td class="b">'
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * size / most:.2f}" height="10"></rect></svg></td></tr>\n'
        for name, count, size in rows
    ]
    head = "".join(
        f'<th class="n">{escaped(one)}</th>' if number else f"<th>{escaped(one)}</th>"
        for number, one in enumerate(headings)
    )
    return (
        f"<table>\n<thead><tr>{head}<th></th></tr></thead>\n"
        f"<tbody>\n{''.join(lines)}</tbody>\n</table>\n"
    )


def columns(
    values: Sequence[int], first: str, last: str, most: str, line: float | None = None
) -> str:
    """Return a plot of columns over a time, with a line at a part of it from 0 to 1."""
    top = max(values, default=0) or 1
    wide = 1000 / max(1, len(values))
    shapes = [
        f'<rect x="{number * wide:.2f}" y="{100 - 100 * value / top:.2f}" '
        f'width="{wide * 0.85:.2f}" height="{100 * value / top:.2f}"></rect>'
        for number, value in enumerate(values)
        if value
    ]
    if line is not None:
        at = f"{1000 * line:.2f}"
        shapes.append(f'<line x1="{at}" x2="{at}" y1="0" y2="100"></line>')
    return (
        f'<div class="plot"><div class="axis"><span>{escaped(most)}</span></div>\n'
        f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escaped(most)}">{"".join(shapes)}</svg>\n'
        f'<div class="axis"><span>{escaped(first)}</span><span>{escaped(last)}</span></div></div>\n'
    )


def page(title: str, parts: Iterable[str]) -> str:
    """Return the whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escaped(title)}</h1>\n{''.join(parts)}</body>\n</html>\n"
    )
