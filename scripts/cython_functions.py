"""Find the C functions that Cython sources define, with the words after their arguments."""

import re
from typing import NamedTuple

CLASS = re.compile(r"cdef\s+(?:\w+\s+)*class\s+([\w.]+)")
BLOCK = re.compile(r"cdef\s+extern\b|cdef\s+(?:packed\s+)?(?:struct|union|enum)\b|cppclass\b")


class Function(NamedTuple):
    """One ``cdef`` function that has a body."""

    line: int  # of its first word, from 1
    owner: str  # class, or "" at module level
    name: str
    tail: str  # "noexcept nogil" and the like


def functions(text: str) -> list[Function]:
    """Return the ``cdef`` and ``cpdef`` functions that ``text`` defines, in order."""
    found = []
    owner, owner_indent = "", -1
    for line, statement in _statements(text):
        indent = len(statement) - len(statement.lstrip())
        words = statement.strip()
        if indent <= owner_indent:
            owner, owner_indent = "", -1
        head = CLASS.match(words)
        if head:
            owner, owner_indent = head.group(1), indent
        elif re.match(r"cp?def\s", words) and words.endswith(":") and not BLOCK.match(words):
            parts = _split_arguments(words[:-1])
            if parts:
                found.append(Function(line, owner, *parts))
    return found


def _split_arguments(words: str) -> tuple[str, str] | None:
    """Split ``cdef T name(arguments) tail`` into name and tail, None if there are no arguments."""
    start = re.search(r"(\w+)\s*\(", words)
    if not start:
        return None
    depth = 0
    for at in range(start.end() - 1, len(words)):
        depth += {"(": 1, ")": -1}.get(words[at], 0)
        if depth == 0:
            return start.group(1), words[at + 1 :]
    return None


def _statements(text: str) -> list[tuple[int, str]]:
    """Return logical lines: comments and strings dropped, lines joined inside parentheses."""
    text = re.sub(
        r'("""|\'\'\')(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*',
        lambda m: "\n" * m.group().count("\n"),
        text,
        flags=re.DOTALL,
    )
    result: list[tuple[int, str]] = []
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        if depth:
            first, before = result[-1]
            result[-1] = (first, before + " " + line.strip())
        elif line.strip():
            result.append((number, line.rstrip()))
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        depth = max(depth, 0)
        if result:
            result[-1] = (result[-1][0], result[-1][1].rstrip())
    return result
