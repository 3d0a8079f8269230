"""Messages by the text of their bodies and properties."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex

from rmqstore import opening
from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.times import to_millis
from rmqstore.base.warn import log_nothing
from rmqstore.columns.scan import messages_with
from rmqstore.errors import MessageNotFoundError, StoreCorruptError, StoreError

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.base.times import TimeLike
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = ["Search", "grep", "grep_of"]

_PIECE_BYTES = 64 << 20  # of the log, for a process at a time
_JOBS_MOST = 256
_MATCH_SECONDS = 10.0  # for one message, in a process of its own
_FOLDED_ELSEWHERE = "iksIKS"  # the other case of U+0130, U+0131, U+017F and U+212A as well


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
        scan = store.scan(
            None if self.topic is None else [self.topic],
            start=start,
            stop=stop,
            since=self.since,
            until=self.until,
            on_corruption=self.on_corruption,
            on_removed="skip",
        )
        text, folded = self._needed()
        return messages_with(scan, text, ignore_case=folded, properties=self.properties)

    def _needed(self) -> tuple[bytes, bool]:
        """Return bytes required by every match, as stored, and whether in either case.

        The longest literal run at the pattern's top level. Excluded: characters with other bytes
        in text that is not UTF-8 or in the other case, and delimiters of displayed properties.
        """
        pattern, flags = self._expression
        # re's own parser is not public; no other tells literals from syntax as re.compile does.
        parsed = re._parser.parse(pattern, flags)  # type: ignore[attr-defined]
        folded = bool(parsed.state.flags & re.IGNORECASE)
        runs = [""]
        for kind, value in parsed:
            if str(kind) != "LITERAL" or not self._is_as_stored(chr(value), folded):
                runs.append("")
            else:
                runs[-1] += chr(value)
        return max(runs, key=len).encode(), folded

    def _is_as_stored(self, char: str, folded: bool) -> bool:
        if char.isascii():
            unlike = _FOLDED_ELSEWHERE if folded else ""
            return char not in unlike + ("=\n" if self.properties else "")
        if folded or self.pattern.isascii():  # an escape: a byte in a body that is not UTF-8
            return False
        return char != "\ufffd" and not "\ud800" <= char <= "\udfff"

    @property
    def _expression(self) -> tuple[str, int]:
        """The regular expression, and its flags."""
        text = re.escape(self.pattern) if self.fixed else self.pattern
        return text, re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)

    def matcher(self) -> Callable[[Message], bool]:
        """Return a function that tests a message; ``ValueError`` for a bad pattern."""
        text, flags = self._expression
        try:
            of_text = re.compile(text, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"invalid regular expression {self.pattern!r}: {error}") from None
        of_bytes = _of_bytes(text, flags)
        literal = self.pattern.encode() if self.fixed and not self.ignore_case else None

        def in_body(body: bytes) -> bool:
            if literal is not None:
                return literal in body
            if of_bytes is not None and body.isascii():  # as its text, without a copy
                return of_bytes.search(body) is not None
            try:
                decoded = body.decode()
            except UnicodeDecodeError:
                if of_bytes is not None:
                    return of_bytes.search(body) is not None
                decoded = body.decode("utf-8", "replace")
            return of_text.search(decoded) is not None

        def matches(message: Message) -> bool:
            try:
                body = message.body
            except StoreError:  # cannot be inflated
                body = bytes(message.raw_body)
            if in_body(body):
                return True
            if not self.properties:
                return False
            pairs = message.properties.items()
            return of_text.search("\n".join(f"{name}={value}" for name, value in pairs)) is not None

        return matches


def _of_bytes(text: str, flags: int) -> re.Pattern[bytes] | None:
    """Return a pattern for bytes; ``None`` if it is of text alone."""
    if not text.isascii():
        return None
    try:
        return re.compile(text.encode(), flags)
    except (re.error, ValueError):
        return None


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
        UTF-8 is searched as bytes, or with U+FFFD for them if the pattern is not ASCII; one that
        cannot be inflated is searched as stored.
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
        There a message that takes 10 to 20 s to match is an error; one process is not bounded.
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
    start: int
    stop: int


class _Found(NamedTuple):
    offsets: list[int]
    error: StoreError | TimeoutError | None  # met behind them


def grep_of(
    store: MessageStore,
    search: Search,
    jobs: int,
    damaged: Callable[[StoreCorruptError], object] | None = None,
) -> Generator[Message, None, None]:
    """Return :func:`grep` of an open store, in ``jobs`` processes of their own.

    ``damaged`` gets the first damage of each piece of the log, in place of an error.
    """
    extent = store.scan().extent(queued=False)
    timed = store.scan(since=search.since, until=search.until)
    low, high = timed.narrowed(extent.start, extent.stop)
    pieces = iter(
        _Piece(start, min(high, start + _PIECE_BYTES)) for start in range(low, high, _PIECE_BYTES)
    )
    given = (store.path, store.config)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, given)
    skipping = replace(search, on_corruption="skip")

    def submit(piece: _Piece) -> tuple[_Piece, Future[_Found]]:
        return piece, pool.submit(_search_piece, search, piece)

    try:
        running = deque(map(submit, islice(pieces, 2 * jobs)))
        while running:
            piece, future = running.popleft()
            found, error = future.result()
            running += map(submit, islice(pieces, 1))
            if damaged is not None and isinstance(error, StoreCorruptError):
                damaged(error)
                found, error = pool.submit(_search_piece, skipping, piece).result()
            for offset in found:
                try:
                    yield store.at(offset)
                except MessageNotFoundError:  # retention was faster
                    continue
            if error is not None:
                raise error
    except BrokenProcessPool:
        raise OSError(
            f"{store.path}: a process of the search was killed; fewer jobs need less memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


class _TooLongError(Exception):
    """The alarm of :func:`_search_piece`."""


class _Watch:
    """Alarms of a process: two in turn at the same message raise.

    A timer for each message would cost more than most of them.
    """

    def __init__(self) -> None:
        self.message: Message | None = None  # being matched
        self._seen: Message | None = None

    def alarm(self, number: int, frame: object) -> None:
        """Raise if the message is that of the last alarm."""
        if self.message is not None and self.message is self._seen:
            raise _TooLongError
        self._seen = self.message


_opened_here: list[MessageStore] = []  # by a process of a search, until it ends
_watch = _Watch()


def _begin_worker(path: str, config: StoreConfig) -> None:
    """Open the store; end silently when interrupted, and take alarms."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, _watch.alarm)
    signal.setitimer(signal.ITIMER_REAL, _MATCH_SECONDS, _MATCH_SECONDS)
    warnings.simplefilter("ignore", FutureWarning)  # compiling the pattern warned in the parent
    log_nothing()
    _opened_here.append(opening.open(path, config=config))


def _search_piece(search: Search, piece: _Piece) -> _Found:
    """Return the physical offsets of the matches in a piece of the log."""
    (store,) = _opened_here
    matches = search.matcher()
    found: list[int] = []
    message: Message | None = None
    try:
        for message in search.messages(store, piece.start, piece.stop):
            _watch.message = message
            if matches(message):
                found.append(message.physical_offset)
            _watch.message = None
    except _TooLongError:
        assert message is not None
        error = TimeoutError(
            f"{store.path}: pattern {search.pattern!r} takes more than {_MATCH_SECONDS:.0f} s for "
            f"the message at offset {message.physical_offset} ({len(message.body):,} bytes); a "
            "pattern without nested repeats is faster"
        )
        return _Found(found, error)
    except StoreError as error:
        return _Found(found, error)
    finally:
        _watch.message = None
    return _Found(found, None)
