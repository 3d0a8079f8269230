"""Lines of JSON and CSV as ``cat`` writes them, parsed: the fields of a message.

The reverse of :mod:`rmqstore.lines`.
"""

from __future__ import annotations

import json
import re
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqstore.base.arguments import did_you_mean, shown
from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.bodies import BODY_MARK
from rmqstore.lines import FIELDS

__all__ = [
    "BODY_FIELDS",
    "LINE_MOST",
    "LineError",
    "fields_of_cells",
    "fields_of_line",
    "is_line_of_cat",
    "own_properties",
]

BODY_FIELDS = ("body_base64", "body_hex")
LINE_MOST = 32 << 20  # bytes: a body of 4 MiB of control characters, escaped

_BODIES = ("body", *BODY_FIELDS)
_ERROR = "body_error"
_KNOWN = frozenset((*FIELDS, *BODY_FIELDS, _ERROR))
_OF_CAT = frozenset(("physical_offset", "queue_offset", "topic", "store_size", "msg_id"))
# Names that a put makes itself, or refuses.  Source: common/message/MessageConst.java
_RESERVED = frozenset((
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG",
    "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL",
    "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", "__CRC32#",
))  # fmt: skip
_COMPRESSED = 1  # of sys_flag
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_FAR = re.compile(r"([+-]?\d{4,9})(-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)", re.ASCII)
_CYCLE_YEARS, _CYCLE = 400, 146_097 * 86_400_000  # ms: the calendar's period

Fields = dict[str, Any]


class LineError(ValueError):
    """A line that is no message; says why."""


def is_line_of_cat(line: bytes) -> bool:
    """Return whether a line is a message as ``cat`` writes it, with its place in a store."""
    if not line.startswith(b"{") or len(line) > LINE_MOST:
        return False
    try:
        found = _loads(line)
    except LineError:
        return False
    return _OF_CAT <= found.keys() <= _KNOWN


def own_properties(fields: Fields) -> dict[str, str]:
    """Return the properties of a message's fields without RocketMQ's own."""
    pairs = fields.get("properties") or ()
    return {name: value for name, value in pairs if name not in _RESERVED}


def fields_of_line(line: bytes) -> Fields:
    """Return the fields of a line of JSON, bodies as bytes and times in ms; or raise."""
    found = _loads(line)
    for name in found:
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN)
            raise LineError(f"messages have no field {shown(name)}{'; ' if hint else ''}{hint}")
    return _checked(found)


def fields_of_cells(names: Sequence[str], cells: Sequence[str]) -> Fields:
    """Return the fields of a line of CSV, as :func:`fields_of_line`."""
    if len(cells) != len(names):
        raise LineError(f"has {len(cells)} cells for {len(names)} columns")
    found: Fields = {}
    for name, cell in zip(names, cells, strict=True):
        if name in _BODIES:
            if cell or not any(one in found for one in _BODIES):
                for one in _BODIES:
                    found.pop(one, None)
                found[name] = cell
        elif name == "keys":
            found[name] = cell.split(" ") if cell else []
        elif name == "properties":
            found[name] = _loads(cell.encode("utf-8", "surrogatepass")) if cell else None
        elif name in _NUMBERS:
            found[name] = _number_of(name, cell)
        else:
            found[name] = cell or None
    flags = found.get("sys_flag") or 0
    if flags & _COMPRESSED and any(found.get(one, "").startswith(BODY_MARK) for one in _BODIES):
        found[_ERROR] = True
    return _checked(found)


def _checked(found: Fields) -> Fields:
    """Return known fields, checked and converted."""
    if found.get(_ERROR):
        raise LineError("its body could not be inflated, see body_error; leave it out")
    fields = {name: found[name] for name in found if name not in _BODIES}
    if not isinstance(found.get("topic"), str):
        raise LineError(f"topic must be a text, got {shown(found.get('topic'))}")
    fields["body"] = _body_of(found)
    for name, check in _CHECKS.items():
        if name in fields and fields[name] is not None:
            fields[name] = check(name, fields[name])
    return fields


def _loads(line: bytes) -> Fields:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise LineError(f"must be an object of JSON, got {shown(found)}")
    return found


def _body_of(found: Fields) -> bytes:
    names = [name for name in _BODIES if name in found]
    if len(names) != 1:
        have = " and ".join(names) if names else "neither body nor body_base64"
        raise LineError(f"has {have}: it must have one")
    (name,) = names
    value = found[name]
    if name == "body" and not isinstance(value, str):  # of --body json
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if not isinstance(value, str):
        raise LineError(f"{name} must be a text, got {shown(value)}")
    try:
        if name == "body":
            return value.encode()
        return bytes.fromhex(value) if name == "body_hex" else a2b_base64(value, strict_mode=True)
    except (NotBase64, ValueError) as error:
        raise LineError(f"{name} cannot be decoded: {error}") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise LineError(f"{name} must be a text, got {shown(value)}")
    return value


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise LineError(f"{name} must be an integer, got {shown(value)}")
    if not INT64_MIN <= value <= INT64_MAX:
        raise LineError(f"{name} must be an integer of 64 bits, got {shown(value)}")
    return value


def _number_of(name: str, cell: str) -> int | None:
    try:
        return int(cell) if cell else None
    except ValueError:
        raise LineError(f"{name} must be an integer, got {shown(cell)}") from None


def _time(name: str, value: object) -> int:
    """Return a time in ms, of its text or as it is."""
    if not isinstance(value, str):
        return _number(name, value)
    cycles = 0
    text = value
    if (far := _FAR.fullmatch(value)) is not None:
        cycles, year = divmod(int(far[1]) - 2000, _CYCLE_YEARS)
        text = f"{2000 + year}{far[2]}"
    try:
        moment = datetime.fromisoformat(text)
        return _number(name, (moment - _EPOCH) // _MILLI + cycles * _CYCLE)
    except (ValueError, TypeError, OverflowError):  # the second: without a zone
        raise LineError(f"{name} must be a time with its zone, got {shown(value)}") from None


def _keys(name: str, value: object) -> list[str]:
    found = value.split(" ") if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(key, str) for key in found):
        raise LineError(f"{name} must be a list of texts, got {shown(value)}")
    return found


def _properties(name: str, value: object) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        raise LineError(f"{name} must be an object of texts, got {shown(value)}")
    for one in value.values():
        if not isinstance(one, str):
            raise LineError(f"{name} must be an object of texts, got {shown(one)} in it")
    return list(value.items())


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("uniq_key", "tags", "born_host"), _text),
    **dict.fromkeys(
        ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"),
        _number,
    ),
    **dict.fromkeys(("born_timestamp", "store_timestamp"), _time),
    "keys": _keys,
    "properties": _properties,
}
_NUMBERS = frozenset(name for name, check in _CHECKS.items() if check is _number) | {
    "queue_offset", "physical_offset", "store_size", "body_crc",
}  # fmt: skip
