"""Options of ``spark.read`` and ``df.write``, checked before any task starts.

Spark passes them as text, with names in lower case.

Aliases are names of Spark's Kafka source with the same meaning.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from rmqstore.base.arguments import wrong_type
from rmqstore.base.layout import INT64_MAX
from rmqstore.base.times import to_millis
from rmqstore.files.links import absolute
from rmqstore.spark.common.option_names import KNOWN_OPTIONS

__all__ = ["OptionError", "Options", "absolute_path", "millis_of"]

# Spark's own options, passed to every source and sink.
_FRAMEWORK = ("path", "paths", "checkpointLocation", "queryName", "outputMode", "mergeSchema")
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS |= {name: _SECONDS[name[:1]] for name in ("second", "minute", "hour", "day")}
_SECONDS |= {f"{name}s": _SECONDS[name] for name in ("second", "minute", "hour", "day")}
_NO_OPTIONS = (
    "; Spark does not pass the options of a table to a Python source: use CREATE TEMPORARY VIEW "
    "... USING rmqstore OPTIONS (path '...'), and df.write to write"
)
_FLAGS = {"true": True, "false": False}


def _unknown(key: str, names: Iterable[str], what: str) -> str:
    """Return the error text for an unknown option."""
    lowered = key.lower()
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(lowered, spelled, 1)
    hint = f"; nearest is {spelled[near[0]]!r}" if near else ""
    for taker, theirs in KNOWN_OPTIONS.items():
        for name in theirs:
            if name.lower() == lowered:
                return f"{what} has no option {name!r}{hint}; {taker} has it"
    return f"{what} has no option {key!r}{hint}"


class OptionError(ValueError):
    """An option is unknown, out of range, or contradicts another; the message names it."""


class Options:
    """Given options, with names in lower case, read one by one.

    Raises ``OptionError`` if one is unknown, or given under two names; ``what`` names the reader or
    writer in errors: ``"the batch source"``.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        names: Iterable[str],
        aliases: Mapping[str, str] | None = None,
        *,
        what: str,
    ) -> None:
        known = {name.lower(): name for name in (*_FRAMEWORK, *names)}
        known |= {alias.lower(): name for alias, name in (aliases or {}).items()}
        self._values: dict[str, str] = {}
        for key, value in given.items():
            lowered = key.lower()
            if lowered not in known:
                raise OptionError(_unknown(key, (*names, *(aliases or {})), what))
            name = known[lowered]
            if self._values.get(name, value) != value:
                raise OptionError(f"option {name!r} is given twice, under two names")
            self._values[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return an option unchanged; None if not given."""
        return self._values.get(name)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return comma-separated values, or a JSON list; None if not given."""
        value = self._values.get(name)
        if value is None:
            return None
        if value.lstrip().startswith("["):
            found = self.json(name)
            if not all(isinstance(text, str) for text in found):
                raise self.error(name, "a JSON list of texts")
        else:
            found = [text.strip() for text in value.split(",")]
        texts = tuple(dict.fromkeys(filter(None, found)))
        if not texts:
            raise self.error(name, "at least one value")
        return texts

    def integer(self, name: str, *, low: int = 1, high: int = INT64_MAX) -> int | None:
        """Return an integer within its bounds; None if not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise self.error(name, f"a number from {low} to {high}") from None
        if not low <= number <= high:
            raise self.error(name, f"{low} to {high}")
        return number

    def size(self, name: str, default: int, *, low: int = 1, high: int = 1 << 50) -> int:
        """Return a size in bytes: ``134217728``, ``128m``, ``128 MiB``."""
        value = self._values.get(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(value)
        if match is None:
            raise self.error(name, "bytes, or a size such as 128m")
        size = int(match[1]) << _SHIFTS[match[2].lower()]
        if not low <= size <= high:
            raise self.error(name, f"{low} to {high} bytes")
        return size

    def seconds(self, name: str, default: float) -> float:
        """Return a duration in seconds: ``15m``, ``500ms``, ``2 minutes``."""
        value = self._values.get(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value)
        if match is None or match[2].lower() not in _SECONDS:
            raise self.error(name, "a span of time such as 15m or 500ms")
        return float(match[1]) * _SECONDS[match[2].lower()]

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean, from ``true`` or ``false``."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.strip().lower() not in _FLAGS:
            raise self.error(name, "true or false")
        return _FLAGS[value.strip().lower()]

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """Return one of a few words, as spelled in ``allowed``."""
        value = self._values.get(name, default)
        for word in allowed:
            if word.lower() == value.strip().lower():
                return word
        raise self.error(name, f"one of {', '.join(allowed)}")

    def json(self, name: str) -> Any:
        """Return a parsed JSON value; None if not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"option {name!r} is {value!r}, which is not JSON: {error}") from None

    def millis(self, name: str) -> int | None:
        """Return a time in ms since the epoch, from ms or ISO-8601 with a zone."""
        value = self._values.get(name)
        return None if value is None else millis_of(name, value)

    def paths(self) -> tuple[str, ...]:
        """Return the paths of ``load``, absolute, with globs; ``OptionError`` if none or remote."""
        if "paths" in self._values:
            found = self.json("paths")
            if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
                raise self.error("paths", "a JSON list of paths")
        else:
            found = [self._values["path"]] if "path" in self._values else []
        if not found or not all(found):
            hint = "" if set(self._values) - set(_FRAMEWORK) else _NO_OPTIONS
            raise OptionError(
                f"option 'path' is missing: load() takes the directory of a store{hint}"
            )
        return tuple(absolute_path("option 'path'", path) for path in found)

    def together(self, *names: str) -> None:
        """Refuse more than one of these options."""
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            raise OptionError(f"options {given[0]!r} and {given[1]!r} contradict each other")

    def error(self, name: str, allowed: str) -> OptionError:
        """Return the error of an option with an invalid value."""
        return OptionError(f"option {name!r} must be {allowed}, got {self._values.get(name)!r}")


def millis_of(name: str, value: object) -> int:
    """Return an option's time in ms since the epoch."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value, re.ASCII):
        value = int(value)
    try:
        return to_millis(value, name=f"option {name!r}")  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(str(error)) from None


def absolute_path(argument: str, path: str | os.PathLike[str]) -> str:
    """Return an absolute path for a local directory or ``file:`` URL; links are not followed.

    ``argument`` names it in errors: ``"src"``, ``"option 'path'"``. Raises ``TypeError`` or
    ``OptionError`` if it is no path, or on another file system.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise wrong_type(argument, "str or os.PathLike", path)
    text = os.fsdecode(path)
    bare = text.strip()
    if bare != text and not os.path.lexists(text):
        side = "before" if text[:1].isspace() else "behind"
        raise OptionError(f"{argument} is {text!r}: there is a blank {side} the path")
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        text = unquote(parts.path)
    elif len(parts.scheme) > 1:
        raise OptionError(f"{argument} must be a local directory, got {text!r}")
    return absolute(text)
