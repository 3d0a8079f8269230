"""``broker.conf`` shown, and checked against itself and a store; the broker's JSON converted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rmqstore import opening
from rmqstore.base.arguments import one_of
from rmqstore.base.layout import UNIT_BYTES
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.configfile import MAX_BYTES
from rmqstore.config.brokerconf import OTHER_KEYS, Setting, nearest_key, read_entries
from rmqstore.config.fields import broker_effect, parse_value, specs_of
from rmqstore.config.meanings import MEANINGS, meaning_of
from rmqstore.config.reasons import MEANINGLESS, REFUSED
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import LogPathsError
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import absolute
from rmqstore.files.regular import open_regular

__all__ = ["ConfigEntry", "config_convert", "config_lint", "config_show"]

_SPECS = {spec.java: (name, spec) for name, spec in specs_of(StoreConfig).items() if spec.java}
_KNOWN = (*_SPECS, *MEANINGLESS, *REFUSED, *OTHER_KEYS)
_REFUSES = "a 4.9.3 broker does not start: length not matched message store config value"
# Size keys: which files show it, what a broker does that has another one.
_SIZES = {
    "mappedFileSizeCommitLog": (f"{paths.COMMIT_LOG}/*", _REFUSES),
    "mappedFileSizeConsumeQueue": (f"{paths.CONSUME_QUEUE}/*/*/*", _REFUSES),
    "maxHashSlotNum": (f"{paths.INDEX}/*", "a 4.9.3 broker does not find their keys"),
    "maxIndexNum": (f"{paths.INDEX}/*", "a 4.9.3 broker maps them at its own length"),
}
_PATHS = ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths")
_BESIDE = (-2, 1)  # ports, of listenPort: its second server, and replication
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key of a configuration.

    Attributes
    ----------
    key, value : str
        As in the file; where it is not there, the value that is in force.
    line : int or None
        From 1; None for a key that is not in the file.
    problem : str or None
        The reason why it is wrong, and its effect.
    nearest : str or None
        The known key that is nearest to an unknown one.
    meaning : str or None
        Its effect here; None for an unknown key.
    """

    key: str
    value: str
    line: int | None
    problem: str | None = None
    nearest: str | None = None
    meaning: str | None = None


def config_show(
    file: str | os.PathLike[str] | None = None, path: str | os.PathLike[str] | None = None
) -> list[ConfigEntry]:
    """Return the keys of a broker.conf, then the file sizes in force of a store.

    Parameters
    ----------
    file : path of a broker.conf, optional
    path : path-like, optional
        Directory of the store; it may be in use.

    Returns
    -------
    list of ConfigEntry
        In the order of the file, problems included.

    Raises
    ------
    StoreNotFoundError, IncompatibleStoreError, OSError
        The file cannot be read; as for :func:`rmqstore.open`.
    ValueError
        The file is not in the format of Java's properties; the message has path and line.
    """
    found = [] if file is None else config_lint(file, path)
    given = [one for one in found if one.line is not None]
    if path is None:
        return given
    sizes = _sizes_of(path, file)
    shown = [ConfigEntry(key, str(size), None, meaning=MEANINGS[key]) for key, size in sizes]
    return [*given, *shown]


def config_lint(
    file: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> list[ConfigEntry]:
    """Check a broker.conf against 4.9.3's keys, and against the files of a store.

    Parameters
    ----------
    file : path of a broker.conf
    path : path-like, optional
        Directory of the store; it may be in use.

    Returns
    -------
    list of ConfigEntry
        Every key of the file, and those missing that a broker needs; the wrong ones have a
        ``problem``.

    Raises
    ------
    StoreNotFoundError, IncompatibleStoreError, OSError
        The file cannot be read; as for :func:`rmqstore.open`.
    ValueError
        The file is not in the format of Java's properties; the message has path and line.
    """
    entries = read_entries(file)
    last = {one.key: one for one in entries}
    values = _Values(last)
    found = [_checked(one, last[one.key], values) for one in entries]
    if "storePathRootDir" in last and "storePathCommitLog" not in last:
        value = "$HOME/store/commitlog"
        problem = f"not given: a 4.9.3 broker keeps its log in {value}, not below storePathRootDir"
        key = "storePathCommitLog"
        found.append(ConfigEntry(key, value, None, problem, meaning=MEANINGS[key]))
    if path is None:
        return found
    problems = dict(_against_store(path, file, values))
    found = [
        replace(one, problem=problems.pop(one.key))
        if one.problem is None and one.key in problems
        else one
        for one in found
    ]
    given = {one.key for one in found}
    found += [
        ConfigEntry(key, str(_default(key)), None, problem, meaning=MEANINGS[key])
        for key, problem in problems.items()
        if key not in given
    ]
    return found


def config_convert(
    file: str | os.PathLike[str], *, to: Literal["json", "fastjson"] = "json"
) -> str:
    """Convert a JSON file of a broker between its dialect and standard JSON.

    The dialect has bare integers as keys, as in ``{0:247}``; standard JSON has them quoted. Back in
    the dialect they are bare where all keys and values of an object are integers.

    Parameters
    ----------
    file : path-like
        One of ``topics.json``, ``consumerOffset.json`` and their like, in either form.
    to : {"json", "fastjson"}, optional

    Returns
    -------
    str
        Without a newline at the end. Bytes of the file that are not UTF-8 are lone surrogates.

    Raises
    ------
    StoreCorruptError
        It is torn, or no JSON; the error has the byte, the line, and the ``.bak`` if there is one.
    OSError
        It cannot be read.
    ValueError
        ``to`` is neither.

    Notes
    -----
    Source: ``remoting/protocol/RemotingSerializable.java toJson``.
    """
    one_of("to", to, ("json", "fastjson"))
    place = Path(os.fsdecode(file))
    with open_regular(place) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise StoreCorruptError(place, MAX_BYTES, f"more than {MAX_BYTES} bytes")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    try:
        value = fastjson.loads(text)
    except fastjson.JsonError as error:
        backup = place.with_name(place.name + ".bak")
        hint = f"; {backup} has the contents of before" if backup.is_file() else ""
        at = len(text[: error.position].encode("utf-8", "surrogateescape"))
        raise StoreCorruptError(place, at, f"{error}{hint}") from None
    if to == "fastjson":
        return fastjson.dumps(_bare(value))
    return json.dumps(value, indent=2, ensure_ascii=False)


def _bare(value: Any) -> Any:
    """Return a value with bare keys where fastjson writes a map of integers."""
    if isinstance(value, list):
        return [_bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = all(type(one) is int for one in value.values())
    if value and plain and all(_NUMBER.fullmatch(str(key)) for key in value):
        return {int(key): one for key, one in value.items()}
    return {str(key): _bare(one) for key, one in value.items()}


class _Values:
    """The valid values of a file, by Java's keys."""

    def __init__(self, last: dict[str, Setting]) -> None:
        self.errors: dict[str, str] = {}
        self.given: dict[str, Any] = {}
        for key, one in last.items():
            if key not in _SPECS:
                continue
            name, spec = _SPECS[key]
            default = getattr(StoreConfig, name, None)
            try:
                self.given[key] = parse_value(key, one.value.strip(), spec, default)
            except ValueError as error:
                effect = broker_effect(spec, one.value.strip())
                effect = effect and f": a 4.9.3 broker {effect}"
                self.errors[key] = str(error).removeprefix(f"{key} is ") + effect

    def __getitem__(self, key: str) -> Any:
        """Return a value, or its default."""
        return self.given.get(key, _default(key))


def _default(key: str) -> Any:
    return getattr(StoreConfig, _SPECS[key][0], None)


def _checked(one: Setting, last: Setting, values: _Values) -> ConfigEntry:
    """Return an entry of the file with what is wrong about it."""
    meaning = meaning_of(one.key)
    problem = near = None
    if meaning is None:
        near = nearest_key(one.key, _KNOWN)
        problem = "no key of a 4.9.3 broker, which ignores it"
    elif last.line != one.line:
        problem = f"given again in line {last.line}, which wins"
    elif one.key in _SPECS:
        problem = values.errors.get(one.key) or _problem_of(one, values)
    elif one.key == "listenPort":
        problem = _port(one.value.strip())
    elif one.key in REFUSED and one.value.strip().lower() == "true":
        problem = f"refused here: {REFUSED[one.key][1]}"
    return ConfigEntry(one.key, one.value, one.line, problem, near, meaning)


def _port(value: str) -> str | None:
    """Return the fault of a listenPort; a broker binds the ports of _BESIDE, too."""
    if not _INTEGER.fullmatch(value):
        return f"{value!r}, must be a whole number: a 4.9.3 broker ignores it without a word"
    low, high = 1 - min(_BESIDE), 65535 - max(_BESIDE)
    if not low <= int(value) <= high:
        return (
            f"{value}, must be {low} to {high}: a 4.9.3 broker also listens at the port two below, "
            "and at the one above"
        )
    return None


def _problem_of(one: Setting, values: _Values) -> str | None:
    """Return what is wrong about a valid value, alone or beside the others."""
    if one.value != one.value.strip() and _SPECS[one.key][1].kind is not str:
        return "a space behind the value: a 4.9.3 broker ignores it"
    check = _SENSE.get(one.key)
    if check is not None:
        return check(values)
    if one.key in _PATHS:
        missing = [name for name in _directories(one.value) if not Path(name).is_dir()]
        if missing:
            return f"no directory here: {', '.join(missing)}"
    return None


def _directories(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


def _thorough(often: str, whole: str) -> Callable[[_Values], str | None]:
    def check(values: _Values) -> str | None:
        if values[whole] < values[often]:
            return f"{values[whole]} ms is less than {often}, {values[often]} ms: no effect"
        return None

    return check


def _reserved(values: _Values) -> str | None:
    if values["fileReservedTime"] == 0:
        return "0 hours: every log file but the last goes at deleteWhen"
    return None


def _message_size(values: _Values) -> str | None:
    size, file = values["maxMessageSize"], values["mappedFileSizeCommitLog"]
    if size > file - 8:
        return f"more than fits a log file, mappedFileSizeCommitLog {int(file)}: a put is refused"
    return None


def _whole_units(values: _Values) -> str | None:
    size = values["mappedFileSizeConsumeQueue"]
    more = -size % UNIT_BYTES
    if more:
        return f"no multiple of {UNIT_BYTES}: a 4.9.3 broker takes {size + more}"
    return None


_SENSE: dict[str, Callable[[_Values], str | None]] = {
    "fileReservedTime": _reserved,
    "mappedFileSizeConsumeQueue": _whole_units,
    "maxMessageSize": _message_size,
    "flushCommitLogThoroughInterval": _thorough(
        "flushIntervalCommitLog", "flushCommitLogThoroughInterval"
    ),
    "flushConsumeQueueThoroughInterval": _thorough(
        "flushIntervalConsumeQueue", "flushConsumeQueueThoroughInterval"
    ),
}


def _sizes_of(
    path: str | os.PathLike[str], file: str | os.PathLike[str] | None
) -> list[tuple[str, int]]:
    """Return the file sizes of a store; of its log, where the broker.conf says that it is."""
    config = StoreConfig()
    if file is not None:
        last = {one.key: one.value.strip() for one in read_entries(file)}
        fields = {_SPECS[key][0]: last[key] for key in _PATHS if last.get(key)}
        present = all(Path(one).is_dir() for value in fields.values() for one in value.split(","))
        config = StoreConfig(**fields) if present else config  # type: ignore[arg-type]
    root = absolute(path)
    try:
        found = opening.config_in_force(root, config)
    except LogPathsError:  # of another store, which is a problem of its own
        found = opening.config_in_force(root, None)
    return [(key, int(getattr(found, _SPECS[key][0]))) for key in _SIZES]


def _against_store(
    path: str | os.PathLike[str], file: str | os.PathLike[str], values: _Values
) -> Iterator[tuple[str, str]]:
    """Yield keys that the files of a store contradict, with the effect."""
    root = Path(os.fsdecode(path))
    for key, size in _sizes_of(path, file):
        pattern, effect = _SIZES[key]
        elsewhere = key == "mappedFileSizeCommitLog" and "storePathCommitLog" in values.given
        shown = elsewhere or next(root.glob(pattern), None) is not None
        if shown and key not in values.errors and values[key] != size:
            here = "" if key in values.given else f"not given, which means {int(values[key])}: "
            yield key, f"{here}the files have {size}: {effect}"
    named = values.given.get("storePathRootDir")
    if named and Path(named).is_dir() and Path(named).resolve() != root.resolve():
        yield "storePathRootDir", f"another store than {root}"
