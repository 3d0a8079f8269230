"""Points in time: what callers may write, and how times are shown.

Inside everything is an integer: milliseconds since the Unix epoch.

Source: none.
"""

from __future__ import annotations

import operator
import re
import time
from datetime import UTC, datetime, timedelta
from typing import SupportsIndex

__all__ = ["INT64_MAX", "INT64_MIN", "TimeLike", "format_millis", "parse_time", "to_millis"]

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

_KINDS = "milliseconds since the epoch, an aware datetime, or ISO-8601 text with a zone"

TimeLike = SupportsIndex | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_DAY = 86_400_000  # ms
_CYCLE_YEARS = 400  # the calendar repeats after as many years,
_CYCLE = 146_097 * _DAY  # which are as many ms
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY, "w": 7 * _DAY}
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d|w)")
_NUMBER = re.compile(r"@?(\d{1,18})")


def to_millis(value: TimeLike, *, name: str) -> int:
    """Return the point in time that ``value`` means.

    Parameters
    ----------
    value : int, datetime or str
        Milliseconds since the epoch, an aware ``datetime``, or ISO-8601 text with a zone.
    name : str
        The argument, for the error.

    Returns
    -------
    int
        Milliseconds since the epoch, rounded down.

    Raises
    ------
    TypeError
        It is none of the three.
    ValueError
        It has no zone, is no ISO-8601 text, or does not fit 64 bits.
    """
    if isinstance(value, str):
        return _aware_millis(_parse_iso(value, name), value, name)
    if isinstance(value, datetime):
        return _aware_millis(value, value, name)
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, must be {_KINDS}")
    try:
        millis = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} is {value!r} ({kind}), must be {_KINDS}") from None
    if not INT64_MIN <= millis <= INT64_MAX:
        raise ValueError(f"{name} is {millis}, must be {INT64_MIN} to {INT64_MAX}")
    return millis


def parse_time(text: str, *, name: str, now: int | None = None) -> int:
    """Return the point in time that somebody typed on the command line.

    Parameters
    ----------
    text : str
        ISO-8601 (local time where it names no zone), milliseconds since the epoch (an ``@`` may
        stand before them), ``now``, or how long ago: ``-90s``, ``-30m``, ``-2h``, ``-1d``, ``-1w``.
    name : str
        The option, for the error.
    now : int, optional
        Milliseconds since the epoch; the clock by default.

    Returns
    -------
    int
        Milliseconds since the epoch.

    Raises
    ------
    ValueError
        It is none of these.
    """
    written = text.strip()
    here = time.time_ns() // 1_000_000 if now is None else now
    if written == "now":
        return here
    if (ago := _AGO.fullmatch(written)) is not None:
        return here - int(ago[1]) * _UNITS[ago[2]]
    if (number := _NUMBER.fullmatch(written)) is not None:
        return int(number[1])
    moment = _parse_iso(written, name)
    if moment.tzinfo is None:
        try:
            moment = moment.astimezone()
        except (OverflowError, ValueError, OSError):
            moment = moment.replace(tzinfo=UTC)
    return _aware_millis(moment, written, name)


def format_millis(millis: int) -> str:
    """Return a point in time as ISO-8601 with milliseconds, in UTC.

    Parameters
    ----------
    millis : int
        Milliseconds since the epoch; any 64-bit number.

    Returns
    -------
    str
        Such as ``2026-01-31T23:59:59.123Z``; a year outside 0 to 9999 has a sign and at least
        four digits.
    """
    # Years outside what datetime knows are shown through a year of the same calendar.
    cycles = 0
    if not -62_135_596_800_000 <= millis < 253_402_300_800_000:
        cycles = millis // _CYCLE
        millis -= cycles * _CYCLE
    moment = _EPOCH + timedelta(milliseconds=millis)
    year = moment.year + cycles * _CYCLE_YEARS
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    rest = f"{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    return f"{sign}{abs(year):04d}-{rest}"


def _parse_iso(text: str, name: str) -> datetime:
    """Return what ISO-8601 text says, with or without a zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{name} is {text!r}, must be a time such as 2026-01-31T08:00:00Z"
        ) from None


def _aware_millis(moment: datetime, value: object, name: str) -> int:
    """Return the milliseconds of an aware datetime; refuse a naive one."""
    if moment.utcoffset() is None:
        shown = value if isinstance(value, str) else moment.isoformat()
        raise ValueError(f"{name} is {shown!r}, must name its zone, such as {shown}+00:00")
    return (moment - _EPOCH) // _MILLI
