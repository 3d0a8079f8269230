"""Fenced blocks of a document: found, run, and compared with what is shown.

``python`` blocks of a document share their names; a ``text`` block behind one is what it prints,
where ``...`` stands for lines left out.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

# Times, paths, amounts of disk and rates: equal up to these.
VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z|/\S+/store|[\d.,]+ (B|KiB|MiB|GiB|s|ms|us)\b|[\d,]+/s"
)


class Block(NamedTuple):
    """A fenced block: where it begins, its language, its lines."""

    line: int
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    language, start, lines = "", 0, list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and not start:
            language, start, lines = line[3:].strip(), number, []
        elif line == "```":
            found.append(Block(start, language, "\n".join(lines) + "\n"))
            start = 0
        else:
            lines.append(line)
    assert not start, f"line {start}: the block does not end"
    return found


def masked(text: str, pattern: re.Pattern[str] = VOLATILE) -> list[str]:
    lines = (" ".join(pattern.sub("#", line).split()) for line in text.splitlines())
    return [re.sub(r"# (# ?)+|#", "#", line) for line in lines if line]


def alike(shown: list[str], printed: list[str]) -> bool:
    """Whether ``printed`` is as shown; ``...`` stands for any number of lines."""
    if "..." not in shown:
        return shown == printed
    at = shown.index("...")
    head, tail = shown[:at], shown[at + 1 :]
    if printed[:at] != head:
        return False
    return any(alike(tail, printed[n:]) for n in range(at, len(printed) + 1))


def run_python(document: Path, block: Block, names: dict[str, object]) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(document), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_all(document: Path, language: str) -> list[tuple[int, str, str]]:
    """Run all blocks of a language in order: line, shown and printed text of each."""
    every = [*blocks(document), Block(0, "", "")]
    names: dict[str, object] = {"__name__": "document"}
    return [
        (
            block.line,
            after.text if after.language == "text" else "",
            run_python(document, block, names),
        )
        for block, after in itertools.pairwise(every)
        if block.language == language
    ]


if __name__ == "__main__":
    print(json.dumps(run_all(Path(sys.argv[1]), sys.argv[2])))
