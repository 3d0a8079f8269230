"""Ext fields of a request, as typed values.

Source: ``remoting/protocol/RemotingCommand.java decodeCommandCustomHeader``.
"""

from __future__ import annotations

from rmqstore.arguments import shown
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal, Request

__all__ = ["INT_MAX", "LONG_MAX", "number", "optional_number", "text", "truth"]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_MAX_DIGITS = 19
_FEW_DIGITS = 19  # never beyond 64 bits
_MAX_TEXT = 1024


def text(request: Request, name: str, most: int = _MAX_TEXT) -> str:
    """Return a required text, of so many characters at most."""
    value = request.fields.get(name)
    if value is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    if len(value) > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the custom field <{name}> must be at most {most} characters, got {len(value)}",
        )
    return value


def number(request: Request, name: str, *, least: int = -INT_MAX - 1, most: int = INT_MAX) -> int:
    """Return a required integer."""
    found = optional_number(request, name, least=least, most=most)
    if found is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return found


def optional_number(
    request: Request, name: str, *, least: int = -INT_MAX - 1, most: int = INT_MAX
) -> int | None:
    """Return an integer, ``None`` without one."""
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
    """Return a boolean; false without one. C++ sends ``1`` for true."""
    return request.fields.get(name, "").lower() in ("true", "1")
