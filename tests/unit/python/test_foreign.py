"""Text of others in lines: printable, cut, and in every line of a log."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.base.foreign import MOST, cut, foreign, printable
from rmqstore.base.warn import Log, log_info, log_warning

HOSTILE = [
    "a\nrmqstore: a forged line", "\r\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x7f", "\x00",
    "\u202egnp.exe", "\u2066", "\u200b", "\u2028", "\ufeff", "\udc80", "\ud800", "\U000e0001",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert text not in foreign(text)


def test_what_is_shown_stays() -> None:
    for text in ("", "orders", "%RETRY%g", "a b", "\u00e9", "\u20ac", "\U0001f600"):
        assert foreign(text) == text
    assert printable("\t\r\n\x1b\x9b\u202e\U000e0001") == r"\t\r\n\x1b\x9b\u202e\U000e0001"


@given(st.text(st.characters(), max_size=3000))
def test_any_text(text: str) -> None:
    shown = foreign(text, 100)
    assert shown.isprintable()
    assert len(shown) <= 10 * 100 + 50
    shown.encode()


def test_a_long_one_is_cut_and_has_its_length() -> None:
    text = "a" * 150_000 + "z" * 50_000
    assert cut("x" * MOST) == "x" * MOST
    shown = cut(text)
    assert "(200000 characters)" in shown
    assert shown.startswith("aaa")
    assert shown.endswith("zzz")
    assert len(shown) < MOST + 40


def lines_of(write) -> tuple[list[str], logging.LogRecord]:
    """What a handler with the usual formatter writes for one record, and the record."""
    kept: list[logging.LogRecord] = []

    class Keeping(logging.StreamHandler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)
            super().emit(record)

    logger = logging.getLogger("rmqstore.foreign_test")
    stream = io.StringIO()
    handler = Keeping(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        write(Log(logger.name))
    finally:
        logger.removeHandler(handler)
    (record,) = kept
    return stream.getvalue().split("\n")[:-1], record


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 200_000])
@pytest.mark.parametrize("form", ["%s", "%r", "%-5s|"])
def test_a_line_of_the_log_is_one(text: str, form: str) -> None:
    for value in (text, ValueError(text), [text], Path(text.replace("\0", ""))):
        lines, record = lines_of(lambda log, value=value: log.warning(f"of {form} in %d", value, 7))
        (line,) = lines
        assert line.isprintable()
        assert len(line) < MOST + 100
        assert line.endswith(" in 7")
        assert (record.pathname, record.funcName) == (__file__, "<lambda>")


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 200_000, "\n" * 200_000])
def test_a_traceback_forges_no_line(text: str) -> None:
    def fail(log: Log) -> None:
        try:
            raise KeyError(text) from ValueError(text)
        except KeyError as error:
            log.exception("%s failed", text, error=error)

    lines, record = lines_of(fail)
    assert lines[0].startswith("ERROR ")
    assert all(one.startswith("  ") and one.isprintable() for one in lines[2:])
    assert lines[1].startswith(("Traceback", "ValueError"))
    assert sum(map(len, lines)) < 20_000
    assert any("in fail" in one for one in lines)
    assert record.exc_info is not None


def test_the_functions_of_the_library(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rmqstore"):
        log_warning("%s", "a\nb")
        log_info("%s", "\x1b[2J")
    assert caplog.messages == [r"a\nb", r"\x1b[2J"]
    assert [one.pathname for one in caplog.records] == [__file__] * 2


def test_no_line_costs_nothing() -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("made without a line")

    logging.getLogger("rmqstore.foreign_off").setLevel(logging.CRITICAL)
    Log("rmqstore.foreign_off").warning("%s", Loud())
    assert "rmqstore.base.warn" in sys.modules


@pytest.mark.parametrize("unseen", [True, False])
def test_lines_without_a_handler_can_be_left_out(unseen: bool) -> None:
    code = (
        "import sys; from rmqstore.base.warn import log_nothing, log_warning\n"
        f"if {unseen}: log_nothing()\n"
        "assert 'logging' not in sys.modules\n"
        "log_warning('%s', 'shown'); log_warning('%s', 'again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ("" if unseen else "shown\nagain\n")
