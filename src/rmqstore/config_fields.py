"""What a field of the configuration may be: Java name, range, and whether this version acts on it.

Source: ``store/config/MessageStoreConfig.java``, ``common/MixAll.java`` ``properties2Object``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "UNIT_BYTES",
    "Spec",
    "boolean",
    "check_value",
    "choice",
    "integer",
    "parse_value",
    "specs_of",
    "text",
]

INT_MAX = 0x7FFFFFFF
LONG_MAX = 0x7FFFFFFFFFFFFFFF
UNIT_BYTES = 20  # of a consume queue

_KEY = "rmqstore"
_HOST = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


@dataclass(frozen=True, slots=True)
class Spec:
    """What is known of one field.

    Attributes
    ----------
    java : str
        Key in ``broker.conf``: what follows ``set`` in the Java setter, first letter small.
    kind : type
        ``int``, ``bool`` or ``str``.
    low, high : int
        Range of an integer, both ends included.
    choices : tuple of str
        All values of a text field that has few, else empty.
    form : str
        Regular expression that a text must match entirely, else empty.
    form_name : str
        The form in words, for the error.
    optional : bool
        ``None`` is a value.
    acts : bool
        This version does what the field says.
    """

    java: str
    kind: type
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    form: str = ""
    form_name: str = ""
    optional: bool = False
    acts: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"{self.low} to {self.high}"
        if self.choices:
            return " or ".join(self.choices)
        return self.form_name or "text"


def integer(java: str, default: int, low: int, high: int = INT_MAX, *, acts: bool = False) -> Any:
    """Return a dataclass field for a whole number between ``low`` and ``high``."""
    return _field(default, Spec(java, int, low=low, high=high, acts=acts))


def boolean(java: str, default: bool, *, acts: bool = False) -> Any:
    """Return a dataclass field for a switch."""
    return _field(default, Spec(java, bool, acts=acts))


def choice(java: str, *choices: str, acts: bool = False) -> Any:
    """Return a dataclass field for one of ``choices``, the first of which is the default."""
    return _field(choices[0], Spec(java, str, choices=choices, acts=acts))


def text(
    java: str,
    default: str | None,
    form: str = "",
    form_name: str = "",
    *,
    acts: bool = False,
) -> Any:
    """Return a dataclass field for a text; ``None`` is a value where it is the default."""
    spec = Spec(java, str, form=form, form_name=form_name, optional=default is None, acts=acts)
    return _field(default, spec)


def _field(default: object, spec: Spec) -> Any:
    """Return the dataclass field that carries ``spec`` as its metadata."""
    return dataclasses.field(default=default, metadata={_KEY: spec})


def specs_of(cls: type) -> Mapping[str, Spec]:
    """Return field name to :class:`Spec` for a dataclass made of the fields above, in order."""
    return {one.name: one.metadata[_KEY] for one in dataclasses.fields(cls)}


def check_value(name: str, value: object, spec: Spec) -> None:
    """Raise unless ``value`` is one that the field may have.

    Raises
    ------
    TypeError
        It is of another type.
    ValueError
        It is out of range; the message names field, value and range.
    """
    if value is None and spec.optional:
        return
    if type(value) is not spec.kind:
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
    """Tell whether ``value`` breaks its form, or holds what no path or name may hold."""
    if form == "host":
        return not is_host(value)
    return "\0" in value or (bool(form) and re.fullmatch(form, value) is None)


def is_host(value: str) -> bool:
    """Tell whether ``value`` is ``ip:port`` or ``[v6]:port`` with a valid address and port."""
    if _HOST.fullmatch(value) is None:
        return False
    import ipaddress

    address, _, port = value.rpartition(":")
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    return int(port) <= 0xFFFF


def parse_value(name: str, written: str, spec: Spec) -> int | bool | str:
    """Return the value that ``written`` means in a properties file.

    Raises
    ------
    ValueError
        It is no number, no switch, or out of range.
    """
    value: int | bool | str = written
    if spec.kind is int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", written) is None:
            raise ValueError(f"{name} is {written!r}, must be a whole number, {spec.allowed}")
        value = int(written)
    elif spec.kind is bool:
        if written.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {written!r}, must be true or false")
        value = written.lower() == "true"
    check_value(name, value, spec)
    return value
