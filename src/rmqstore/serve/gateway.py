"""State of a gateway, and the dispatch of requests to their handlers.

Source: ``broker/BrokerController.java``, ``remoting/netty/NettyRemotingAbstract.java
processRequestCommand``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.base.warn import Log
from rmqstore.errors import StoreError
from rmqstore.serve.consuming.distance import Distance
from rmqstore.serve.consuming.offsets import OffsetShares
from rmqstore.serve.consuming.subscriptions import PullFilters
from rmqstore.serve.network.busypoll import BusyPoll
from rmqstore.serve.network.keptframes import KeptFrames
from rmqstore.serve.network.longanswers import AnswerSteps, LongAnswers
from rmqstore.serve.network.memory import LARGE, OF_TLS, give_back_soon
from rmqstore.serve.network.ownerpool import OwnerPool
from rmqstore.serve.network.turns import Turns
from rmqstore.serve.network.unread import Unread
from rmqstore.serve.topics.newtopics import NewTopics, TopicAwaited
from rmqstore.serve.topics.producedtopics import ProducedTopics
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Caller
    from rmqstore.serve.accounts.aclresources import Resource
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.testing.rules import RequestRules
    from rmqstore.store import MessageStore

__all__ = ["UNKNOWN", "Gateway", "Handled", "Handler"]

# None: nothing is answered now; the handler does so later, by Connection.answer. Steps: it may be
# long, and is built between the requests of other clients; so may a coroutine's result be.
Handled = Answer | AnswerSteps | Coroutine[Any, Any, Answer | AnswerSteps | None] | None
Handler = Callable[["Gateway", "Connection", Request], Handled]
T = TypeVar("T")

UNKNOWN = -1  # among the counts of requests: all codes without a handler

_DRAIN_SECONDS = 6.0  # a stop waits for answers: as long as one waits for the disk, and a bit
_ASKED_TOPICS = 100_000  # made by requests
# Threads by kind of work. Changes have many: one writes, the others wait and share its write.
# Removals look at the queues of all topics first, and hold the interpreter's lock for that.
_POOLS = (("lookups", 4), ("changes", 16), ("removals", 2), ("ends", 2))
_CLOSE_SECONDS = 1.0  # for clients to take what was written to them


class Gateway:
    """State shared by the handlers; used only in its loop."""

    def __init__(
        self, store: MessageStore, settings: Settings, loop: asyncio.AbstractEventLoop
    ) -> None:
        from rmqstore.serve.consuming.clients import Clients
        from rmqstore.serve.consuming.holding import Holds
        from rmqstore.serve.consuming.locks import Locks
        from rmqstore.serve.consuming.newgroups import NewGroups
        from rmqstore.serve.figures.rates import Rates
        from rmqstore.serve.handlers import HANDLERS
        from rmqstore.serve.network.durable import DurableAnswers
        from rmqstore.serve.producing.hotsends import client_sends
        from rmqstore.serve.producing.replies import Replies
        from rmqstore.serve.producing.transactions import Transactions
        from rmqstore.serve.topics.nameserver import NameServer
        from rmqstore.serve.topics.topictable import built_in_topics

        self.store = store
        self.settings = settings
        self.loop = loop
        self.port = settings.port  # listened on
        self.log = Log("rmqstore.serve")
        self.connections: set[Connection] = set()
        self.connecting: set[Connection] = set()  # accepted, and not among the connections yet
        self.unread = Unread(loop, self.log, settings.limits.write_buffer)
        self.kept_frames = KeptFrames(
            loop, self.log, self.connections, settings.limits.read_buffers
        )
        # Connections closed as there were too many. Bytes of requests answered later and of answers
        # waiting for the disk: of all clients, and of clients gone meanwhile.
        self.refused_connections = self.unanswered = self._gone_bytes = 0
        # Whether new connections are closed at once. Clients whose arbitrary delays were warned of:
        # ids, or addresses of clients without one.
        self.stopping, self.warned_of_timers = False, set[str]()
        # By code, but for those handled by the core: see ``sends``.
        self.requests: Counter[int] = Counter()
        self.handlers: dict[int, Handler] = dict(HANDLERS)  # tests may add some
        self.rules: RequestRules | None = None  # faults set by a test
        self.closing: list[Callable[[], object]] = []  # called before connections are closed
        self.lost: list[Callable[[Connection], object]] = []  # called for each lost connection
        self.replies = Replies()
        self.locks = Locks(store.clock.now)
        self.transactions = Transactions(self)
        self._advertised: str | None = None
        # Plain sends (310, 10, 320), and commits that change nothing (oneway 15), are handled by
        # the core. Else every request goes through ``dispatch``, as access control and faults of
        # tests require. May be changed at any time.
        self.hot_sends = settings.acl is None
        self.turns = Turns(loop, self.log)
        self.new_topics = NewTopics(self)
        self.sends = client_sends(self)  # shared by the sends of all connections, with their counts
        self.durable = DurableAnswers(self, self.sends)
        self.busy_poll = BusyPoll(loop)
        self.long_answers = LongAnswers(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Future[None]] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.clients = Clients(self)
        self.new_groups = NewGroups(self)
        self.holds = Holds(self)
        # Shares of offsets; topics made by sends of producers, and by request (17).
        self.offset_shares, self.produced_topics, self.asked_topics = (
            OffsetShares(self),
            ProducedTopics(self, settings.limits.topics),
            ProducedTopics(self, _ASKED_TOPICS),
        )
        self.distance, self.nameserver, self.rates = Distance(store), NameServer(), Rates(self)
        self.pull_filters = PullFilters()
        self.built_in_topics = built_in_topics(settings)
        self.lookups, self._changes, self._removals, self._ends = (
            OwnerPool(f"rmq-serve-{name}", threads) for name, threads in _POOLS
        )

    # Accounts

    @property
    def accounts_version(self) -> int:
        """Number of changes of the accounts."""
        return 0 if self.settings.acl is None else self.settings.acl.version

    def ask_again(self, connection: Connection, request: Request, version: int) -> None:
        """Check a request that waited again, if the accounts have changed since."""
        acl = self.settings.acl
        if acl is not None and acl.version != version:
            acl.check(self, connection, request)

    def allows(self, caller: Caller | None, *resources: Resource) -> bool:
        """Whether a caller is still permitted these resources."""
        acl = self.settings.acl
        return acl is None or (caller is not None and acl.allows(caller, *resources))

    # Connections

    def store_host(self, dialled: tuple[str, int]) -> str:
        """Return ``ip:port`` in records, for a connection to an address of ours."""
        if self._advertised is not None:
            return self._advertised
        host, port = self.settings.advertise or dialled
        try:
            family: int = ipaddress.ip_address(host.partition("%")[0]).version
            host = host.partition("%")[0]
        except ValueError:  # a name, resolved once
            host, family = _looked_up(host, dialled[0])
        text = f"[{host}]:{port}" if family == 6 else f"{host}:{port}"
        if self.settings.advertise is not None:
            self._advertised = text
        return text

    def connected(self, connection: Connection) -> None:
        """Note a new connection."""
        self.connecting.discard(connection)
        self.connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection, and its client's state."""
        self.connections.discard(connection)
        self._gone_bytes += self.unread.forget(connection) + self.kept_frames.forget(connection)
        self._gone_bytes += OF_TLS if connection.has_tls else 0
        if connection.is_slow or self._gone_bytes > LARGE:
            self._gone_bytes = 0
            give_back_soon(self.loop)
        for callback in self.lost:
            callback(connection)

    @property
    def unanswered_room(self) -> int:
        """Bytes left for requests until they are answered, shared by all clients."""
        return self.settings.limits.unanswered - self.unanswered

    # Requests

    def dispatch(self, connection: Connection, request: Request) -> None:
        """Handle a request and answer it."""
        if self.rules is not None and self.rules.take(connection, request):
            return
        self.handle(connection, request)

    def handle(self, connection: Connection, request: Request) -> None:
        """Handle a request, without the rules of a test."""
        handler = self.handlers.get(request.code)
        self.requests[request.code if handler is not None else UNKNOWN] += 1
        self.run(connection, request)

    def run(self, connection: Connection, request: Request) -> None:
        """Run a request's handler; a second time after waiting for a topic."""
        handler = self.handlers.get(request.code)
        try:
            if self.settings.acl is not None:
                connection.caller = self.settings.acl.check(self, connection, request)
            if handler is None:
                raise Refusal(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {request.code} not supported",
                )
            handled = handler(self, connection, request)
        except TopicAwaited as awaited:
            self.new_topics.park(connection, request, awaited.entry)
            return
        except Exception as error:
            handled = self.answer_to(request, error)
        if isinstance(handled, Answer):
            connection.answer(request, handled)
        elif isinstance(handled, Generator):
            self.long_answers.build(connection, request, handled, self.accounts_version)
        elif handled is not None:
            self.answers_later(
                connection,
                request,
                self.spawn(self._finish(connection, request, handled, self.accounts_version)),
            )

    def answers_later(
        self,
        connection: Connection,
        request: Request,
        done: asyncio.Future[None],
        *,
        alone: bool = False,
    ) -> None:
        """Count a request that is answered when a future is done; a stop waits for it.

        ``alone``: the connection's next requests are handled after it.
        """
        self._answering.add(done)
        (connection.waits_alone if alone else connection.waits_for)(request, done)
        done.add_done_callback(self._answering.discard)

    async def _finish(
        self,
        connection: Connection,
        request: Request,
        handled: Coroutine[Any, Any, Answer | AnswerSteps | None],
        version: int,
    ) -> None:
        try:
            self.ask_again(connection, request, version)  # a task begins with the next turn
            answer = await handled
            if isinstance(answer, Generator):
                self.long_answers.build(connection, request, answer, version)
                return
            if answer is not None and answer.body:  # else it only says what was done
                self.ask_again(connection, request, version)
        except ConnectionResetError:  # who has asked is gone
            return
        except Exception as error:
            answer = self.answer_to(request, error)
        finally:
            handled.close()
        if answer is not None:
            connection.answer(request, answer)

    def answer_to(self, request: Request, error: Exception) -> Answer:
        """Return the answer to a failed request."""
        if isinstance(error, Refusal):
            return error.answer
        if isinstance(error, OSError):  # of the disk: the paths are not the client's concern
            self.log.warning("request %s failed: %s", request.code, error)
            return Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error.strerror}")
        if not isinstance(error, StoreError):
            self.log.exception("request %s failed", request.code, error=error)
        return Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # Work of other threads

    async def change(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """Change files for a client when its turn comes, if it is there and allowed to by then."""
        return await self._changes.run(connection, call, check=self._check_of(connection, request))

    async def remove(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """Remove queues for a client, as ``change``; one such call of an owner at a time."""
        return await self._removals.run(connection, call, check=self._check_of(connection, request))

    async def end(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """End a transaction for a producer, connected or gone by its turn."""
        check = self._check_of(connection, request)
        return await self._ends.run(connection, call, check=check, anyway=True)

    def _check_of(self, connection: Connection, request: Request) -> Callable[[], None]:
        return partial(self.ask_again, connection, request, self.accounts_version)

    # Work of the loop

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the gateway stops."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def every(self, seconds: float, method: Callable[[], object], name: str) -> None:
        """Call a method every so many seconds, until the gateway stops."""
        key = len(self._timers)

        def run() -> None:
            self._timers[key] = self.loop.call_later(seconds, run)
            try:
                method()
            except Exception as error:
                self.log.warning("%s failed, and will be tried again: %s", name, error)

        self._timers[key] = self.loop.call_later(seconds, run)

    async def stop(self) -> None:
        """Take no more requests, answer the ones in progress, close the connections."""
        self.stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for connection in list(self.connections):
            connection.cease()
        left, until = _DRAIN_SECONDS, self.loop.time() + _DRAIN_SECONDS
        while self._answering and left > 0:
            _, pending = await asyncio.wait(set(self._answering), timeout=left)
            left = 0 if pending else until - self.loop.time()  # some begin with the end of others
        for callback in self.closing:
            try:
                callback()
            except Exception as error:  # such as a failing disk: the others still save theirs
                self.log.exception("a part of the gateway did not stop", error=error)
        for connection in list(self.connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        deadline = self.loop.time() + _CLOSE_SECONDS
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.001)
        for connection in list(self.connections):
            connection.abort()
        self.turns.close()
        for pool in (self.lookups, self._changes, self._removals, self._ends):
            pool.close()


def _looked_up(name: str, otherwise: str) -> tuple[str, int]:
    """Return the address and family (4 or 6) of a name; of the other address if it has none."""
    try:
        return socket.gethostbyname(name), 4
    except OSError:
        return otherwise, ipaddress.ip_address(otherwise).version
