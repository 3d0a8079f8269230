"""Random SQL92 filters, most of them good ones, and properties for them; and broken texts."""

from __future__ import annotations

import random

NAMES = ("a", "b", "n", "region", "flag", "$x", "_y", "isle", "nothing")
VALUES = (
    *("0", "1", "5", "-3", "+5", "007", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999"),
    *("1.5", "5.0", "-0.0", "0.0", "1e3", "5.", ".5", "5f", "1e400", "1e-400", "5d ", " 5", "5L"),
    *("0x1p3", "0x.8p1", "-0X1.P-1f", "0x10", "NaN", "-NaN", "Infinity", "-Infinity", "1_0", "--5"),
    *("0.1", "0.10", "1e", "e5", "+", "-", ".", "1e+5", "1E05", "9007199254740993", "4.9e-324"),
    *("1.7976931348623157e308", "2.4703282292062327e-324", "2.4703282292062328e-324"),
    *("0." + "0" * 330 + "1e340", "1" + "0" * 340 + "e-339", "5" * 30, "1." + "3" * 40),
    *("true", "TRUE", "False", "yes", "eu", "us", "it's", "a b", "'", "\u503c", "\U0001f680"),
    *("\u0663", "\uff15", "1\u0664", "\u00b2", "\ufffd", "x" * 200),
)
MALFORMED = (
    b"\xff",
    b"5\xff",
    b"\xed\xa0\x80",
    b"\xc3",
    b"\xf0\x9f\x9a",
    b"\xef\xbf\xbd",
    b"eu\x80",
)
NUMBERS = (
    *("0", "1", "5", "7", "5L", "1l", "10", "2147483647", "2147483648", "9223372036854775807"),
    *("5.0", "1.5", ".5", "5.", "1e3", "5.E-1", "0.1", "1e0", "4.9e-324", "1.7976931348623157e308"),
    *("9007199254740993", "9007199254740993.0", "3", "8"),
)
BAD_NUMBERS = ("9223372036854775808", "0.0", "1e400", "1e-400", "0e5", "007", "1e", "0L", "12.5L")
BLANKS = (" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", " -- c\n", "/***/")
WORDS = (
    *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "(", ")", ",", "+", "-"),
    *(
        "=",
        "<>",
        "<",
        ">",
        "<=",
        ">=",
        "5",
        "1.5",
        "'eu'",
        "''",
        "a",
        "b",
        "region",
        "--",
        "/*",
        "*/",
    ),
    *("'", "#", "!=", "==", "\u00e9", "\x00", ".", "\n", "*", "%", '"', ";", "LIKE", "\ud7ff"),
)


class Texts:
    """Draws them from a source of random numbers, with no more than ``depth`` levels."""

    def __init__(self, source: random.Random, depth: int = 4) -> None:
        self.random = source
        self.depth = depth

    def _one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def _word(self, word: str) -> str:
        """A keyword in any case, with blanks or comments around it."""
        how = self.random.randrange(4)
        word = word.lower() if how == 0 else word.title() if how == 1 else word
        return self._one(*BLANKS) + word + self._one(*BLANKS)

    def _sign(self, sign: str) -> str:
        return self._one("", " ") + sign + self._one("", " ")

    def quoted(self) -> str:
        """Return a text in quotes."""
        return "'" + self._one(*VALUES).replace("'", "''") + "'"

    def number(self) -> str:
        """Return a number, seldom an invalid one."""
        text = self._one(*(BAD_NUMBERS if self.random.random() < 0.02 else NUMBERS))
        while self.random.random() < 0.15:
            text = self._one("-", "+", "- ") + text
        return text

    def _ordered(self, level: int) -> str:
        """An operand of < or BETWEEN."""
        chance = self.random.random()
        if chance < 0.55:
            return self._one(*NAMES)
        if chance < 0.9:
            return self.number()
        if chance < 0.95 and level > 0:
            return f"-({self.condition(level - 1)})"
        return self._one("-", "+") + self._one(*NAMES)

    def _side(self, level: int) -> str:
        """An operand of =."""
        chance = self.random.random()
        if chance < 0.6:
            return self._ordered(level)
        if chance < 0.85:
            return self.quoted()
        if chance < 0.95 or level <= 0:
            return self._one("TRUE", "false")
        return f"({self.condition(level - 1)})"

    def _comparison(self, level: int) -> str:
        kind = self.random.randrange(12)
        if kind < 4:
            sign = self._sign(self._one("<", ">", "<=", ">="))
            return self._ordered(level) + sign + self._ordered(level)
        if kind < 7:
            return self._side(level) + self._sign(self._one("=", "<>")) + self._side(level)
        name = self._one(*NAMES)
        negated = self._one("", "NOT ")
        if kind == 7:
            return name + self._word(self._one("IS NULL", "IS NOT NULL"))
        if kind == 8:
            count = self.random.choice((1, 1, 2, 3, 4, 5, 6, 20))
            texts = self._sign(",").join(self.quoted() for _ in range(count))
            return name + self._word(f"{negated}IN") + f"({texts})"
        if kind < 11:
            low, high = self._ordered(level), self._ordered(level)
            between = self._word(f"{negated}BETWEEN")
            return self._ordered(level) + between + low + self._word("AND") + high
        return self._one(name, "TRUE", "FALSE", "NULL")

    def condition(self, level: int | None = None) -> str:
        """Return an expression; the real parser refuses a few of them."""
        level = self.depth if level is None else level
        kind = self.random.randrange(10) if level > 0 else 0
        if kind < 4:
            return self._comparison(level)
        if kind == 4:
            return self._word("NOT") + self._one("", "(") + self._closed(level)
        if kind == 5:
            return f"({self.condition(level - 1)})"
        parts = [self.condition(level - 1) for _ in range(self.random.choice((2, 2, 2, 3)))]
        return self._word(self._one("AND", "OR")).join(parts)

    def _closed(self, level: int) -> str:
        return f"({self.condition(level - 1)})" if self.random.random() < 0.8 else self._one(*NAMES)

    def expression(self) -> str:
        """Return a whole expression, whose brackets match."""
        text = self.condition()
        return text + ")" * (text.count("(") - text.count(")"))

    def broken(self) -> str:
        """Return an expression with something cut, added or doubled, or words in any order."""
        if self.random.random() < 0.2:
            words = [self._one(*WORDS) for _ in range(self.random.randint(0, 12))]
            return self._one(" ", "").join(words)
        text = self.expression()
        for _ in range(self.random.choice((1, 1, 2, 4))):
            at, to = sorted(self.random.randint(0, len(text)) for _ in range(2))
            kind = self.random.randrange(5)
            if kind == 0:
                text = text[:at] + text[to:]
            elif kind == 1:
                text = text[:at]
            elif kind == 2:
                text = text[:at] + text[at : at + 8] + text[at:]
            elif kind == 3:
                text = text[:at] + self._one(*WORDS) + text[at:]
            else:
                text = text[:at] + " " + self._one(*WORDS) + " " + text[at:]
        return text

    def properties(self) -> dict[str, str]:
        """Return properties that an expression may name, and others."""
        names = self.random.sample(NAMES, self.random.randint(0, len(NAMES)))
        return {name: self._one(*VALUES) for name in [*names, "other"]}

    def stored(self) -> bytes:
        """Return a stored properties string, of any bytes."""
        parts = [f"{name}\x01{value}".encode() for name, value in self.properties().items()]
        if self.random.random() < 0.2:
            broken = self._one(*NAMES).encode() + b"\x01" + self.random.choice(MALFORMED)
            parts.insert(self.random.randint(0, len(parts)), broken)
        if self.random.random() < 0.2:
            odd = self.random.choice((b"", b"a", b"a\x01", b"\x01a", b"b\x015\x016", b"n\x01"))
            parts.insert(self.random.randint(0, len(parts)), odd)
        return b"\x02".join(parts) + self.random.choice((b"", b"\x02"))
