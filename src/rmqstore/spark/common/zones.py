"""Local times (``timestamp_ntz``) in a session's zone, as Spark's cast to ``timestamp``.

An ambiguous time is the first of both; a time skipped by the clock moves on by the length of the
gap. That is ``fold=0`` of Python.

Source: Spark, ``SparkDateTimeUtils.getZoneId``; Java, ``LocalDateTime.atZone``.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SESSION_ZONE", "in_zone", "zone_of"]

SESSION_ZONE = "spark.sql.session.timeZone"

# ZoneId.SHORT_IDS, which Spark accepts; EST, HST and MST are also zones of the system.
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2}))?(?::?(\d{2}))?|Z|UTC|GMT|UT", re.ASCII
)
_HOUR = 3_600_000_000  # us
_SECOND = 1_000_000
# Years beyond Python's dates have the offsets of the same year in the calendar's cycle.
_CYCLE = 146_097 * 24  # hours in 400 years
_FIRST, _LAST = -719_162 * 24 + 24, 2_932_896 * 24 - 24  # hours from 0001-01-02 to 9999-12-31
_EPOCH = dt.datetime(1970, 1, 1)


def zone_of(name: str) -> dt.tzinfo:
    """Return the zone of ``spark.sql.session.timeZone``; raises ``ValueError`` if unknown here."""
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes, seconds = (int(match[n] or 0) for n in (2, 3, 4))
        offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return dt.timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(_SHORT.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"this machine has no time zone {name!r}, which is {SESSION_ZONE}: cast the column "
            "to timestamp"
        ) from None


def in_zone(column: pa.Array, zone: dt.tzinfo) -> pa.Array:
    """Convert local times in a zone to ``timestamp[us, UTC]``; nulls stay."""
    import numpy as np
    import pyarrow as pa

    local = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    values = local.fill_null(0).to_numpy(zero_copy_only=False)
    hours, at = np.unique(values // _HOUR, return_inverse=True)
    starts = np.array([_offset_at(int(hour), 0, zone) for hour in hours], np.int64)
    ends = np.array([_offset_at(int(hour), _HOUR - 1, zone) for hour in hours], np.int64)
    offsets: NDArray[np.int64] = starts[at]
    for row in np.flatnonzero((starts != ends)[at]):  # the offset changes within the hour
        offsets[row] = _offset_at(*divmod(int(values[row]), _HOUR), zone)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values - offsets, pa.int64(), mask=mask).cast(pa.timestamp("us", "UTC"))


def _offset_at(hour: int, rest: int, zone: dt.tzinfo) -> int:
    """Return a zone's offset at a local time, in us; hours since 1970, and us in the hour."""
    if not _FIRST <= hour <= _LAST:
        cycles = (hour - _FIRST) // _CYCLE if hour < _FIRST else -((_LAST - hour) // _CYCLE)
        hour -= cycles * _CYCLE
    offset = zone.utcoffset(_EPOCH + dt.timedelta(hours=hour, microseconds=rest))
    assert offset is not None
    return offset // dt.timedelta(microseconds=1)
