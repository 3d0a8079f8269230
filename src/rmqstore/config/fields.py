"""Specification of a configuration field: Java name, range, unit.

Source: ``store/config/MessageStoreConfig.java``, ``common/MixAll.java`` ``properties2Object``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import FunctionType
from typing import Any, NamedTuple

from rmqstore.base.layout import INT32_MAX, INT64_MAX

__all__ = [
    "DefaultSize",
    "Described",
    "Spec",
    "boolean",
    "broker_effect",
    "check_value",
    "choice",
    "file_size",
    "function",
    "integer",
    "parse_value",
    "specs_of",
    "text",
]


_KEY = "rmqstore"
_LINE_WIDTH = 76  # of a field's description: help() adds four
_INDENT = "    "
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_HOST = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


class DefaultSize(int):
    """An unset file size: 4.9.3's default, superseded by the size of a store's files.

    Equal to the same number, but a configuration with it differs from one with that number.
    """

    __slots__ = ()

    __str__ = int.__repr__

    def __repr__(self) -> str:
        """Return a text that differs from the number's."""
        return f"DefaultSize({int(self)})"


class Spec(NamedTuple):
    """Specification of a field."""

    java: str  # key in ``broker.conf``: the setter's name without ``set``; empty if none
    kind: type  # ``int``, ``bool``, ``str`` or a function's
    low: int = 0  # least integer; ``high`` is the greatest
    high: int = 0
    choices: tuple[str, ...] = ()  # all values, if there are few
    form: str = ""  # regular expression for the whole text
    form_name: str = ""  # the form in words, for errors
    optional: bool = False  # ``None`` is allowed
    unit: str = ""  # of a number
    ours: bool = False  # RocketMQ's store has no such field

    @property
    def allowed(self) -> str:
        """Allowed values in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"{self.low} to {self.high}"
        if self.choices:
            return " or ".join(self.choices)
        return self.form_name or "text"


def broker_effect(spec: Spec, value: str) -> str:
    """Return what a broker makes of a value that its setter cannot take; empty if it takes it."""
    if spec.kind is bool:
        return "takes it as false"
    if spec.choices or (spec.kind is int and not _INTEGER.fullmatch(value)):
        return "ignores it without a word"
    return ""


def integer(java: str, default: int | None, low: int, high: int = INT32_MAX, **more: Any) -> Any:
    """Return a dataclass field for an integer of ``low`` to ``high``.

    ``None`` is allowed if it is the default.
    """
    more.setdefault("optional", default is None)
    return _field(default, Spec(java, int, low=low, high=high, **more))


def file_size(java: str, default: int, low: int, high: int = INT32_MAX, *, unit: str) -> Any:
    """Return a dataclass field for a file size; the default gives way to a store's files."""
    return _field(DefaultSize(default), Spec(java, int, low=low, high=high, unit=unit))


def boolean(java: str, default: bool, **more: Any) -> Any:
    """Return a dataclass field for a switch."""
    return _field(default, Spec(java, bool, **more))


def choice(java: str, *choices: str, **more: Any) -> Any:
    """Return a dataclass field for one of ``choices``; the first is the default."""
    return _field(choices[0], Spec(java, str, choices=choices, **more))


def function(form_name: str) -> Any:
    """Return a dataclass field for a function of the program, by default ``None``."""
    spec = Spec("", FunctionType, form_name=form_name, optional=True, ours=True)
    return _field(None, spec)


def text(java: str, default: str | None, form: str = "", form_name: str = "", **more: Any) -> Any:
    """Return a dataclass field for a text; ``None`` is allowed if it is the default."""
    spec = Spec(java, str, form=form, form_name=form_name, optional=default is None, **more)
    return _field(default, spec)


def _field(default: object, spec: Spec) -> Any:
    return dataclasses.field(default=default, metadata={_KEY: spec})


def specs_of(cls: type) -> Mapping[str, Spec]:
    """Return field name to :class:`Spec` of a dataclass with these fields, in order."""
    return {one.name: one.metadata[_KEY] for one in dataclasses.fields(cls)}


class Described:
    """Docstring of a dataclass with these fields: once read, ``{fields}`` lists them."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, cls: type) -> str:
        """Return the docstring as text."""
        lines = [
            line
            for one in dataclasses.fields(cls)
            for line in _described(one.name, one.default, one.metadata[_KEY])
        ]
        return re.sub(  # Python 3.13 and newer remove the indentation of docstrings
            r"^( *)\{fields\}",
            lambda found: "\n".join(found[1] + line for line in lines),
            self._text,
            flags=re.MULTILINE,
        )


def _described(name: str, default: object, spec: Spec) -> list[str]:
    """Return a field's lines of the docstring: its values, then RocketMQ's name."""
    import textwrap

    kind = spec.kind.__name__ + (" or None" if spec.optional else "")
    about = f"{spec.java or 'no key'}, not of RocketMQ's store" if spec.ours else spec.java
    values = repr(default)
    if spec.kind is int:
        high = {INT32_MAX: "2**31 - 1", INT64_MAX: "2**63 - 1"}.get(spec.high, f"{spec.high:_}")
        if default is None:
            values = f"None, or {spec.low:_} to {high} {spec.unit}".rstrip()
        else:
            values = f"{default:_} {spec.unit}".rstrip() + f", {spec.low:_} to {high}"
    elif spec.choices:
        values += f", {spec.allowed}"
    elif spec.form_name:
        about += f": {spec.form_name}"
    head = f"{name} : {kind}, {values}"
    if len(head) > _LINE_WIDTH:
        head, about = f"{name} : {kind}", f"{about}; {values}"
    below = textwrap.wrap(about, _LINE_WIDTH - len(_INDENT), break_on_hyphens=False)
    return [head, *(_INDENT + line for line in below)]


def check_value(name: str, value: object, spec: Spec, default: object = None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is valid for the field."""
    if value is None and spec.optional:
        return
    if spec.kind is FunctionType and callable(value):
        return
    if type(value) is not spec.kind and not (
        isinstance(value, DefaultSize) and isinstance(default, DefaultSize)
    ):
        raise TypeError(
            f"{name} is {value!r} ({type(value).__name__}), must be {spec.kind.__name__}: "
            f"{spec.allowed}"
        )
    if isinstance(value, str):
        good = value in spec.choices if spec.choices else not _form_fails(value, spec.form)
    elif spec.kind is int and isinstance(value, int):
        good = spec.low <= value <= spec.high
    else:
        good = True
    if not good:
        raise ValueError(f"{name} is {value!r}, must be {spec.allowed}")


def _form_fails(value: str, form: str) -> bool:
    """Whether ``value`` breaks its form, or has characters that no path or name can have."""
    if form == "host":
        return not is_host(value)
    return "\0" in value or (bool(form) and re.fullmatch(form, value) is None)


def is_host(value: str) -> bool:
    """Whether ``value`` is ``ip:port`` or ``[v6]:port`` with a valid address and port."""
    if _HOST.fullmatch(value) is None:
        return False
    import ipaddress

    address, _, port = value.rpartition(":")
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    return int(port) <= 0xFFFF


def parse_value(name: str, written: str, spec: Spec, default: object = None) -> int | bool | str:
    """Parse a value of a properties file; ``ValueError`` if it is invalid."""
    value: int | bool | str = written
    if spec.kind is int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", written) is None:
            raise ValueError(f"{name} is {written!r}, must be a whole number, {spec.allowed}")
        value = int(written)
    elif spec.kind is bool:
        if written.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {written!r}, must be true or false")
        value = written.lower() == "true"
    check_value(name, value, spec, default)
    return value
