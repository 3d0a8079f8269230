"""Topics created by producers: entered in ``topics.json`` off the loop, and then sent to.

Requests for missing topics are parked. A thread enters the topics of all that came while it was
writing, in one write, and then the requests are handled in the order that they came.

Source: ``broker/topic/TopicConfigManager.java createTopicInSendMessageMethod``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve.network.rotation import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqstore.serve.network.answers import Answers
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.wire.frames import Request
    from rmqstore.store import MessageStore

__all__ = ["NewTopics", "TopicAwaited"]


class TopicAwaited(Exception):
    """A request needs a topic that is being entered; nothing was done for it yet."""

    def __init__(self, entry: TopicConfig) -> None:
        super().__init__(entry.topic_name)
        self.entry = entry


class NewTopics:
    """Parks requests until their topics are on the disk; used in the loop."""

    def __init__(
        self,
        store: MessageStore,
        work: Work,
        answers: Answers,
        run: Callable[[Connection, Request], object],
    ) -> None:
        self._store = store
        self._work = work
        self._answers = answers
        self._run = run  # handles a parked request
        # Called with a topic's name: once its parked requests have been handled; before they fail.
        self.made: Callable[[str], object] = lambda name: None
        self.failed: Callable[[str], object] = lambda name: None
        self._entries: dict[str, TopicConfig] = {}  # not being written yet
        self._parked: dict[str, deque[tuple[Connection, Request, asyncio.Future[None]]]] = {}
        self._handled = ""  # the topic of the parked request that is handled now
        self._error: Exception | None = None  # of the write of its entry
        self._writing: asyncio.Task[None] | None = None
        self._handling = Rotation(work.turns)  # by who asked first for a topic

    @property
    def waiting(self) -> bool:
        """Whether requests wait for a topic; read in any thread."""
        return bool(self._parked)

    def is_awaited(self, name: str) -> bool:
        """Whether requests wait for a topic; called in any thread."""
        return name in self._parked

    def check(self, name: str) -> None:
        """Raise ``TopicAwaited`` while a topic is being entered, or the error of its write."""
        if name == self._handled:
            if self._error is not None:
                raise self._error
        elif name in self._parked:
            raise TopicAwaited(TopicConfig(name))

    def park(self, connection: Connection, request: Request, entry: TopicConfig) -> None:
        """Handle a request again once its topic is there; enter the topic if nobody does yet."""
        name = entry.topic_name
        # While its requests are handled: it was deleted again.
        if name not in self._parked or name == self._handled:
            self._entries[name] = entry
        done = self._work.loop.create_future()
        self._parked.setdefault(name, deque()).append((connection, request, done))
        self._answers.later(connection, request, done)
        if self._writing is None:
            self._writing = self._work.spawn(self._write())

    async def _write(self) -> None:
        """Enter topics as long as there are some, and handle the requests for them."""
        try:
            while self._entries:
                entries, self._entries = self._entries, {}
                error = None
                try:
                    await self._work.loop.run_in_executor(None, self._enter, entries)
                except Exception as failed:  # else its requests would never be answered
                    error = failed
                for name in entries:
                    self._handling.add(self._parked[name][0][0].owner, self._handle(name, error))
        finally:
            self._writing = None

    def _enter(self, entries: dict[str, TopicConfig]) -> None:
        store = self._store
        store.core.check_writable()
        store.registry.make(*entries.values())

    def _handle(self, name: str, error: Exception | None) -> Steps:
        """Handle a topic's requests in order, before others; after an error it is tried anew."""
        parked = self._parked[name]
        if error is not None:
            del self._parked[name]
            self.failed(name)
        while parked and (error is not None or name not in self._entries):
            connection, request, done = parked.popleft()
            self._handled, self._error = name, error
            try:
                self._run(connection, request)
            finally:
                self._handled, self._error = "", None
                if not done.done():
                    done.set_result(None)
            if parked:
                yield
        if error is None and not parked:
            del self._parked[name]
        if not parked:
            self.made(name)
