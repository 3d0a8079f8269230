"""Points in time: accepted forms, and display.

Internally every time is an integer: milliseconds since the Unix epoch.
"""

from __future__ import annotations

import operator
import re
import time
from datetime import UTC, datetime, timedelta
from typing import SupportsIndex

from rmqstore.base.arguments import wrong_type, wrong_value
from rmqstore.base.layout import INT64_MAX, INT64_MIN

__all__ = ["INT64_MAX", "INT64_MIN", "TimeLike", "format_millis", "parse_time", "to_millis"]


_KINDS = "milliseconds since the epoch, an aware datetime, or ISO-8601 text with a zone"

TimeLike = SupportsIndex | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_DAY = 86_400_000  # ms
_CYCLE_YEARS = 400  # period of the calendar
_CYCLE = 146_097 * _DAY  # the same, in ms
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY, "w": 7 * _DAY}
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d|w)")
_NUMBER = re.compile(r"@?(\d{1,18})")


def to_millis(value: TimeLike, *, name: str) -> int:
    """Return a point in time in milliseconds since the epoch, rounded down.

    An int, an aware ``datetime``, or ISO-8601 text with a zone; errors call it ``name``.
    """
    if isinstance(value, str):
        return _aware_millis(_parse_iso(value, name), value, name)
    # pandas' NaT is a datetime, and unequal to itself.
    if isinstance(value, datetime) and value == value:  # noqa: PLR0124
        return _aware_millis(value, value, name)
    if isinstance(value, bool):
        raise wrong_type(name, _KINDS, value)
    try:
        millis = operator.index(value)  # type: ignore[arg-type]  # it is asked
    except TypeError:
        raise wrong_type(name, _KINDS, value) from None
    if not INT64_MIN <= millis <= INT64_MAX:
        raise wrong_value(name, f"{INT64_MIN} to {INT64_MAX}", millis)
    return millis


def parse_time(text: str, *, name: str, local: bool = False, now: int | None = None) -> int:
    """Return a point in time typed on the command line, in milliseconds since the epoch.

    ISO-8601, milliseconds since the epoch (optionally after an ``@``), ``now``, or how long ago:
    ``-90s``, ``-30m``, ``-2h``, ``-1d``, ``-1w``. A time without a zone is in UTC, with ``local``
    in this machine's. Anything else is a ``ValueError`` with the option's ``name``.
    """
    written = text.strip()
    here = time.time_ns() // 1_000_000 if now is None else now
    if written == "now":
        return here
    if (ago := _AGO.fullmatch(written)) is not None:
        millis = here - int(ago[1]) * _UNITS[ago[2]]
        if millis < INT64_MIN:
            raise wrong_value(name, "at most 292 million years ago", text)
        return millis
    if (number := _NUMBER.fullmatch(written)) is not None:
        return int(number[1])
    moment = _parse_iso(written, name)
    if moment.tzinfo is None:
        moment = _local(moment) if local else moment.replace(tzinfo=UTC)
    return _aware_millis(moment, written, name)


def format_millis(millis: int, *, local: bool = False) -> str:
    """Return a point in time as ISO-8601 with milliseconds and its zone.

    UTC, ``Z``, or with ``local`` this machine's zone, such as ``+01:00``, as far as the zone's
    rules cover it. A year outside 0 to 9999 has a sign and at least four digits.
    """
    # Years outside datetime's range are shown through a year with the same calendar.
    cycles = 0
    if not -62_135_596_800_000 <= millis < 253_402_300_800_000:
        cycles = millis // _CYCLE
        millis -= cycles * _CYCLE
    moment = _EPOCH + timedelta(milliseconds=millis)
    if local and cycles == 0:
        text = _local(moment).isoformat(timespec="milliseconds")
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    year = moment.year + cycles * _CYCLE_YEARS
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    rest = f"{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    return f"{sign}{abs(year):04d}-{rest}"


def _local(moment: datetime) -> datetime:
    """Return a time in this machine's zone, or in UTC at the edges of the calendar."""
    try:
        return moment.astimezone()
    except (OverflowError, ValueError, OSError):
        return moment.replace(tzinfo=UTC)


def _parse_iso(text: str, name: str) -> datetime:
    """Parse ISO-8601 text, with or without a zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise wrong_value(name, "a time such as 2026-01-31T08:00:00Z", text) from None


def _aware_millis(moment: datetime, value: object, name: str) -> int:
    """Return the milliseconds of an aware datetime; a naive one raises."""
    if moment.utcoffset() is None:
        shown = value if isinstance(value, str) else moment.isoformat()
        raise wrong_value(name, f"a time with its zone, such as {shown}+00:00", shown)
    return (moment - _EPOCH) // _MILLI
