"""Wiring of a gateway, and the dispatch of requests to their handlers.

Source: ``broker/BrokerController.java``, ``remoting/netty/NettyRemotingAbstract.java
processRequestCommand``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from rmqstore.serve.accounts.access import Access
from rmqstore.serve.admin.broker import BrokerAdmin
from rmqstore.serve.admin.connections import ConnectionAdmin
from rmqstore.serve.admin.forwarding import Forwarding
from rmqstore.serve.admin.groups import GroupAdmin
from rmqstore.serve.admin.progress import ProgressAdmin
from rmqstore.serve.admin.queues import QueueAdmin
from rmqstore.serve.admin.resets import Resets
from rmqstore.serve.admin.topics import TopicAdmin
from rmqstore.serve.consuming.clients import Clients
from rmqstore.serve.consuming.distance import Distance
from rmqstore.serve.consuming.holding import Holds
from rmqstore.serve.consuming.locks import LockRequests, Locks
from rmqstore.serve.consuming.lookups import MessageLookups
from rmqstore.serve.consuming.newgroups import NewGroups
from rmqstore.serve.consuming.offsets import Offsets, OffsetShares
from rmqstore.serve.consuming.pulling import Pulls
from rmqstore.serve.consuming.pullreader import PullChecks, PullReader
from rmqstore.serve.figures.rates import Rates
from rmqstore.serve.figures.sources import GatewayFigures
from rmqstore.serve.network.answers import Answers, AnswerSteps, Handler
from rmqstore.serve.network.busypoll import BusyPoll
from rmqstore.serve.network.connection import Connection, Shared
from rmqstore.serve.network.connections import Connections
from rmqstore.serve.network.durable import DurableAnswers
from rmqstore.serve.network.longanswers import LongAnswers
from rmqstore.serve.network.ownerpool import Pools
from rmqstore.serve.network.work import Work
from rmqstore.serve.producing.hotsends import client_sends
from rmqstore.serve.producing.replies import Replies
from rmqstore.serve.producing.retrying import GiveBack
from rmqstore.serve.producing.sending import Sends
from rmqstore.serve.producing.transactions import Transactions
from rmqstore.serve.topics.nameserver import NameServer
from rmqstore.serve.topics.newtopics import NewTopics, TopicAwaited
from rmqstore.serve.topics.producedtopics import ProducedTopics, SentTopics
from rmqstore.serve.topics.routes import Routes
from rmqstore.serve.topics.topictable import ServedTopics
from rmqstore.serve.wire.codes import UNKNOWN, ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request

if TYPE_CHECKING:
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["Gateway"]

_ASKED_TOPICS = 100_000  # limit of topics created by request


class Gateway:
    """Wiring of a gateway, and the dispatch of requests; used only in its loop."""

    def __init__(
        self, store: MessageStore, settings: Settings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.store = store
        self.settings = settings
        self.handlers: dict[int, Handler] = {}  # tests may add some
        # Injects faults of a test: called before a request is handled; True takes it over.
        self.intercept: Callable[[Connection, Request], bool] | None = None
        # Requests by code; the core counts its own: see ``sends``.
        self.requests: Counter[int] = Counter()
        self.work = Work(loop)
        self.connections: Connections[Connection] = Connections(self.work, settings)
        self.access = Access(settings.acl, store, self.handlers)
        self.answers = Answers(self.work)
        self.pools = Pools(self.access)
        self.long_answers = LongAnswers(
            self.work, self.connections.unread, self.access, self.answers
        )
        self.topics = ServedTopics(store, settings)
        self.nameserver = NameServer(store, settings, self.topics, self.pools)
        self.new_topics = NewTopics(store, self.work, self.answers, self.run)
        # Topics created by sends of producers, and by request (17).
        self.produced_topics, self.asked_topics = (
            ProducedTopics(store.registry, self.new_topics, self.work.turns, most)
            for most in (settings.limits.topics, _ASKED_TOPICS)
        )
        # The core's state for plain sends, with their counts; shared by all connections.
        self.sends = client_sends(store, settings, self.new_topics, self.work)
        self.durable = DurableAnswers(store, self.work, self.sends)
        self.rates = Rates(store, settings, self.work)
        self._handle_consumers()
        self.shared = Shared(
            settings,
            self.work,
            self.connections,
            self.sends,
            self.durable,
            BusyPoll(loop),
            dispatch=self.dispatch,
            resumed=self.holds.go_on,
            hot_sends=settings.acl is None,
        )
        self.figures = GatewayFigures(
            store, settings, self.work, self.connections, self.clients, self.holds, self.locks,
            self.rates, self.sends, self.requests,
        )  # fmt: skip
        self._handle_names_and_sends()
        self._handle_admin()
        if settings.acl is not None:
            from rmqstore.serve.accounts.changes import AccountChanges

            AccountChanges(self.work, settings.acl, self._accounts_changed)

    def _handle_consumers(self) -> None:
        """Make the consumer tables, and add their handlers."""
        store, settings, work, connections = self.store, self.settings, self.work, self.connections
        self.new_groups = NewGroups(store, settings, work)
        self.clients = Clients(settings, connections, work, self.access, self.new_groups)
        self.distance = Distance(store)
        checks = PullChecks(settings, self.new_groups, self.topics, self.clients)
        reader = PullReader(store, checks, self.distance, connections.unread, self.rates.got)
        self.holds = Holds(
            store,
            settings,
            work,
            connections,
            reader,
            access=self.access,
            answers=self.answers,
        )
        self.locks = Locks(store.clock.now)
        self.offset_shares = OffsetShares(store, self.topics, work, settings)
        self.offsets = Offsets(store, self.topics, self.offset_shares, self.distance)
        for part in (
            self.clients,
            self.offsets,
            LockRequests(self.locks, self.topics, settings),
            MessageLookups(store, self.pools, connections.unread),
            Pulls(reader, self.holds, self.offsets, self.access, connections.unread),
        ):
            self.handlers.update(part.handlers())

    def _handle_names_and_sends(self) -> None:
        """Add the handlers of the name server and of producers."""
        store, settings, work = self.store, self.settings, self.work
        sent_topics = SentTopics(self.topics, self.new_topics, self.produced_topics, settings)
        sends = Sends(
            store,
            settings,
            work,
            sent_topics,
            new_topics=self.new_topics,
            durable=self.durable,
        )
        self.replies = Replies(
            store, settings, work, self.access, clients=self.clients, sends=sends
        )
        self.transactions = Transactions(store, work, self.access, self.pools, self.clients)
        for part in (
            self.nameserver,
            Routes(settings, self.topics, self.nameserver),
            sends,
            self.replies,
            self.transactions,
            GiveBack(
                store,
                settings,
                work,
                self.new_topics,
                self.new_groups,
                sent_back=self.rates.sent_back,
            ),
        ):
            self.handlers.update(part.handlers())

    def _handle_admin(self) -> None:
        """Add the handlers of admin requests."""
        store, settings, topics, clients = self.store, self.settings, self.topics, self.clients
        for part in (
            TopicAdmin(
                store, settings, self.work, self.pools, topics,
                names=self.nameserver, produced=self.produced_topics, asked=self.asked_topics,
                rates=self.rates,
            ),
            QueueAdmin(store, settings, topics, clients),
            GroupAdmin(
                store, settings, self.work, self.pools, topics,
                new_groups=self.new_groups, rates=self.rates,
            ),
            ConnectionAdmin(store, clients, self.work),
            ProgressAdmin(
                store, settings, topics, clients, self.offsets, rates=self.rates
            ),
            BrokerAdmin(store, settings, topics, self.rates),
            Resets(
                store, settings, topics, clients, self.connections.unread,
                long_answers=self.long_answers,
            ),
            Forwarding(store, settings, clients, self.access),
        ):  # fmt: skip
            self.handlers.update(part.handlers())

    def _accounts_changed(self) -> None:
        """End pulls, memberships and locks of callers that are no longer permitted."""
        self.holds.ask_again()
        self.clients.ask_again()
        self.work.turns.add(self.locks.end_refused(self.access.allows))

    # Requests

    def dispatch(self, connection: Connection, request: Request) -> None:
        """Handle a request, unless a fault of a test takes it over."""
        if self.intercept is None or not self.intercept(connection, request):
            self.handle(connection, request)

    def handle(self, connection: Connection, request: Request) -> None:
        """Handle a request, without the faults of a test."""
        self.requests[request.code if request.code in self.handlers else UNKNOWN] += 1
        self.run(connection, request)

    def run(self, connection: Connection, request: Request) -> None:
        """Run a request's handler; run again once an awaited topic exists."""
        handler = self.handlers.get(request.code)
        try:
            self.access.check(connection, request)
            if handler is None:
                raise Refusal(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {request.code} not supported",
                )
            handled = handler(connection, request)
        except TopicAwaited as awaited:
            self.new_topics.park(connection, request, awaited.entry)
            return
        except Exception as error:
            handled = self.answers.to(request, error)
        if isinstance(handled, Answer):
            connection.answer(request, handled)
        elif isinstance(handled, Generator):
            self.long_answers.build(connection, request, handled, self.access.version)
        elif handled is not None:
            finishing = self._finish(connection, request, handled, self.access.version)
            self.answers.later(connection, request, self.work.spawn(finishing))

    async def _finish(
        self,
        connection: Connection,
        request: Request,
        handled: Coroutine[Any, Any, Answer | AnswerSteps | None],
        version: int,
    ) -> None:
        try:
            self.access.ask_again(connection, request, version)  # a later turn of the loop
            answer = await handled
            if isinstance(answer, Generator):
                self.long_answers.build(connection, request, answer, version)
                return
            if answer is not None and answer.body:  # else a mere confirmation
                self.access.ask_again(connection, request, version)
        except ConnectionResetError:  # the client is gone
            return
        except Exception as error:
            answer = self.answers.to(request, error)
        finally:
            handled.close()
        if answer is not None:
            connection.answer(request, answer)

    async def stop(self) -> None:
        """Stop reading requests, answer those in progress, close the connections."""
        self.work.stop_timers()
        self.connections.cease()
        await self.answers.drain()
        self.work.close_parts()
        self.connections.close()
        await self.work.end_tasks()
        await self.connections.end()
        self.work.turns.close()
        self.pools.close()
