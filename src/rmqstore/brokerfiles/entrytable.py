"""Files of named entries with a version: ``topics.json`` and ``subscriptionGroup.json``.

Source: ``common/ConfigManager.java``, ``broker/topic/TopicConfigManager.java``,
``broker/subscription/SubscriptionGroupManager.java``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from rmqstore._core import CallLock
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.fields import DataVersion, file_object, take_version
from rmqstore.files.paths import CONFIG

__all__ = ["EntryTable"]

_DEPTH = 2  # tabs before an entry


class _Entry(Protocol):
    @classmethod
    def from_json(cls, name: str, entry: Any) -> Self:
        """Return the entry of its JSON; ``ValueError`` if it is invalid."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the broker writes it."""

    @property
    def name(self) -> str:
        """Key of the entry."""


_EntryT = TypeVar("_EntryT", bound=_Entry)


class _Row(Generic[_EntryT]):
    """An entry and, from the first save on, its text in the file: replaced as a whole.

    A signal handler may raise between any two statements of a change.
    """

    __slots__ = ("entry", "text")

    def __init__(self, entry: _EntryT) -> None:
        self.entry = entry
        self.text = ""


class EntryTable(Generic[_EntryT]):
    """All entries of a store's file under ``config``, and the file."""

    _FILE: ClassVar[str]  # name of the file
    _TABLE: ClassVar[str]  # field with the entries
    _ENTRY: ClassVar[type[Any]]

    version: DataVersion

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / self._FILE)
        self.version = DataVersion()  # increased by one with each change
        self._rows: dict[str, _Row[_EntryT]] = {}
        self._other: dict[str, Any] = {}
        self._saving = CallLock()
        self._changing = CallLock()

    @classmethod
    def load(cls, root: str | os.PathLike[str]) -> Self:
        """Read the table of a store, empty without a file; ``StoreCorruptError`` if torn."""
        table = cls(root)
        table.reload()
        return table

    def reload(self) -> None:
        """Reread the file, as :meth:`load`; on an error nothing changes."""
        loaded = self.file.load(self._decode)
        version, entries, other = loaded if loaded is not None else (DataVersion(), {}, {})
        self.version = version
        self._rows = {name: _Row(entry) for name, entry in entries.items()}
        self._other = other

    def save(self) -> None:
        """Write the file, one thread at a time; entries added meanwhile are in the next write."""
        with self._saving:
            self.file.save(self.json_of(fastjson.Written(self._text(), _DEPTH - 1)))

    def _text(self) -> list[str]:
        """Return the text of each entry; texts of earlier saves are reused."""
        with self._changing:
            rows = list(self._rows.items())
        for name, row in rows:
            if not row.text:
                row.text = fastjson.member(name, row.entry.to_json(), _DEPTH)
        return [row.text for _, row in rows]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON to write."""
        return self.json_of({name: row.entry.to_json() for name, row in list(self._rows.items())})

    def json_of(self, table: object) -> dict[str, Any]:
        """Return the JSON to write around a table in any form."""
        return {"dataVersion": self.version.to_json(), self._TABLE: table, **self._other}

    def put(self, entry: _EntryT) -> None:
        """Add or replace an entry; the file is not written yet."""
        row = _Row(entry)
        row.text = fastjson.member(entry.name, entry.to_json(), _DEPTH)  # raises before any change
        with self._changing:
            self.version.next()
            self._rows[entry.name] = row

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether it existed; the file is not written yet."""
        with self._changing:
            if name not in self._rows:
                return False
            self.version.next()
            del self._rows[name]
        return True

    def get(self, name: str) -> _EntryT | None:
        """Return an entry by name, ``None`` if there is none."""
        row = self._rows.get(name)
        return None if row is None else row.entry

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[_EntryT]:
        """Iterate over a snapshot of the entries."""
        return iter([row.entry for row in list(self._rows.values())])

    def __len__(self) -> int:
        return len(self._rows)

    def _decode(self, data: Any) -> tuple[DataVersion, dict[str, _EntryT], dict[str, Any]]:
        """Return version, entries and the rest of a parsed file."""
        rest = file_object(data)
        table = rest.pop(self._TABLE, None) or {}
        if not isinstance(table, dict):
            raise ValueError(f"{self._TABLE} must be an object")
        version = take_version(rest)
        made = self._ENTRY.from_json
        return version, {str(name): made(str(name), one) for name, one in table.items()}, rest
