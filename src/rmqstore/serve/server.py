"""A running gateway: store, sockets, and a loop in its own thread.

Source: ``broker/BrokerStartup.java``, ``remoting/netty/NettyRemotingServer.java``.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import os
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.base.closing import Closing
from rmqstore.base.warn import Log
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreClosedError, StoreError, StoreFailedError
from rmqstore.files.links import absolute
from rmqstore.serve.gateway import Gateway
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.network.places import Places
from rmqstore.serve.network.sockets import (
    address_text,
    is_loopback,
    listen,
    origin_of,
    own_address,
)
from rmqstore.serve.network.tls import Handshakes, begins_with_tls
from rmqstore.serve.settings import OpenHow, Settings
from rmqstore.services.retention import deleted_text

if TYPE_CHECKING:
    from rmqstore.serve.figures.metrics import MetricsServer
    from rmqstore.store import MessageStore

__all__ = ["Server"]

T = TypeVar("T")

_LOG = Log("rmqstore.serve")
_STOP_SECONDS = 30.0  # until a loop that does not end is abandoned
_WATCH_SECONDS = 1.0
_ACCEPTED = 8  # connections per turn of the loop: some 2 ms with all consequences
_WARN_SECONDS = 60.0  # between warnings about clients without TLS


class Server(Closing):
    """A running gateway; made by :func:`rmqstore.serve`, ended by ``with`` or :meth:`close`.

    Attributes
    ----------
    address : str
        ``"127.0.0.1:PORT"``: the name server's address for clients.
    store : MessageStore
        The served store: other threads may put and read. Closed with the server.
    metrics_address : str or None
        Address of the page for people and of ``/metrics``.
    closed : bool
        Whether :meth:`close` was called.
    """

    address: str
    store: MessageStore
    metrics_address: str | None = None
    closed: bool = False

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: Settings,
        config: StoreConfig,
        how: OpenHow = OpenHow(),  # noqa: B008 - frozen
        metrics_port: int | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._temporary: str | None = None
        self._metrics_socket: socket.socket | None = None
        self._metrics: MetricsServer | None = None
        self._store_failed = False
        self._warn_of_plain = 0.0
        self._handshakes = Handshakes()
        try:
            self._open(path, settings, config, how, metrics_port)
        except BaseException:
            self.closed = True
            if hasattr(self, "_loop"):  # in a thread, as the caller's may have a running loop
                ending = threading.Thread(target=self._end_unstarted)
                ending.start()
                ending.join()
            if hasattr(self, "store"):
                self.store.services.abandon()
            self._release()
            raise
        self._thread = threading.Thread(target=self._run, name="rmq-serve", daemon=True)
        self._thread.start()
        self._at_exit = _closing_of(self)
        atexit.register(self._at_exit)

    def _open(
        self,
        path: str | os.PathLike[str] | None,
        settings: Settings,
        config: StoreConfig,
        how: OpenHow,
        metrics_port: int | None,
    ) -> None:
        from rmqstore.opening import open_store

        # Ports first: if one is in use nothing is made.
        if metrics_port is not None:
            from rmqstore.serve.figures.metrics import MetricsServer
            from rmqstore.serve.page import resources

            self._metrics_socket = MetricsServer.bind(metrics_port)
        self._sockets = listen(settings.host, settings.port, vip=settings.vip)
        host, port = self._sockets[0].getsockname()[:2]
        if settings.vip and len(self._sockets) == 1:
            _LOG.warning(
                "port %d has no port minus two: clients whose VIP channel is on cannot send; "
                "choose another port, or turn it off in them: setVipChannelEnabled(false)",
                port,
            )
        settings = dataclasses.replace(settings, port=port)
        if settings.own_host is not None:
            settings = dataclasses.replace(settings, advertise=(settings.own_host, port))
        named = settings.advertise or (own_address(host), port)
        self.address = address_text(*named)
        if path is None:
            path = self._temporary = tempfile.mkdtemp(prefix="rmqstore-")
        config = config.replace(store_host=address_text(_numeric(named[0], host), named[1]))
        root = absolute(path)
        self.store = open_store(
            root,
            "a",
            config,
            infer_sizes=how.infer_sizes,
            on_corruption=how.on_corruption,
            verify=how.verify,
            from_file=how.from_file,
        )
        self._loop = _new_loop()
        self._loop.set_exception_handler(_callback_failed)
        self.gateway = Gateway(self.store, settings, self._loop)
        self._places = Places(
            self.gateway.work, self.gateway.connections, settings.limits.connections
        )
        self.gateway.work.every(_WATCH_SECONDS, self._watch, "the look at the store")
        if self._metrics_socket is not None:
            figures = self.gateway.figures
            self._metrics = MetricsServer(figures, self._metrics_socket)
            self._metrics.add(resources(figures, self._metrics))
            self.metrics_address = self._metrics.address
        self._warn(host)

    def _warn(self, host: str) -> None:
        settings = self.gateway.settings
        if not is_loopback(host) and (settings.acl is None or settings.tls is None):
            missing = [
                name
                for name, value in (("accounts", settings.acl), ("TLS", settings.tls))
                if value is None
            ]
            _LOG.warning(
                "%s is reachable from other machines, without %s",
                address_text(host, settings.port),
                " and ".join(missing),
            )
        if settings.acl is not None and settings.tls is not None and not settings.tls_only:
            _LOG.warning(
                "plain text is taken beside TLS: whoever hears a request of an account can send it "
                "again; tls=(certificate, key, 'only') refuses it"
            )

    # In the thread of the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        if self._may_delete():
            # Not in the loop's executor, for which a stop would wait.
            threading.Thread(
                target=self._warn_of_deletion, name="rmq-serve-old", daemon=True
            ).start()
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        if self._metrics is not None:
            self._loop.create_task(self._metrics.start())
        while True:
            try:
                self._loop.run_forever()
                return
            except BaseException as error:  # SystemExit of a callback: continue for the others
                _LOG.critical("the loop was ended by an error, and goes on", error=error)
                if self._loop.is_closed():
                    return

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many files: retrying at once only burns time
                _LOG.warning("no connection is accepted for a second: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(1.0, self._accept_again, listening)
                return
            origin = origin_of(name[0])
            if not self._places.has_room(accepted.fileno(), origin):
                accepted.close()
                self.gateway.connections.refused += 1
                continue
            accepted.setblocking(False)
            with suppress(OSError):  # the client is gone already
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self.gateway.shared, origin)
            self.gateway.connections.connecting.add(connection)
            connecting = self.gateway.work.spawn(self._connect(accepted, connection))
            self._places.take(connection, connecting)

    def _accept_again(self, listening: socket.socket) -> None:
        if not self.closed:
            self._loop.add_reader(listening, self._accept, listening)

    async def _connect(self, accepted: socket.socket, connection: Connection) -> None:
        """Connect, with TLS if there is a certificate and the client begins with a handshake."""
        tls = self.gateway.settings.tls
        seconds = self.gateway.settings.limits.handshake_seconds
        # Once there is a transport, it closes the socket in any case.
        try:
            if tls is None or not await self._begins_with_tls(accepted, seconds):
                if self.gateway.settings.tls_only:
                    self._refuse_plain_text(accepted)
                    return
                await self._connect_plainly(accepted, connection)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=seconds
                )
        except (OSError, TimeoutError):  # SSLError is an OSError
            pass
        finally:
            self.gateway.connections.connecting.discard(connection)
            if connection not in self.gateway.connections.open:
                self._places.leave(connection)

    def _refuse_plain_text(self, accepted: socket.socket) -> None:
        """Close a plain-text connection, and warn now and then: its client does not learn why."""
        peer = "a client"
        with suppress(OSError):  # already gone
            peer = address_text(*accepted.getpeername()[:2])
        accepted.close()
        now = self._loop.time()
        if now >= self._warn_of_plain:
            self._warn_of_plain = now + _WARN_SECONDS
            _LOG.warning("%s: closed: it does not begin with TLS, which is asked for", peer)

    async def _begins_with_tls(self, accepted: socket.socket, seconds: float) -> bool:
        try:
            begins = await begins_with_tls(self._loop, accepted, seconds)
            if begins:
                await self._handshakes.turn()
            return begins
        except BaseException:
            accepted.close()
            raise

    async def _connect_plainly(self, accepted: socket.socket, connection: Connection) -> None:
        """Connect without TLS; a stop waits for the few turns of the loop that it takes.

        If a connection is cancelled in between, uvloop closes the socket but never reports the
        loss.
        """
        connecting = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: connection, accepted)
        )
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await connecting
            connection.abort()
            raise

    def _may_delete(self) -> bool:
        """Whether retention is on, and could delete a file."""
        if self.store.config.file_reserved_time is None:
            return False
        first, until, _ = self.store.core.removable_files()
        return first < until

    def _warn_of_deletion(self) -> None:
        """Warn of pending deletions; finding them reads old files to their end."""
        config = self.store.config
        try:
            old = self.store.delete_expired(dry_run=True)
        except StoreClosedError:
            return  # stopped meanwhile
        except (StoreError, OSError) as error:
            _LOG.warning(
                "what is older than %d h is not known: %s", config.file_reserved_time, error
            )
            return
        if old.files:
            _LOG.warning(
                "retention will delete %s: older than %d h; it does so at %s h, or when more than "
                "%d %% of the disk is used; a longer --keep, or fileReservedTime, keeps them",
                deleted_text(old),
                config.file_reserved_time,
                config.delete_when,
                config.disk_max_used_space_ratio,
            )

    def _watch(self) -> None:
        """Log, once, that the store no longer accepts messages."""
        if self._store_failed:
            return
        try:
            self.store.core.check_writable()
        except StoreFailedError as error:
            self._store_failed = True
            _LOG.critical(
                "the store failed, messages are refused until it is opened anew: %s", error
            )
        except StoreError:
            pass  # being closed

    async def _stop(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        if self._metrics is not None:
            self._metrics.stop()
        await asyncio.sleep(0)  # a task cancelled before its first step closes nothing
        await self.gateway.stop()
        with suppress(TimeoutError, RuntimeError):  # a query of a huge store is left running
            await asyncio.wait_for(self._loop.shutdown_default_executor(), 1.0)

    # From other threads

    def in_loop(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the loop, and return its result.

        Parameters
        ----------
        call : callable
            May use the gateway's state; must not wait.
        *arguments
            Its arguments.

        Raises
        ------
        RuntimeError
            The server is closed.
        """
        if self.closed or os.getpid() != self._pid:
            raise RuntimeError(f"the server at {self.address} is closed")
        if threading.current_thread() is self._thread:
            return call(*arguments)

        async def run() -> T:
            return call(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_STOP_SECONDS)

    def close(self) -> None:
        """Complete the answers in progress, then close the connections and the store.

        A second call only waits for the first. In a forked child process, which does not have
        the server, it does nothing. Called automatically at the end of the program.

        Raises
        ------
        StoreFailedError, OSError
            Acknowledged messages could not be flushed.

        Notes
        -----
        Source: ``broker/BrokerController.java shutdown``.
        """
        if os.getpid() != self._pid:
            return
        if threading.current_thread() is self._thread:  # would wait for itself
            threading.Thread(target=self.close, name="rmq-serve-close").start()
            return
        with self._closing:
            if self.closed:
                return
            self.closed = True
            atexit.unregister(self._at_exit)
            try:
                self._end_loop()
            finally:
                self._release()

    def _end_unstarted(self) -> None:
        if hasattr(self, "gateway"):
            self._loop.run_until_complete(self.gateway.stop())
        self._loop.close()

    def _end_loop(self) -> None:
        try:
            if self._thread.is_alive():
                stopping = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
                stopping.result(_STOP_SECONDS)
            elif not self._loop.is_closed():
                self._loop.run_until_complete(self._stop())
        except Exception as error:
            _LOG.exception("the gateway did not stop as it should", error=error)
        if self._thread.is_alive():
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def _release(self) -> None:
        for listening in self._sockets:
            listening.close()
        if self._metrics is not None:
            self._metrics.close()
        elif self._metrics_socket is not None:
            self._metrics_socket.close()
        try:
            store = getattr(self, "store", None)
            if store is not None:
                store.close()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"store={self.store.path!r}"
        return f"<rmqstore.Server {getattr(self, 'address', '')} {state}>"


def _callback_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a callback's error; the loop's own log would not make clients' text printable."""
    error = context.get("exception") or RuntimeError("there was no exception")
    _LOG.exception("%s", context["message"], error=error)


def _closing_of(server: Server) -> Callable[[], None]:
    """Return a function that closes a server at exit, without keeping the server alive."""
    found = weakref.ref(server)

    def close() -> None:
        server = found()
        if server is not None:
            server.close()

    return close


def _numeric(host: str, bound: str) -> str:
    """Return the address in records for an advertised host, which may be a name."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        pass
    else:
        return str(found[0][4][0])
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(host, None, socket.AF_INET6, socket.SOCK_STREAM)
        return str(found[0][4][0])
    _LOG.warning("%s has no address: records carry that of the socket", host)
    return own_address(bound)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
