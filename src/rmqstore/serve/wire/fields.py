"""The ext fields of a request as values, and bodies as JSON.

Source: ``remoting/protocol/RemotingCommand.java decodeCommandCustomHeader``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT32_MAX
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal, Request
from rmqstore.serve.wire.jsontext import loads, most_values

__all__ = ["SHORT_BODY", "check_body", "json_body", "json_body_in_steps",
           "number", "optional_number", "refused", "text", "truth"]  # fmt: skip

_MAX_DIGITS = 19
_FEW_DIGITS = 19  # fewer never exceed 64 bits
_MOST_TEXT = 1024
# Of a parsed body: a thousand consumer groups with a topic each and a thousand producer groups, or
# 5,000 queues, all with the longest names, take less. Parsed in one go, within milliseconds.
_MOST_BODY = 1 << 20
SHORT_BODY = 16 << 10  # parsed at once, and kept parsed until answered
_MOST_VALUES = 1 << 16


def refused(what: str, value: object) -> Refusal:
    """Return the refusal of a value."""
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{what}, got {shown(value)}")


def check_body(request: Request, most: int = _MOST_BODY, values: int = _MOST_VALUES) -> None:
    """Refuse a body with too many bytes, or too many values as JSON."""
    if len(request.body) > most:
        raise refused(f"the body must be at most {most} bytes", len(request.body))
    request.parsed_values = most_values(request.body)
    if request.parsed_values > values:
        raise refused(f"the body is no JSON of at most {values} values", request.parsed_values)


def json_body(request: Request) -> Any:
    """Return a body's parsed JSON; further calls return the same object."""
    if request.parsed is None:
        check_body(request)
        try:
            request.parsed = loads(request.body)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
    return request.parsed


def json_body_in_steps(request: Request) -> Generator[None, None, Any]:
    """Return a body's JSON; a long one is parsed in the second step, after others' turns."""
    if len(request.body) > SHORT_BODY:
        check_body(request)
        yield
    return json_body(request)


def text(request: Request, name: str, most: int = _MOST_TEXT) -> str:
    """Return a required text of at most ``most`` characters."""
    value = request.fields.get(name)
    if value is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    if len(value) > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the custom field <{name}> must be at most {most} characters, got {len(value)}",
        )
    return value


def number(
    request: Request, name: str, *, least: int = -INT32_MAX - 1, most: int = INT32_MAX
) -> int:
    """Return a required integer."""
    found = optional_number(request, name, least=least, most=most)
    if found is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return found


def optional_number(
    request: Request, name: str, *, least: int = -INT32_MAX - 1, most: int = INT32_MAX
) -> int | None:
    """Return an integer, ``None`` if the field is missing."""
    value = request.fields.get(name)
    if value is None:
        return None
    if len(value) < _FEW_DIGITS and value.isdecimal() and value.isascii():
        found = int(value)
        if least <= found <= most:
            return found
    digits = value[1:] if value[:1] in ("+", "-") else value
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        found = int(value)
        if least <= found <= most:
            return found
    raise Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"the custom field <{name}> must be {least} to {most}, got {shown(value)}",
    )


def truth(request: Request, name: str) -> bool:
    """Return a boolean, false if the field is missing. C++ sends ``1`` for true."""
    return request.fields.get(name, "").lower() in ("true", "1")
