"""Messages by the text of their bodies and properties."""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex

from rmqstore import opening
from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.times import to_millis
from rmqstore.errors import MessageNotFoundError

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.base.times import TimeLike
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = ["Search", "grep", "grep_of"]

_PIECE_BYTES = 64 << 20  # of the log, for a process at a time
_JOBS_MOST = 256
_MATCH_SECONDS = 10.0  # for one message, in a process of its own


@dataclass(frozen=True, slots=True)
class Search:
    """Search for a text; plain data, for other processes.

    Attributes
    ----------
    pattern : str
        A regular expression, or with ``fixed`` a text.
    fixed, ignore_case, properties : bool
        As for :func:`grep`.
    topic : str or None
    since, until : int or None
        Store times in ms since the epoch.
    on_corruption : str
        As for :func:`grep`.
    """

    pattern: str
    fixed: bool
    ignore_case: bool
    properties: bool
    topic: str | None
    since: int | None
    until: int | None
    on_corruption: Literal["raise", "skip"]

    def messages(
        self, store: MessageStore, start: int | None = None, stop: int | None = None
    ) -> Iterable[Message]:
        """Return the messages to search, of a part of the log."""
        return store.scan(
            None if self.topic is None else [self.topic],
            start=start,
            stop=stop,
            since=self.since,
            until=self.until,
            on_corruption=self.on_corruption,
            on_removed="skip",
        )

    def matcher(self) -> Callable[[Message], bool]:
        """Return a function that tests a message; ``ValueError`` for a bad pattern."""
        text = re.escape(self.pattern) if self.fixed else self.pattern
        flags = re.IGNORECASE if self.ignore_case else 0
        try:
            of_text = re.compile(text, flags | re.MULTILINE)
            of_bytes = re.compile(text.encode(), flags | re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"no regular expression: {self.pattern!r}: {error}") from None
        # Bytes are searched as they are where letters are bytes.
        plain = self.pattern.isascii() and not self.ignore_case
        literal = self.pattern.encode() if self.fixed and plain else None

        def matches(message: Message) -> bool:
            body = message.body
            if literal is not None:
                found = literal in body
            elif plain:
                found = of_bytes.search(body) is not None
            else:
                found = of_text.search(body.decode("utf-8", "replace")) is not None
            if found or not self.properties:
                return found
            pairs = message.properties.items()
            return of_text.search("\n".join(f"{name}={value}" for name, value in pairs)) is not None

        return matches


def grep(
    path: str | os.PathLike[str],
    pattern: str,
    *,
    fixed: bool = False,
    ignore_case: bool = False,
    properties: bool = False,
    topic: str | None = None,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    jobs: SupportsIndex = 1,
    on_corruption: Literal["raise", "skip"] = "raise",
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Iterator[Message]:
    """Iterate over the messages whose bodies have a text, in log order.

    Bodies are inflated before they are searched. Neither queues nor index are needed.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    pattern : str
        A regular expression of :mod:`re`; ``^`` and ``$`` match at lines. A body that is not
        UTF-8 is searched as bytes, or with U+FFFD for them if case is ignored or the pattern is
        not ASCII.
    fixed : bool, optional
        The pattern is a text.
    ignore_case : bool, optional
        Upper and lower case are the same.
    properties : bool, optional
        Search the properties as well, as lines of ``NAME=VALUE``.
    topic : str, optional
        Only this topic's messages.
    since, until : int, datetime or str, optional
        Store times; ``until`` is exclusive.
    jobs : int, optional
        Number of processes, 1 to 256. More than one are started as by
        :mod:`multiprocessing` with ``spawn``: a program needs its ``if __name__ == "__main__":``.
        There a message that takes more than 10 s to match is an error; one process is not bounded.
    on_corruption : {"raise", "skip"}, optional
        At an invalid record: raise an error, or go on behind it.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Yields
    ------
    Message

    Raises
    ------
    ValueError
        The pattern is no regular expression, or an argument is out of range.
    TimeoutError
        A message takes too long to match.
    StoreCorruptError
        A record is invalid, and ``on_corruption`` is ``"raise"``.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    if not isinstance(pattern, str):
        raise wrong_type("pattern", "str", pattern)
    if isinstance(jobs, bool) or not hasattr(jobs, "__index__"):
        raise wrong_type("jobs", "int", jobs)
    count = jobs.__index__()
    if not 1 <= count <= _JOBS_MOST:
        raise wrong_value("jobs", f"1 to {_JOBS_MOST}", count)
    search = Search(
        pattern,
        fixed,
        ignore_case,
        properties,
        topic,
        None if since is None else to_millis(since, name="since"),
        None if until is None else to_millis(until, name="until"),
        on_corruption,
    )
    one_of("on_corruption", on_corruption, ("raise", "skip"))
    search.matcher()  # raises now
    return _opened(path, search, count, config)


def _opened(path: Any, search: Search, jobs: int, config: Any) -> Iterator[Message]:
    with opening.open(path, config=config) as store:
        if jobs == 1:
            yield from filter(search.matcher(), search.messages(store))
        else:
            yield from grep_of(store, search, jobs)


class _Piece(NamedTuple):
    path: str
    config: StoreConfig
    start: int
    stop: int


def grep_of(store: MessageStore, search: Search, jobs: int) -> Generator[Message, None, None]:
    """Return :func:`grep` of an open store, in ``jobs`` processes of their own."""
    extent = store.scan().extent(queued=False)
    timed = store.scan(since=search.since, until=search.until)
    low, high = timed.narrowed(extent.start, extent.stop)
    pieces = iter(
        _Piece(store.path, store.config, start, min(high, start + _PIECE_BYTES))
        for start in range(low, high, _PIECE_BYTES)
    )
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker)
    try:
        running = deque(pool.submit(_search_piece, search, one) for one in islice(pieces, 2 * jobs))
        while running:
            found = running.popleft().result()
            running += (pool.submit(_search_piece, search, one) for one in islice(pieces, 1))
            for offset in found:
                try:
                    yield store.at(offset)
                except MessageNotFoundError:  # retention was faster
                    continue
    finally:
        pool.shutdown(cancel_futures=True)


class _TooLongError(Exception):
    """The alarm of :func:`_search_piece`."""


def _begin_worker() -> None:
    """End silently when interrupted, and take alarms."""

    def too_long(number: int, frame: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, too_long)


def _search_piece(search: Search, piece: _Piece) -> list[int]:
    """Return the physical offsets of the matches in a piece of the log."""
    matches = search.matcher()
    found = []
    with opening.open(piece.path, config=piece.config) as store:
        for message in search.messages(store, piece.start, piece.stop):
            signal.setitimer(signal.ITIMER_REAL, _MATCH_SECONDS)
            try:
                if matches(message):
                    found.append(message.physical_offset)
            except _TooLongError:
                raise TimeoutError(
                    f"{piece.path}: pattern {search.pattern!r} takes more than "
                    f"{_MATCH_SECONDS:.0f} s for the message at offset {message.physical_offset} "
                    f"({len(message.body):,} bytes); a pattern without nested repeats is faster"
                ) from None
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    return found
