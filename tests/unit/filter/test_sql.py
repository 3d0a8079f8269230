"""SQL92 filters: what they mean, what is refused where, and what takes bounded time."""

from __future__ import annotations

import random
import threading

import pytest

from rmqstore import FilterError, _core
from rmqstore.filters import check_filter
from support import sql_oracle
from support.sql_texts import VALUES

TERMS = 100_000


def passes(sql: str, *, stored: bytes | None = None, **properties: str) -> bool:
    """Whether a message with these properties passes."""
    if stored is None:
        pairs = [f"{name}\x01{value}" for name, value in properties.items()]
        stored = "\x02".join(pairs).encode()
    return _core._sql_matches(sql, stored)


def as_java(value: float) -> str:
    """``Double.toString``, near enough."""
    return repr(value).replace("inf", "Infinity")


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        # with a = "6", t = "true", s = "it's", x = "abc"; nothing else is there
        ("a > 5", True),
        ("a > 6", False),
        ("a >= 6 AND a <= 6", True),
        ("a = 6", True),
        ("a = 6.0", True),
        ("a = '6'", True),
        ("a = '6.0'", False),
        ("a = 6L", True),
        ("a > '5'", None),
        ("a > t", False),  # no number: raises
        ("x = 5", False),  # raises
        ("x <> 5", False),
        ("NOT x = 5", False),  # (NOT x) = 5
        ("x = 5 OR TRUE", False),
        ("TRUE OR x = 5", True),
        ("FALSE AND x = 5 OR a = 6", True),
        ("t = TRUE", True),
        ("x = FALSE", True),
        ("TRUE = t", False),  # raises: a boolean takes no text
        ("5 = TRUE", False),
        ("(a = 6) = (t = TRUE)", True),
        # null on the left is unknown, on the right not equal
        ("none = 5", False),
        ("none <> 5", False),
        ("5 = none", False),
        ("5 <> none", True),
        ("none = nil", True),
        ("none <> nil", False),
        ("NOT (none = 5)", False),
        ("none = 5 OR a = 6", True),
        ("none > 5 OR none <= 5", False),
        ("none IS NULL", True),
        ("a IS NOT NULL", True),
        ("a IS NULL IS NULL", False),
        ("5 IS NOT NULL", True),
        ("NULL", False),
        ("NULL IS NULL", True),
        ("-a IS NULL", True),  # a text has no negative
        ("-'x' IS NULL", True),
        # a property as a condition: false, or unknown
        ("a", False),
        ("NOT a", True),
        ("none", False),
        ("NOT none", False),
        ("a BETWEEN 5 AND 7", True),
        ("a NOT BETWEEN 5 AND 7", False),
        ("a BETWEEN 7 AND -5", False),
        ("none BETWEEN x AND 5", False),
        ("none BETWEEN x AND 5 IS NULL", True),
        ("a BETWEEN none AND 5", False),
        ("a BETWEEN none AND 5 IS NULL", False),
        ("a BETWEEN none AND 7 IS NULL", True),
        ("a NOT BETWEEN 7 AND x", True),  # x is not asked
        ("6 BETWEEN 5.5 AND a", True),
        ("a IN ('6', 'x')", True),
        ("a NOT IN ('6')", False),
        ("none NOT IN ('6')", False),
        ("s = 'it''s'", True),
        ("s IN ('1','2','3','4','5','6','7','8','it''s')", True),
        ("a = --6", True),
        ("a = -- c\n6", True),
        ("/* * / **/a/***/= +6", True),
        ("nOt a = 5 Or a Between 1 aNd 9", True),
        ("a = 6 anything ( may follow", True),
        ("a = 006", False),  # 0, and what follows is not read
        ("a = 6 --", True),
        ("a > -9223372036854775807", True),
        ("2147483648 > 2147483647", True),
        ("9007199254740993 = 9007199254740992.0", True),
    ],
)
def test_what_it_means(sql: str, wanted: bool | None) -> None:
    properties = {"a": "6", "t": "true", "s": "it's", "x": "abc"}
    if wanted is None:
        with pytest.raises(FilterError):
            passes(sql, **properties)
        return
    assert passes(sql, **properties) is wanted
    assert sql_oracle.matches(sql_oracle.compiled(sql), properties) is wanted


@pytest.mark.parametrize(
    ("sql", "position", "text"),
    [
        ("", 0, "found the end"),
        ("  ", 2, "found the end"),
        ("a >", 3, "found the end"),
        ("a > 5 AND", 9, "expected a property, a number, a text in single quotes"),
        ("a = 5 AND )", 10, "found ')'"),
        ("(a = 5", 6, "expected an operator or ')', found the end"),
        ("a IS 5", 5, "expected NULL or NOT NULL, found '5'"),
        ("a IS NOT 5", 9, "expected NULL, found '5'"),
        ("a NOT NULL", 6, "expected BETWEEN or IN after NOT, found 'NULL'"),
        ("a BETWEEN 1 OR 2", 12, "expected AND with the upper bound"),
        ("a IN 'x'", 5, "'(' after IN"),
        ("a IN ()", 6, "a text in single quotes, found ')'"),
        ("a IN (5)", 6, "a text in single quotes, found '5'"),
        ("a IN ('x' 'y')", 10, "',' or ')'"),
        ("5 IN ('x')", 0, "no property has no IN"),
        ("null = null", 0, "NULL is compared by IS NULL"),
        ("a <> NULL", 5, "NULL is compared by IS NULL"),
        ("a > 'x'", 4, "a text is compared by = and <> only"),
        ("a > (b = 1)", 4, "a condition is compared"),
        ("a < b < c", 0, "a condition is compared"),
        ("TRUE = 5", 7, "TRUE and FALSE are compared with no number"),
        ("a BETWEEN 7 AND 5", 10, "the lower bound is above the upper one"),
        ("a BETWEEN 'a' AND 'b'", 10, "a text is compared"),
        ("a = 9223372036854775808", 4, "a number above 9223372036854775807"),
        ("a = -9223372036854775808", 5, "a number above 9223372036854775807"),
        ("a = 1e400", 4, "a number above 1.79"),
        ("a = 0.0", 4, "a number with a point or an exponent below"),
        ("5", 0, "where a condition is expected"),
        ("a = 1 AND -b", 10, "where a condition is expected"),
        ("a = 'x", 4, "an unfinished text"),
        ("\u503c = 'x'", 0, "no word or sign of a filter: '\u503c'"),
        ("a = '\u503c' AND b # 5", 14, "no word or sign of a filter: '#'"),
        ("a = '\u503c\U0001f680' AND", 12, "found the end"),
        ("a = 6 ;", 6, "no word or sign"),
        ("a LIKE 'x'", None, ""),  # a, and what follows is not read
        ("a /* x", 2, "no word or sign"),
    ],
)
def test_what_is_refused(sql: str, position: int | None, text: str) -> None:
    if position is None:
        check_filter(sql=sql)
        return
    with pytest.raises(FilterError) as refused:
        check_filter(sql=sql)
    assert text in refused.value.message
    assert refused.value.position == position
    assert "\n" not in str(refused.value)
    with pytest.raises(sql_oracle.Refused):
        sql_oracle.compiled(sql)


def test_numbers_are_read_as_java_reads_them() -> None:
    for value in VALUES:
        for literal in ("5", "5L", "3000000000", "5.0"):
            for sign in ("=", "<", ">"):
                sql = f"a {sign} {literal}"
                wanted = sql_oracle.matches(sql_oracle.compiled(sql), {"a": value})
                assert passes(sql, a=value) is wanted, (sql, value)
        for other in VALUES:
            wanted = sql_oracle.matches(sql_oracle.compiled("a <= b"), {"a": value, "b": other})
            assert passes("a <= b", a=value, b=other) is wanted, (value, other)


def test_doubles_of_many_digits() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        digits = "".join(rng.choices("0123456789", k=rng.choice([1, 15, 16, 17, 19, 40, 799, 900])))
        at = rng.randint(0, len(digits))
        text = f"{digits[:at]}.{digits[at:]}e{rng.choice([0, 5, -5, 22, -22, 300, -330, 340])}"
        if rng.random() < 0.3:
            near = rng.getrandbits(53) | 1 << 53
            text = f"{near}.5" + "0" * rng.choice([0, 30, 900]) + rng.choice(["", "1"])
        assert passes("a >= b AND a <= b", a=text, b=as_java(float(text))), text
        number = rng.choice([rng.getrandbits(60), rng.getrandbits(130)])
        text = f"0x{number:x}.{rng.getrandbits(200):x}p{rng.choice([0, -1000, -1200, 900, 10**12])}"
        try:
            value = float.fromhex(text)
        except OverflowError:
            value = float("inf")
        assert passes("a >= b AND a <= b", a=text, b=as_java(value)), text


def test_what_is_no_utf8_is_a_replacement_character() -> None:
    broken = b"a\x01x\xff\x02b\x01x\xfe\x02c\x01x\xef\xbf\xbd"
    for sql in ("a = b", "b = c", "a = 'x\ufffd'", "a IN ('y', 'x\ufffd')"):
        assert passes(sql, stored=broken), sql
    assert not passes("a = 'x'", stored=broken)
    assert not passes("a IN ('x', 'x\ufffd\ufffd')", stored=broken)


def test_the_last_of_a_name_counts() -> None:
    stored = b"a\x015\x02b\x02\x01c\x02a\x016\x02a\x01\x02a"
    assert passes("a = 6 AND b IS NULL AND c IS NULL", stored=stored)


@pytest.mark.parametrize(
    ("sql", "value", "wanted"),
    [
        (" OR ".join(f"a = '{n}'" for n in range(TERMS)), str(TERMS - 1), True),
        (" AND ".join(f"a{n} IS NULL" for n in range(TERMS)), "1", True),
        ("(" * TERMS + "a = 1" + ")" * TERMS, "1", True),
        ("NOT " * TERMS + "a", "1", False),
        ("a = " + "- " * TERMS + "1", "1", True),
        ("a = " + "+" * TERMS + "1", "1", True),
        ("a = 1 AND (" * TERMS + "a = 1" + ")" * TERMS, "1", True),
        ("a IN (" + ",".join(f"'{n}'" for n in range(TERMS)) + ")", "99", True),
        ("a = " + "--" * TERMS + "1", "1", True),
        ("a = '" + "''" * TERMS + "'", "'" * TERMS, True),
        ("(" * TERMS, "1", None),
        ("a = '" + "''" * TERMS, "1", None),
        ("a = " + "/*" * TERMS, "1", None),
    ],
    ids=range(13),
)
def test_a_hundred_thousand_terms(sql: str, value: str, wanted: bool | None) -> None:
    if wanted is None:
        with pytest.raises(FilterError):
            passes(sql, a=value)
    else:
        assert passes(sql, a=value) is wanted


def test_a_hundred_thousand_separators() -> None:
    names = " AND ".join(f"n{n} IS NULL" for n in range(100))
    for stored in (b"\x02" * TERMS, b"\x01" * TERMS, b"\x01\x02" * TERMS, b"b\x011\x02" * TERMS):
        assert passes(f"a = 1 AND {names}", stored=stored + b"\x02a\x011")


def test_what_is_no_text() -> None:
    for wrong in (5, b"a = 1", ["a"]):
        with pytest.raises(TypeError, match="sql must be str such as"):
            check_filter(sql=wrong)
    with pytest.raises(ValueError, match="UTF-8"):
        check_filter(sql="a = '\ud800'")


def test_threads_share_compiled_filters() -> None:
    failed = []

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(2000):
            n = rng.randrange(200)
            if not passes(f"a = {n} AND b = '{n}'", a=str(n), b=str(n)):
                failed.append(n)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
