"""JSON as fastjson 1.2.76 reads and writes it: standard, except that integer keys are bare.

Source: fastjson's ``JSON.toJSONString(object, true)``, as ``remoting/protocol/
RemotingSerializable.java`` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

__all__ = [
    "MAX_CHARS",
    "MAX_DEPTH",
    "JsonError",
    "JsonLimitError",
    "Parser",
    "Written",
    "dumps",
    "loads",
    "member",
]

MAX_DEPTH = 64  # nested containers
MAX_CHARS = 256 << 20
_MAX_NUMBER_CHARS = 400
# An empty list takes 80 bytes of memory for 2 of text, an object of one member 240 for 5. Where a
# broker writes more than the first number of containers, each has longer names than this.
_CONTAINERS, _CHARS_A_CONTAINER = 1 << 16, 16
_STEP = 16  # values parsed between two steps

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<mark>[{}\[\]:,])
    |"(?P<text>[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?P<real>(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?))
    |(?P<word>true|false|null)
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SHORT_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None}

# Escaped by fastjson: controls, the C1 range, the two line separators; here also lone surrogates,
# except those that represent bytes of another charset.
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udc7f\udd00-\udfff]')
_SPECIAL_SHORT = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
}  # fmt: skip


class JsonError(ValueError):
    """Text that is not JSON."""

    reason: str
    position: int
    line: int

    def __init__(self, reason: str, position: int, line: int) -> None:
        self.reason = reason  # found and expected text
        self.position = position  # character, from 0
        self.line = line  # from 1
        super().__init__(reason, position, line)

    def __str__(self) -> str:
        return f"{self.reason} (line {self.line}, character {self.position})"


def loads(text: str, *, max_depth: int = MAX_DEPTH, max_chars: int = MAX_CHARS) -> Any:
    """Parse a JSON text, whose objects may have unquoted integers as keys.

    A bare key becomes an ``int``; of duplicate keys the last wins. Other text, or one of more than
    ``max_depth`` nested containers, ``max_chars`` characters, or as many containers as no broker
    writes in its length, is a :class:`JsonError`.
    """
    if len(text) > max_chars:
        raise JsonLimitError(f"{len(text)} characters, at most {max_chars} are read", max_chars, 1)
    return Parser(text, max_depth).parse()


class JsonLimitError(JsonError):
    """Text beyond a limit of this reader; a broker may be able to read it."""


class Parser:
    """One pass over the text with a stack of open containers, not recursive."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.at = 0  # next character to read
        self.containers = 0

    def fail(self, reason: str, position: int | None = None) -> JsonError:
        """Return the error for ``position``, by default the current one."""
        where = self.at if position is None else position
        return JsonError(reason, where, self.line_of(where))

    def beyond(self, reason: str, position: int) -> JsonLimitError:
        """Return the error for a limit that ``position`` exceeds."""
        return JsonLimitError(reason, position, self.line_of(position))

    def line_of(self, position: int) -> int:
        """Return the line of a character, from 1."""
        return self.text.count("\n", 0, position) + 1

    def found(self) -> str:
        """Return a description of the next token, for an error."""
        self.at = self._skip_space()
        if self.at >= len(self.text):
            return "the end of the text"
        return repr(self.text[self.at : self.at + 12])

    def _skip_space(self) -> int:
        match = _SPACE.match(self.text, self.at)
        return self.at if match is None else match.end()

    def token(self, expected: str) -> re.Match[str]:
        """Take the next token."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.fail(f"found {self.found()}, expected {expected}")
        self.at = match.end()
        return match

    def mark(self, wanted: str) -> str:
        """Take one of the marks ``wanted``."""
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["mark"] is None or match["mark"] not in wanted:
            raise self.fail(f"found {self.found()}, expected {' or '.join(wanted)}")
        self.at = match.end()
        return str(match["mark"])

    def peek_is(self, mark: str) -> bool:
        """Take ``mark`` if it is next; return whether it was."""
        start = self._skip_space()
        if self.text[start : start + 1] != mark:
            return False
        self.at = start + 1
        return True

    def key(self) -> str | int:
        """Take a key and its colon."""
        match = self.token("a key")
        if match["text"] is not None:
            key: str | int = self.string(match)
        elif match["number"] is not None and not match["real"]:
            key = self.integer(match)
        else:
            self.at = match.start()
            raise self.fail(f"found {self.found()}, expected a key")
        self.mark(":")
        return key

    def string(self, match: re.Match[str]) -> str:
        """Return the text of a quoted token."""
        raw: str = match["text"]
        if "\\" not in raw:
            return raw

        def meaning(escape: re.Match[str]) -> str:
            code = escape[1]
            if len(code) > 1:
                return chr(int(code[1:], 16))
            if code not in _SHORT_ESCAPES:
                raise self.fail(f"escape {escape[0]!r}", match.start("text") + escape.start())
            return _SHORT_ESCAPES[code]

        return _PAIR.sub(_join_pair, _ESCAPE.sub(meaning, raw))

    def integer(self, match: re.Match[str]) -> int:
        """Return the number of an integer token."""
        self.check_number(match)
        return int(match["number"])

    def check_number(self, match: re.Match[str]) -> None:
        """Refuse a number that takes longer to convert than to read."""
        if len(match["number"]) > _MAX_NUMBER_CHARS:
            reason = f"a number of {len(match['number'])} characters"
            raise self.beyond(reason, match.start("number"))

    def scalar(self, match: re.Match[str]) -> Any:
        """Return the value of a scalar token."""
        if match["text"] is not None:
            return self.string(match)
        if match["word"] is not None:
            return _WORDS[match["word"]]
        self.check_number(match)
        return float(match["number"]) if match["real"] else int(match["number"])

    def parse(self) -> Any:
        """Parse the whole text as one value."""
        steps = self.parse_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def parse_in_steps(self) -> Generator[None, None, Any]:
        """Parse the whole text as one value, with a step after every few values."""
        stack: list[tuple[Any, Any]] = []  # container, and the key its next value has
        for number in count(1):
            if number % _STEP == 0:
                yield
            match = self.token("a value")
            mark = match["mark"]
            value: Any
            if mark in ("{", "["):
                self._count_container(match.start("mark"), len(stack))
                value = {} if mark == "{" else []
                if not self.peek_is("}" if mark == "{" else "]"):
                    stack.append((value, self.key() if mark == "{" else None))
                    continue
            elif mark is not None:
                self.at = match.start("mark")
                raise self.fail(f"found {self.found()}, expected a value")
            else:
                value = self.scalar(match)
            if not self._close(stack, value):
                continue
            root = stack.pop()[0] if stack else value
            if self._skip_space() != len(self.text):
                raise self.fail(f"found {self.found()}, expected the end of the text")
            return root
        raise AssertionError  # the counting has no end

    def _count_container(self, position: int, depth: int) -> None:
        """Refuse a container too deep, or too many for their text."""
        if depth >= self.max_depth:
            raise self.beyond(f"more than {self.max_depth} levels", position)
        self.containers += 1
        if self.containers > _CONTAINERS + position // _CHARS_A_CONTAINER:
            reason = f"{self.containers:,} objects and lists in {position:,} characters"
            raise self.beyond(reason, position)

    def _close(self, stack: list[tuple[Any, Any]], value: Any) -> bool:
        """Add ``value``, close containers that end; return whether the root, which stays, did."""
        while stack:
            container, key = stack[-1]
            if isinstance(container, dict):
                container[key] = value
                if self.mark(",}") == ",":
                    stack[-1] = (container, self.key())
                    return False
            else:
                container.append(value)
                if self.mark(",]") == ",":
                    return False
            if len(stack) == 1:
                return True
            stack.pop()
            value = container
        return True


def _join_pair(pair: re.Match[str]) -> str:
    """Return the character of two escaped surrogates."""
    high, low = (ord(half) for half in pair[0])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


class Written:
    """Stands for a mapping whose members are already text.

    ``members`` are texts of :func:`member` at the depth of this mapping's members; ``depth`` is the
    number of tabs before the closing brace.
    """

    def __init__(self, members: Iterable[str], depth: int) -> None:
        text = ",".join(members)
        self.parts = ("{", text, "\n" + "\t" * depth + "}") if text else ("{}",)


def member(key: str, value: Any, depth: int) -> str:
    """Return the line of a mapping for a key and its value, indented by ``depth`` tabs."""
    out = ["\n" + "\t" * depth, _quote(key), ":"]
    _write(value, depth, out)
    return "".join(out)


def dumps(value: Any) -> str:
    """Return ``value`` as fastjson writes it, indented by tabs, without a trailing newline.

    A key with the value ``None`` is left out. ``TypeError`` for a type that JSON does not have,
    ``ValueError`` for a ``float`` that is not finite or more than ``MAX_DEPTH`` levels.
    """
    out: list[str] = []
    _write(value, 0, out)
    return "".join(out)


def _write(value: Any, depth: int, out: list[str]) -> None:
    """Append the text of ``value``, indented by ``depth`` tabs."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        out.append({True: "true", False: "false", None: "null"}[value])
    elif isinstance(value, str):
        out.append(_quote(value))
    elif isinstance(value, int):
        out.append(str(int(value)))
    elif isinstance(value, float):
        if value - value != 0:
            raise ValueError(f"{value!r} is no JSON number")
        out.append(repr(value))
    elif isinstance(value, Mapping):
        _write_mapping(value, depth, out)
    elif isinstance(value, Written):
        out += value.parts
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        _write_sequence(value, depth, out)
    else:
        raise TypeError(f"{type(value).__name__} is no JSON value")


def _write_mapping(value: Mapping[Any, Any], depth: int, out: list[str]) -> None:
    """Append an object: a text key begins a line, an integer key continues it."""
    out.append("{")
    line = "\n" + "\t" * (depth + 1)
    first = True
    for key, inner in value.items():
        if inner is None:
            continue
        if not first:
            out.append(",")
        first = False
        if isinstance(key, str):
            out += (line, _quote(key), ":")
        elif isinstance(key, int) and not isinstance(key, bool):
            out += (str(int(key)), ":")
        else:
            raise TypeError(f"{type(key).__name__} is no JSON key")
        _write(inner, depth + 1, out)
    out.append("}" if first else "\n" + "\t" * depth + "}")


def _write_sequence(value: Sequence[Any], depth: int, out: list[str]) -> None:
    """Append an array: integers on one line (Java's ``int[]``), else a line each (``List``)."""
    if all(isinstance(inner, int) for inner in value):
        out.append("[" + ",".join(str(int(inner)) for inner in value) + "]")
        return
    line = "\n" + "\t" * (depth + 1)
    out.append("[")
    for number, inner in enumerate(value):
        out.append("," + line if number else line)
        _write(inner, depth + 1, out)
    out.append("\n" + "\t" * depth + "]")


def _quote(text: str) -> str:
    def escape(special: re.Match[str]) -> str:
        char = special[0]
        return _SPECIAL_SHORT.get(char) or f"\\u{ord(char):04X}"

    return '"' + _SPECIAL.sub(escape, text) + '"'
