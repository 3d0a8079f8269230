"""A server under test: how clients in any language behave when their broker fails.

RocketMQ has nothing of the kind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmqstore.base.arguments import wrong_type, wrong_value
from rmqstore.serve.server import Server
from rmqstore.serve.serving import served
from rmqstore.serve.testing.rules import RequestRules
from rmqstore.services.topics import topic_entry

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.services.clock import Clock

__all__ = ["RmqServer"]

_LOOK_SECONDS = 0.002
_QUEUE_NUMS = 4
_CODE_MAX = 32767  # 16 bits in the binary header
_PULL = "11 for a pull"
_NAMES_SHOWN = 6  # topics in an error


class RmqServer(Server):
    """A server on a temporary store, with trouble on demand; given by the fixture ``rmq_server``.

    Parameters
    ----------
    path : path-like, optional
        Directory of the store, as in :func:`rmqstore.serve`.
    topics : iterable of str, optional
        Made at the start, as by :meth:`make_topics`.
    **options
        Options of :func:`rmqstore.serve`.

    Rules apply to requests received after the call, from every client: to each request the oldest
    rule for its code that is not used up.

    Attributes
    ----------
    address : str
        ``"127.0.0.1:PORT"``: the name server's address for the program under test.
    store : MessageStore
        Messages the program sends are here; messages put here are delivered to it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        topics: Iterable[str] = (),
        **options: Any,
    ) -> None:
        if isinstance(topics, (str, bytes)) or not isinstance(topics, Iterable):
            raise wrong_type("topics", "an iterable of str", topics)
        entries = [topic_entry(name, _QUEUE_NUMS) for name in topics]
        super().__init__(*served(path, **options))
        try:
            self._rules = RequestRules(self.gateway.shared, self.gateway.handle)
            self.gateway.intercept = self._rules.take
            self.store.registry.make(*entries)
        except BaseException:
            self.close()
            raise

    def make_topics(self, *names: str, queue_nums: int = _QUEUE_NUMS) -> None:
        """Make topics before a listener of them starts; existing ones stay as they are.

        A consumer that starts before its topic exists looks for it every 30 seconds, with a real
        broker too.

        Parameters
        ----------
        *names : str
        queue_nums : int, optional
            Queues of each topic, 1 to 65,536.

        Raises
        ------
        MessageIllegalError, TypeError, ValueError
            As in :meth:`MessageStore.create_topic`; no topic is made.
        StoreClosedError
            The server is closed.
        """
        self.store.core.check_writable()
        self.store.registry.make(*(topic_entry(name, queue_nums) for name in names))

    @property
    def clock(self) -> Clock:
        """The store's clock: ``clock.advance(seconds)`` makes delayed messages due, and checks."""
        return self.store.clock

    def fail(self, code: int, response: int, times: int = 1) -> None:
        """Answer the next requests of a code with an error, without handling them.

        Parameters
        ----------
        code : int
            In the Java client's ``RequestCode``: 310 and 10 are sends, 11 is a pull, 34 a
            heartbeat, 105 a route.
        response : int
            In its ``ResponseCode``: 1 is SYSTEM_ERROR, 2 SYSTEM_BUSY, 14 SERVICE_NOT_AVAILABLE.
        times : int, optional
            Number of requests, 1 or more.

        Raises
        ------
        TypeError, ValueError
            A code or the number is invalid; the message names it and the accepted values.
        RuntimeError
            The server is closed.
        """
        _code("code", code, "310 for a send of a Java client")
        _code("response", response, "2 for SYSTEM_BUSY")
        _number("times", times, 1)
        self.in_loop(self._rules.fail, code, response, times)

    def drop(self, code: int | None = None, times: int = 1) -> None:
        """Ignore the next requests, without an answer: the client times out.

        Parameters
        ----------
        code : int, optional
            In ``RequestCode``; by default any.
        times : int, optional
            Number of requests, 1 or more.

        Raises
        ------
        TypeError, ValueError
            The code or the number is invalid; the message names it and the accepted values.
        RuntimeError
            The server is closed.
        """
        if code is not None:
            _code("code", code, _PULL)
        _number("times", times, 1)
        self.in_loop(self._rules.drop, code, times)

    def delay(self, ms: float, code: int | None = None) -> None:
        """Delay requests before they are handled, from now on.

        Parameters
        ----------
        ms : float
            Milliseconds, up to an hour; 0 ends it.
        code : int, optional
            In ``RequestCode``; by default all without a delay of their own.

        Raises
        ------
        TypeError, ValueError
            The code or the time is invalid; the message names it and the accepted values.
        RuntimeError
            The server is closed.
        """
        if not isinstance(ms, (int, float)) or isinstance(ms, bool):
            raise wrong_type("ms", "a number", ms)
        if not 0 <= ms <= 3_600_000:
            raise wrong_value("ms", "0 to 3600000", ms)
        if code is not None:
            _code("code", code, _PULL)
        self.in_loop(self._rules.delay, ms / 1000, code)

    def close_connections(self) -> None:
        """Close the connections of all clients, like a dying broker; they may reconnect.

        Raises
        ------
        RuntimeError
            The server is closed.
        """

        def abort() -> None:
            for connection in list(self.gateway.connections.open):
                connection.abort()

        self.in_loop(abort)

    def wait_for(self, topic: str, n: int, timeout: float = 5.0) -> list[Message]:
        """Wait until a topic has a number of messages.

        Parameters
        ----------
        topic : str
            It need not exist yet.
        n : int
            Number, in all of its queues.
        timeout : float, optional
            Seconds.

        Returns
        -------
        list of Message
            All messages of the topic, possibly more, in log order.

        Raises
        ------
        TimeoutError
            There were fewer in time; the message has their number, and other topics that have
            messages.
        TypeError, ValueError
            An argument is of a wrong type or below 0.
        """
        __tracebackhide__ = True  # for pytest: the failing line is the caller's
        if not isinstance(topic, str):
            raise wrong_type("topic", "str", topic)
        _number("n", n, 0)
        deadline = time.monotonic() + timeout
        while True:
            found = self.store.topics.get(topic)
            there = sum(len(queue) for queue in found.values()) if found is not None else 0
            if there >= n:
                return list(found.messages()) if found is not None else []
            if time.monotonic() >= deadline:
                has = "1 message" if there == 1 else f"{there} messages"
                hint = self._topics_with_messages(topic) if not there else ""
                raise TimeoutError(f"topic {topic!r} has {has} after {timeout} s, not {n}{hint}")
            time.sleep(_LOOK_SECONDS)

    def _topics_with_messages(self, topic: str) -> str:
        """Return the end of an error about an empty topic: the topics that have messages."""
        import difflib

        filled = [
            name
            for name, one in self.store.topics.items()
            if name != topic and any(len(queue) for queue in one.values())
        ]
        near = difflib.get_close_matches(topic, filled, n=1)
        if near:
            return f"; did you mean {near[0]!r}?"
        if not filled:
            return "; no topic has any"
        more = f" and {len(filled) - _NAMES_SHOWN} more" if len(filled) > _NAMES_SHOWN else ""
        return f"; there are messages in {', '.join(map(repr, filled[:_NAMES_SHOWN]))}{more}"


def _code(name: str, value: object, example: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, f"int, such as {example}", value)
    _number(name, value, 0, _CODE_MAX)


def _number(name: str, value: object, low: int, high: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, "int", value)
    if value < low or (high is not None and value > high):
        raise wrong_value(name, f"{low} or more" if high is None else f"{low} to {high}", value)
