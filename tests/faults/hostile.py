"""Arguments that run code of their own while the store reads them.

Each method that Python calls on an argument may call the store again, close it, raise, collect
garbage whose finalizers do the same, change what is being read, or answer with nonsense.
"""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

DEEPEST = 3  # calls within calls
WRONG = [
    -1, 1 << 31, 1 << 63, -(1 << 80), 1.5, float("nan"), float("inf"), None, True, "", "\ud800",
    "t\x01", b"\xff", [], {}, object(), (None,), 0,
]  # fmt: skip


class Evil(Exception):
    """Raised by an argument."""


class Mood:
    """What arguments do when they are asked; one for all of a program."""

    def __init__(self, draw: random.Random, acts: list[Callable[[], object]]) -> None:
        self.draw = draw
        self.acts = acts  # calls of the store
        self.changing: list[Any] = []  # containers that are being read
        self.depth = threading.local()
        self.share = draw.choice([0.02, 0.1, 0.3])  # of the questions to which there is an act

    def act(self) -> None:
        """Do something that no argument should, or nothing."""
        depth = getattr(self.depth, "value", 0)
        if depth >= DEEPEST or self.draw.random() > self.share:
            return
        self.depth.value = depth + 1
        try:
            self.draw.choice([self._call, self._call, self._call, self._upset, self._raise])()
        finally:
            self.depth.value = depth

    def _call(self) -> None:
        self.draw.choice(self.acts)()

    def _raise(self) -> None:
        raise self.draw.choice([Evil, Evil, KeyError, StopIteration, MemoryError])("evil")

    def _upset(self) -> None:
        self.draw.choice([self._collect, self._change, self._interrupt, self._pause])()

    def _collect(self) -> None:
        for _ in range(3):
            Garbage(self)
        gc.collect(0)

    def _interrupt(self) -> None:
        signal.raise_signal(signal.SIGUSR1)

    def _pause(self) -> None:
        time.sleep(self.draw.choice([0, 0.0001, 0.002]))

    def _change(self) -> None:
        for one in self.changing[-4:]:
            if isinstance(one, np.ndarray):
                one[...] = one[::-1].copy()
            elif isinstance(one, bytearray) and self.draw.random() < 0.5:
                one[:] = bytes(reversed(one))
            elif isinstance(one, dict):
                one[f"more{len(one)}"] = "x"
            elif self.draw.random() < 0.5:
                del one[len(one) // 2 :]  # bytearrays whose buffer is in use refuse
            else:
                one.extend(one[:2])

    # Arguments

    def number(self, value: int) -> Any:
        return self.draw.choice([value, Number(self, value), self.any_number(value)])

    def any_number(self, value: int) -> Any:
        return self.draw.choice(
            [value, np.int64(value), Whole(self, value), self.wrong(), self.draw.choice(WRONG)]
        )

    def text(self, value: str) -> Any:
        return self.draw.choice([value, value, Word(self, value), self.wrong()])

    def body(self, value: bytes) -> Any:
        kind = self.draw.randrange(6)
        if kind == 0:
            return value
        if kind == 1:
            return self.kept(bytearray(value))
        if kind == 2:
            return memoryview(self.kept(bytearray(value)))
        if kind == 3:
            return self.kept(np.frombuffer(value, np.uint8).copy())
        return Bytes(self, value) if kind == 4 else self.wrong()

    def kept(self, container: Any) -> Any:
        self.changing.append(container)
        del self.changing[:-8]
        return container

    def rows(self, items: list[Any]) -> Any:
        kind = self.draw.randrange(6)
        if kind == 0:
            return self.kept(list(items))
        if kind == 1:
            return Rows(self, items)
        if kind == 2:
            return List(self, items)
        if kind == 3:
            made = np.empty(len(items), object)
            made[:] = items
            return self.kept(made)
        return tuple(items) if kind == 4 else self.wrong()

    def mapping(self, items: dict[Any, Any]) -> Any:
        kind = self.draw.randrange(5)
        if kind == 0:
            return Dict(self, items)
        if kind == 1:
            return Pairs(self, items)
        if kind == 2:
            return self.kept({Word(self, key): value for key, value in items.items()})
        return self.kept(dict(items)) if kind == 3 else self.wrong()

    def time(self) -> Any:
        moment = datetime(2026, 1, 2, tzinfo=Zone(self))
        return self.draw.choice([None, moment, self.number(1_700_000_000_000), Word(self, "x")])

    def wrong(self) -> Any:
        """A value of some type that fits nowhere, or anything at all."""
        return Nothing(self) if self.draw.random() < 0.3 else self.draw.choice(WRONG)


class Garbage:
    """In a cycle, so that only a collection ends it; then it does what arguments do."""

    def __init__(self, mood: Mood) -> None:
        self.mood, self.own = mood, self

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # Python would print it, and go on
            self.mood.act()


def acting(names: str) -> Callable[[type[Any]], type[Any]]:
    """Have the methods of these names act first; those that the class has go on as they do."""

    def change(kind: type[Any]) -> type[Any]:
        for name in names.split():
            real = getattr(kind, f"__{name}__", None)
            if real is not None:
                setattr(kind, f"__{name}__", _first_acting(real))
        return kind

    return change


def _first_acting(real: Any) -> Any:
    def method(self: Any, *arguments: Any) -> Any:
        mood = object.__getattribute__(self, "__dict__").get("mood")
        if mood is not None:
            mood.act()
        return real(self, *arguments)

    return method


COMMON = "hash eq ne bool len str repr format"


class Number:
    """An integer by ``__index__`` alone."""

    def __init__(self, mood: Mood, value: int) -> None:
        self.mood, self.value = mood, value

    def __index__(self) -> Any:
        self.mood.act()
        if self.mood.draw.random() < 0.05:
            return self.mood.wrong()
        return self.value

    def __repr__(self) -> str:
        self.mood.act()
        return "Number"


@acting(COMMON + " lt le gt ge index int add sub mul floordiv")
class Whole(int):
    def __new__(cls, mood: Mood, value: int) -> Whole:
        made = int.__new__(cls, value)
        made.mood = mood
        return made


@acting(COMMON + " contains iter getitem add mod")
class Word(str):
    def __new__(cls, mood: Mood, value: str) -> Word:
        made = str.__new__(cls, value)
        made.mood = mood
        return made

    def encode(self, *arguments: Any) -> bytes:
        self.mood.act()
        return str.encode(self, *arguments)


@acting(COMMON + " contains iter getitem bytes")
class Bytes(bytes):
    def __new__(cls, mood: Mood, value: bytes) -> Bytes:
        made = bytes.__new__(cls, value)
        made.mood = mood
        return made


@acting(COMMON + " iter getitem contains")
class List(list):
    def __init__(self, mood: Mood, items: list[Any]) -> None:
        list.__init__(self, items)
        self.mood = mood
        mood.kept(self)


@acting(COMMON + " iter getitem contains")
class Dict(dict):
    def __init__(self, mood: Mood, items: dict[Any, Any]) -> None:
        dict.__init__(self, items)
        self.mood = mood
        mood.kept(self)

    def items(self) -> Any:
        self.mood.act()
        return dict.items(self)


class Rows:
    """A sequence whose length is another one each time."""

    def __init__(self, mood: Mood, items: list[Any]) -> None:
        self.mood, self.own = mood, items

    def __len__(self) -> int:
        self.mood.act()
        return max(0, len(self.own) + self.mood.draw.choice([0, 0, 0, -1, 1, 5, 1 << 20]))

    def __getitem__(self, at: int) -> Any:
        self.mood.act()
        return self.own[at]

    def __iter__(self) -> Iterator[Any]:
        for one in self.own:
            self.mood.act()
            yield one


class Pairs(Mapping):
    """A mapping that is no dict."""

    def __init__(self, mood: Mood, own: dict[Any, Any]) -> None:
        self.mood, self.own = mood, own

    def __getitem__(self, key: Any) -> Any:
        self.mood.act()
        return self.own[key]

    def __iter__(self) -> Iterator[Any]:
        for one in self.own:
            self.mood.act()
            yield one

    def __len__(self) -> int:
        self.mood.act()
        return len(self.own)


class Path:
    def __init__(self, mood: Mood, value: str) -> None:
        self.mood, self.value = mood, value

    def __fspath__(self) -> Any:
        self.mood.act()
        return self.value if self.mood.draw.random() < 0.95 else self.mood.wrong()


class Zone(tzinfo):
    def __init__(self, mood: Mood) -> None:
        self.mood = mood

    def utcoffset(self, moment: datetime | None) -> Any:
        self.mood.act()
        return UTC.utcoffset(moment)

    def dst(self, _moment: datetime | None) -> Any:
        self.mood.act()
        return None

    def tzname(self, _moment: datetime | None) -> str:
        return "evil"


class Nothing:
    """Claims to be everything: has each attribute, and each conversion."""

    def __init__(self, mood: Mood) -> None:
        self.__dict__["mood"] = mood

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        self.mood.act()
        return self.mood.draw.choice([self, None, True, "x", 7])

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.mood.act()
        return self.mood.draw.choice([self, None, (self, self), 7, "x"])

    def __index__(self) -> int:
        self.mood.act()
        return 3

    def __float__(self) -> float:
        self.mood.act()
        return float("nan")

    def __iter__(self) -> Iterator[Any]:
        self.mood.act()
        return iter([self, "x", 1])

    def __len__(self) -> int:
        self.mood.act()
        return 3

    def __getitem__(self, _at: Any) -> Any:
        self.mood.act()
        return "x"

    def __bool__(self) -> bool:
        self.mood.act()
        return True

    def __eq__(self, other: object) -> bool:
        self.mood.act()
        return True

    def __hash__(self) -> int:
        self.mood.act()
        return 1

    def __repr__(self) -> str:
        self.mood.act()
        return "Nothing"
