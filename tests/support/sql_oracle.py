"""A slow SQL92 filter: a tree that is walked, from the Java sources of filter 4.9.3.

Nothing of it is shared with the core: it parses by recursive descent over regular expressions, and
its numbers are Python's.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TOKEN = re.compile(
    r"""(?P<skip>[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*(?:[^*]|\*(?!/))*\*/)
      |(?P<float>[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)
      |(?P<decimal>0|[1-9][0-9]*l?)
      |(?P<text>'(?:[^']|'')*')
      |(?P<name>[a-z_$][a-z0-9_$]*)
      |(?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
KEYWORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
FLOAT = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)"
    r"|0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?[pP]([+-]?[0-9]+)[fFdD]?"
    r"|(?=\.?[0-9])([0-9]*)(?:(\.)([0-9]*))?(?:[eE]([+-]?[0-9]+))?[fFdD]?)"
)


class Refused(Exception):
    """The real parser throws here."""


class Raised(Exception):
    """The real evaluation throws here."""


class Int(int):
    """``java.lang.Integer``."""


class Long(int):
    """``java.lang.Long``."""


class Node(NamedTuple):
    """``kind`` is name, negated, condition, or the type of a literal."""

    kind: str
    evaluate: Callable[[Mapping[str, str]], Any]
    value: Any = None


# ---- numbers


def java_integer(text: str, bits: int) -> int:
    """``Integer.valueOf`` or ``Long.valueOf``."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    value = 0
    if not digits:
        raise Raised
    for c in digits:
        if ord(c) > 0xFFFF or unicodedata.category(c) != "Nd":
            raise Raised
        value = value * 10 + unicodedata.digit(c)
    value = -value if text[0] == "-" else value
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Raised
    return Int(value) if bits == 32 else Long(value)


def java_double(text: str) -> float:
    """``Double.valueOf``."""
    found = FLOAT.fullmatch(text.strip("".join(map(chr, range(33)))))
    if found is None:
        raise Raised
    sign, nan, infinite, hex_whole, hex_part, power, whole, _, part, exponent = found.groups()
    if nan:
        return float("nan")
    if infinite:
        return float(sign + "inf")
    if hex_whole is not None:
        try:
            return float.fromhex(f"{sign}0x{hex_whole or 0}.{hex_part or 0}p{power}")
        except OverflowError:
            return float(sign + "inf")
    digits = (whole + (part or "")).lstrip("0")
    point = len(whole) - (len(whole + (part or "")) - len(digits))
    return float(f"{sign}0.{digits or 0}e{point + int(exponent or 0)}")


def compare_doubles(left: float, right: float) -> int:
    """``Double.compare``."""

    def order(value: float) -> int:
        if value != value:
            return 1 << 64
        bits = struct.unpack(">q", struct.pack(">d", value))[0]
        return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1

    return (order(left) > order(right)) - (order(left) < order(right))


# ---- comparisons


def compare(left: Any, right: Any) -> int:
    """``ComparisonExpression.__compare``."""
    kinds = type(left), type(right)
    if kinds[0] is kinds[1]:
        if kinds[0] is float:
            return compare_doubles(left, right)
        return (left > right) - (left < right)
    if bool in kinds:
        if kinds[0] is bool:
            if kinds[1] is str:
                raise Raised
            return -1
        if kinds[0] is str:
            return compare(left.lower() == "true", right)
        return -1
    convert = {Int: lambda t: java_integer(t, 32), Long: lambda t: java_integer(t, 64)}
    if kinds[0] is str:
        left = convert.get(kinds[1], java_double)(left)
    elif kinds[1] is str:
        right = convert.get(kinds[0], java_double)(right)
    if float in (type(left), type(right)):
        return compare_doubles(float(left), float(right))
    return (int(left) > int(right)) - (int(left) < int(right))


def equal(left: Node, right: Node) -> Node:
    """``doCreateEqual``."""

    def evaluate(context: Mapping[str, str]) -> bool | None:
        one, other = left.evaluate(context), right.evaluate(context)
        if (one is None) != (other is None):
            return None if one is None else False
        if one is None:
            return True
        return compare(one, other) == 0

    return Node("condition", evaluate)


def ordered(left: Node, right: Node, holds: Callable[[int], bool]) -> Node:
    """``createGreaterThan`` and its kin."""
    for side in (left, right):
        if side.kind in ("text", "bool", "null", "condition"):
            raise Refused

    def evaluate(context: Mapping[str, str]) -> bool | None:
        one = left.evaluate(context)
        if one is None:
            return None
        other = right.evaluate(context)
        if other is None:
            return None
        if type(one) is str and type(other) is str:
            one, other = java_double(one), java_double(other)
        return holds(compare(one, other))

    return Node("condition", evaluate)


def negation(of: Node) -> Node:
    """NOT."""

    def evaluate(context: Mapping[str, str]) -> bool | None:
        value = of.evaluate(context)
        return None if value is None else not value

    return Node("condition", evaluate)


def joined(left: Node, right: Node, decides: bool) -> Node:
    """AND, which false decides, or OR, which true does."""

    def evaluate(context: Mapping[str, str]) -> bool | None:
        one = left.evaluate(context)
        if one is decides:
            return decides
        other = right.evaluate(context)
        if other is decides:
            return decides
        return None if one is None or other is None else not decides

    return Node("condition", evaluate)


def condition(of: Node) -> Node:
    """``asBooleanExpression``."""
    if of.kind in ("condition", "bool", "null"):
        return of
    if of.kind != "name":
        raise Refused
    return Node("condition", lambda c: None if of.evaluate(c) is None else False)


def minus(of: Node) -> Node:
    """``createNegate``."""

    def evaluate(context: Mapping[str, str]) -> Any:
        value = of.evaluate(context)
        if type(value) in (Int, Long, float):
            return type(value)(-value)
        return None

    return Node("negated", evaluate)


class Parser:
    """One token ahead, as the generated parser has it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.advance()

    def advance(self) -> None:
        """Read the next token."""
        while True:
            if self.at == len(self.text):
                self.kind, self.image = "end", ""
                return
            found = TOKEN.match(self.text, self.at)
            if found is None:
                raise Refused
            self.at = found.end()
            if found.lastgroup != "skip":
                break
        self.kind, self.image = str(found.lastgroup), found[0]
        if self.kind == "name" and self.image.upper() in KEYWORDS:
            self.kind = self.image.upper()
        elif self.kind == "sign":
            self.kind = self.image

    def take(self, kind: str) -> str:
        """Take a token of that kind."""
        if self.kind != kind:
            raise Refused
        image = self.image
        self.advance()
        return image

    def taken(self, kind: str) -> bool:
        """Take a token if it is of that kind."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def either(self) -> Node:
        left = self.both()
        while self.taken("OR"):
            left = joined(condition(left), condition(self.both()), True)
        return left

    def both(self) -> Node:
        left = self.equality()
        while self.taken("AND"):
            left = joined(condition(left), condition(self.equality()), False)
        return left

    def equality(self) -> Node:
        left = self.comparison()
        while self.kind in ("=", "<>", "IS"):
            sign = self.kind
            self.advance()
            if sign == "IS":
                negated = self.taken("NOT")
                self.take("NULL")
                left = equal(left, Node("null", lambda _: None))
                left = negation(left) if negated else left
                continue
            right = self.comparison()
            if "null" in (left.kind, right.kind):
                raise Refused
            if left.kind == "bool" and right.kind in ("number", "text"):
                raise Refused
            left = equal(left, right) if sign == "=" else negation(equal(left, right))
        return left

    def comparison(self) -> Node:
        left = self.unary()
        signs: dict[str, Callable[[int], bool]] = {
            ">": lambda c: c > 0,
            ">=": lambda c: c >= 0,
            "<": lambda c: c < 0,
            "<=": lambda c: c <= 0,
        }
        while True:
            if self.kind in signs:
                holds = signs[self.kind]
                self.advance()
                left = ordered(left, self.unary(), holds)
                continue
            negated = self.taken("NOT")
            if self.taken("BETWEEN"):
                left = self.between(left, negated, signs)
            elif self.taken("IN"):
                left = self.among(left, negated)
            elif negated:
                raise Refused
            else:
                return left

    def between(self, value: Node, negated: bool, signs: dict[str, Callable[[int], bool]]) -> Node:
        low = self.unary()
        self.take("AND")
        high = self.unary()
        if negated:
            return joined(ordered(value, low, signs["<"]), ordered(value, high, signs[">"]), True)
        if low.kind == high.kind == "number" and compare(high.value, low.value) < 0:
            raise Refused
        return joined(ordered(value, low, signs[">="]), ordered(value, high, signs["<="]), False)

    def among(self, left: Node, negated: bool) -> Node:
        if left.kind != "name":
            # Found after the list, which may itself be refused: refused either way.
            raise Refused
        self.take("(")
        texts = {self.quoted()}
        while self.taken(","):
            texts.add(self.quoted())
        self.take(")")

        def evaluate(context: Mapping[str, str]) -> bool | None:
            value = left.evaluate(context)
            return None if value is None else (value in texts) != negated

        return Node("condition", evaluate)

    def quoted(self) -> str:
        return self.take("text")[1:-1].replace("''", "'")

    def unary(self) -> Node:
        if self.taken("+"):
            return self.unary()
        if self.taken("-"):
            return minus(self.unary())
        if self.taken("NOT"):
            return negation(condition(self.unary()))
        if self.taken("("):
            inner = self.either()
            self.take(")")
            return inner
        return self.primary()

    def primary(self) -> Node:
        kind = self.kind
        if kind == "name":
            name = self.take("name")
            return Node("name", lambda context: context.get(name))
        value: Any
        if kind == "text":
            value = self.quoted()
        elif kind == "decimal":
            value = int(self.take(kind).rstrip("lL"))
            if value >= 1 << 63:
                raise Refused
            value = Int(value) if value < 1 << 31 else Long(value)
            kind = "number"
        elif kind == "float":
            value = java_double(self.take(kind))
            if not 0 < value < float("inf"):
                raise Refused
            kind = "number"
        elif kind in ("TRUE", "FALSE", "NULL"):
            value = {"TRUE": True, "FALSE": False, "NULL": None}[kind]
            self.advance()
            kind = "null" if value is None else "bool"
        else:
            raise Refused
        return Node(kind, lambda _: value, value)


def compiled(text: str) -> Node:
    """Return the expression, or raise Refused."""
    return condition(Parser(text).either())


def properties(stored: bytes) -> dict[str, str]:
    """``MessageDecoder.string2messageProperties``; REQUIRES: UTF-8 that is good."""
    found = {}
    for part in stored.decode().split("\x02"):
        name, _, value = part.partition("\x01")
        if name and value:
            found[name] = value
    return found


def matches(expression: Node, context: Mapping[str, str]) -> bool:
    """``ExpressionMessageFilter.isMatchedByCommitLog``."""
    try:
        return expression.evaluate(context) is True
    except Raised:
        return False
