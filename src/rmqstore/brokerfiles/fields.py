"""Fields of the broker's JSON files, checked when taken.

Source: ``common/DataVersion.java``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT32_MAX, INT64_MAX

__all__ = [
    "DataVersion",
    "file_object",
    "object_of",
    "take_bool",
    "take_int",
    "take_str",
    "take_version",
]


@dataclass(slots=True)
class DataVersion:
    """Number and time of a table's changes."""

    counter: int = 0
    timestamp: int = 0  # ms; of the last change
    other: dict[str, Any] = field(default_factory=dict)  # of newer releases, written back

    def next(self) -> None:
        """Count a change made now."""
        self.counter += 1
        self.timestamp = time.time_ns() // 1_000_000

    def to_json(self) -> dict[str, Any]:
        """Return the JSON to write."""
        return {**self.other, "counter": self.counter, "timestamp": self.timestamp}


def file_object(data: Any) -> dict[str, Any]:
    """Return a copy of a parsed file's object."""
    if not isinstance(data, dict):
        raise ValueError(f"the file holds {type(data).__name__}, must be an object")
    return dict(data)


def object_of(where: str, value: Any) -> dict[Any, Any]:
    """Return a copy of an object in a parsed file."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {type(value).__name__}, must be an object")
    return dict(value)


def take_version(rest: dict[str, Any]) -> DataVersion:
    """Remove and return the version of a parsed file."""
    written = rest.pop("dataVersion", None) or {}
    if not isinstance(written, dict):
        raise ValueError("dataVersion must be an object")
    fields = dict(written)
    return DataVersion(
        counter=take_int(fields, "dataVersion", "counter", 0, most=INT64_MAX),
        timestamp=take_int(fields, "dataVersion", "timestamp", 0, most=INT64_MAX),
        other=fields,
    )


def take_int(
    entry: dict[str, Any],
    where: str,
    name: str,
    default: int,
    *,
    least: int | None = 0,
    most: int = INT32_MAX,
) -> int:
    """Remove and return a number of ``least`` to ``most``; without ``least``, any Java int."""
    value = entry.pop(name, None)
    if value is None:
        return default
    low = -most - 1 if least is None else least
    if type(value) is not int or not low <= value <= most:
        raise ValueError(f"{name} of {shown(where)} is {shown(value)}, must be {low} to {most}")
    return value


def take_str(entry: dict[str, Any], where: str, name: str, default: str) -> str:
    """Remove and return a text of ``entry``."""
    value = entry.pop(name, None)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"{name} of {shown(where)} is {shown(value)}, must be text")
    return value


def take_bool(entry: dict[str, Any], where: str, name: str, default: bool) -> bool:
    """Remove and return a boolean of ``entry``."""
    value = entry.pop(name, None)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"{name} of {shown(where)} is {shown(value)}, must be true or false")
    return value
