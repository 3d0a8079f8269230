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
from rmqstore.brokerfiles.fields import DataVersion, take_version
from rmqstore.paths import CONFIG

__all__ = ["EntryTable"]

_DEPTH = 2  # tabs before an entry


class _Entry(Protocol):
    """Entry of a table."""

    @classmethod
    def from_json(cls, name: str, entry: Any) -> Self:
        """Return the entry of its JSON; ``ValueError`` if it is invalid."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the broker writes it."""

    @property
    def name(self) -> str:
        """Key of the entry."""


_EntryT = TypeVar("_EntryT", bound=_Entry)


class EntryTable(Generic[_EntryT]):
    """All entries of a store's file under ``config``, and the file.

    Attributes
    ----------
    version : DataVersion
        Increased by one with each change.
    """

    _FILE: ClassVar[str]  # its name
    _TABLE: ClassVar[str]  # the field that holds the entries
    _ENTRY: ClassVar[type[Any]]

    version: DataVersion

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / self._FILE)
        self.version = DataVersion()
        self._entries: dict[str, _EntryT] = {}
        # The entries' text in the file, in their order: a save of thousands joins it.
        self._texts: dict[str, str] = {}
        self._textless: set[str] = set()  # read from the file, and not written yet
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
        """Read the file again, as :meth:`load` does; on an error nothing changes."""
        loaded = self.file.load(self._decode)
        version, entries, other = loaded if loaded is not None else (DataVersion(), {}, {})
        self.version = version
        self._entries = entries
        self._texts = dict.fromkeys(entries, "")
        self._textless = set(entries)
        self._other = other

    def save(self) -> None:
        """Write the file; creates the ``config`` directory if it is missing.

        One thread at a time writes; entries may come meanwhile, and are in the next one.
        """
        with self._saving:
            self.file.path.parent.mkdir(exist_ok=True)
            self.file.save(self.json_of(fastjson.Written(self._text(), _DEPTH - 1)))

    def _text(self) -> list[str]:
        """Return the text of each entry."""
        for name in list(self._textless):
            entry = self._entries.get(name)
            text = fastjson.member(name, entry.to_json(), _DEPTH) if entry is not None else ""
            with self._changing:
                if name in self._textless:  # unchanged
                    self._textless.remove(name)
                    self._texts[name] = text
        with self._changing:
            return list(self._texts.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON to write."""
        return self.json_of({name: one.to_json() for name, one in list(self._entries.items())})

    def json_of(self, table: object) -> dict[str, Any]:
        """Return the JSON to write, around the entries in whichever form."""
        return {"dataVersion": self.version.to_json(), self._TABLE: table, **self._other}

    def put(self, entry: _EntryT) -> None:
        """Add or replace an entry; the file is not written yet."""
        text = fastjson.member(entry.name, entry.to_json(), _DEPTH)
        with self._changing:
            self._textless.discard(entry.name)
            self._texts[entry.name] = text
            self._entries[entry.name] = entry
            self.version.next()

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether it was there; the file is not written yet."""
        with self._changing:
            if self._entries.pop(name, None) is None:
                return False
            self._textless.discard(name)
            del self._texts[name]
            self.version.next()
        return True

    def get(self, name: str) -> _EntryT | None:
        """Return an entry, ``None`` if there is none of this name."""
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry of this name."""
        return name in self._entries

    def __iter__(self) -> Iterator[_EntryT]:
        """Iterate over the entries as they are now."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def _decode(self, data: Any) -> tuple[DataVersion, dict[str, _EntryT], dict[str, Any]]:
        """Return version, entries and the rest of a parsed file."""
        if not isinstance(data, dict):
            raise ValueError(f"the file holds {type(data).__name__}, must be an object")
        rest = dict(data)
        table = rest.pop(self._TABLE, None) or {}
        if not isinstance(table, dict):
            raise ValueError(f"{self._TABLE} must be an object")
        version = take_version(rest)
        made = self._ENTRY.from_json
        return version, {str(name): made(str(name), one) for name, one in table.items()}, rest
