"""``rmqstore.serve`` and ``rmqstore.aserve``: arguments checked, then a server started.

Source: ``broker/BrokerStartup.java createBrokerController``.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.warn import Log
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve.conf import BrokerConf
from rmqstore.serve.network.sockets import VIP_DISTANCE, is_loopback, split_address
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, OpenHow, Settings

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Acl

__all__ = ["AsyncServer", "aserve", "serve", "served"]

StrPath = str | os.PathLike[str]
_Only = Literal["only"]
Tls = (
    ssl.SSLContext
    | tuple[ssl.SSLContext, _Only]
    | tuple[StrPath, StrPath]
    | tuple[StrPath, StrPath, _Only]
)

_LOG = Log("rmqstore.serve")

_NAMED = ("acl", "advertise", "listen", "metrics_port", "port")
RESERVED_HOURS = 72  # fileReservedTime of a broker: a server runs for months


def serve(
    path: StrPath | None = None,
    *,
    port: int = 0,
    listen: str = "127.0.0.1",
    advertise: str | None = None,
    flush: Literal["async", "sync"] | None = None,
    auto_create: bool = True,
    tls: Tls | None = None,
    acl: Acl | StrPath | None = None,
    metrics_port: int | None = None,
    keep: int | Literal["forever"] | None = None,
    vip: bool = True,
    on_corruption: Literal["raise", "fill"] = "raise",
    verify: Literal["tail", "full"] = "tail",
    config: StoreConfig | StrPath | None = None,
) -> Server:
    """Serve a store to RocketMQ clients, as name server and broker in one, in a thread of its own.

    Parameters
    ----------
    path : path-like, optional
        The directory of the store, made if it is missing. Without one a temporary store of small
        files, which is removed at the end.
    port : int, optional
        Of both roles; 0, the default, takes ``listenPort`` of a broker.conf, else a free one.
        Clients whose VIP channel is on, by default those before 4.5.1, send to the port minus two:
        that one is listened on as well, and must be free.
    listen : str, optional
        The address to listen on: one of this machine's, ``"0.0.0.0"`` for all of IPv4. Only
        this machine reaches the default.
    advertise : str, optional
        ``"HOST:PORT"`` in routes and message ids. Without it each client is given the address
        that it dialled, which is right but behind a port mapping; or ``brokerIP1`` of a
        broker.conf with the port, where others than this machine can connect.
    flush : str, optional
        ``"sync"`` answers once a message is on the disk, ``"async"`` once it is in the log;
        by default as the configuration says, which is asynchronous without one.
    auto_create : bool, optional
        Whether a message to an unknown topic makes it; ``autoCreateTopicEnable=false`` in a
        broker.conf is as good as False.
    tls : SSLContext or (certificate, key), optional
        For clients that begin with TLS, on the same port; others go on in plain text. With
        ``"only"`` behind it, ``(certificate, key, "only")`` or ``(context, "only")``, a connection
        in plain text is closed.
    acl : path of a plain_acl.yml, optional
        Accounts: every request must then be signed.
    metrics_port : int, optional
        Where ``/metrics`` for Prometheus is, and a page for people at ``/``: on 127.0.0.1. 0
        takes a free port. By default there is neither.
    keep : int or "forever", optional
        Hours that messages are kept; by default those of the configuration.
    vip : bool, optional
        False leaves the port minus two alone: whoever listens there gets what clients send whose
        VIP channel is on.
    on_corruption, verify : str, optional
        How the store is opened, as :func:`rmqstore.open` takes them.
    config : StoreConfig or path of a broker.conf, optional
        As :func:`rmqstore.open` takes it. Without one, messages are deleted after 72 hours, as a
        broker does; a ``StoreConfig`` is taken as it is. Of a broker.conf the server follows
        its own keys as well: names of cluster, broker and region, and those of docs/serve.md.

    Returns
    -------
    Server
        Running; to be closed, best by ``with``.

    Raises
    ------
    StoreLockedError
        The store is open for writing elsewhere.
    StoreCorruptError, IncompatibleStoreError
        As opening it raises them.
    OSError
        The port or the port minus two is in use, or the address is none of this machine's
        (``filename`` is the address);
        or the store cannot be written (``filename`` is the path).
    ImportError
        ``acl`` needs PyYAML, ``metrics_port`` prometheus-client: the extras ``serve`` and
        ``metrics``.
    TypeError, ValueError
        An argument has a wrong type or value; the message names it and what is allowed.

    Notes
    -----
    Source: ``broker/BrokerStartup.java``, ``namesrv/NamesrvStartup.java``.

    Examples
    --------
    >>> with rmqstore.serve(port=9876) as server:  # doctest: +SKIP
    ...     run_the_program_under_test(server.address)
    ...     assert server.store["orders"][0][0].body == b"paid"
    """
    options = locals()
    return Server(*served(**options))


def aserve(
    path: StrPath | None = None,
    *,
    port: int = 0,
    listen: str = "127.0.0.1",
    advertise: str | None = None,
    flush: Literal["async", "sync"] | None = None,
    auto_create: bool = True,
    tls: Tls | None = None,
    acl: Acl | StrPath | None = None,
    metrics_port: int | None = None,
    keep: int | Literal["forever"] | None = None,
    vip: bool = True,
    on_corruption: Literal["raise", "fill"] = "raise",
    verify: Literal["tail", "full"] = "tail",
    config: StoreConfig | StrPath | None = None,
) -> AsyncServer:
    """Serve a store as :func:`rmqstore.serve` does, in a program of asyncio.

    The server has a loop and a thread of its own: neither does it wait for the caller's loop, nor
    the caller's for its start and stop.

    Parameters
    ----------
    path, port, listen, advertise, flush, auto_create, tls, acl, metrics_port, keep, vip
        As :func:`rmqstore.serve` has them.
    on_corruption, verify, config
        As :func:`rmqstore.serve` has them.

    Returns
    -------
    AsyncServer
        For ``async with``, which gives the :class:`Server` and closes it; or ``await`` it, and
        close the server.

    Raises
    ------
    StoreLockedError, StoreCorruptError, IncompatibleStoreError, OSError, ImportError
        At ``async with`` and ``await``, as :func:`rmqstore.serve` raises them.
    TypeError, ValueError
        An argument has a wrong type or value.

    Notes
    -----
    Source: ``broker/BrokerStartup.java``.

    Examples
    --------
    >>> async with rmqstore.aserve() as server:  # doctest: +SKIP
    ...     await program(server.address)
    """
    options = locals()
    return AsyncServer(*served(**options))


class AsyncServer:
    """A server that is about to start; made by :func:`rmqstore.aserve`, for ``async with``."""

    def __init__(self, *served: Any) -> None:
        self._served = served
        self._server: Server | None = None

    async def _start(self) -> Server:
        starting = _Starting(self._served)
        try:
            return await asyncio.to_thread(starting.run)
        except asyncio.CancelledError:
            starting.abandon()
            raise

    def __await__(self) -> Generator[Any, None, Server]:
        return self._start().__await__()

    async def __aenter__(self) -> Server:
        """Start it."""
        self._server = await self._start()
        return self._server

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; also where the caller is cancelled meanwhile."""
        assert self._server is not None
        closing = asyncio.ensure_future(asyncio.to_thread(self._server.close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise


class _Starting:
    """A start in a thread, which goes on where nobody waits for it any more."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self._lock = threading.Lock()
        self._abandoned = False
        self._server: Server | None = None

    def run(self) -> Server:
        """Start; close at once if abandoned meanwhile."""
        server = Server(*self._served)
        with self._lock:
            abandoned = self._abandoned
            self._server = server
        if abandoned:
            server.close()
        return server

    def abandon(self) -> None:
        """Have the server closed, started or not."""
        with self._lock:
            self._abandoned = True
            server = self._server
        if server is not None:
            threading.Thread(target=server.close, name="rmq-serve-close").start()


def served(
    path: StrPath | None = None,
    *,
    port: int = 0,
    listen: str = "127.0.0.1",
    advertise: str | None = None,
    flush: str | None = None,
    auto_create: bool = True,
    tls: object = None,
    acl: object = None,
    metrics_port: int | None = None,
    keep: int | Literal["forever"] | None = None,
    vip: bool = True,
    on_corruption: Literal["raise", "fill"] = "raise",
    verify: Literal["tail", "full"] = "tail",
    config: StoreConfig | StrPath | None = None,
    conf: BrokerConf | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> tuple[StrPath | None, Settings, StoreConfig, OpenHow, int | None]:
    """Check the arguments of :func:`serve`, and return those of :class:`Server`.

    ``conf`` has the gateway's keys of a broker.conf, where ``config`` is not its path; ``names``
    are names of arguments in errors, where they differ.
    """
    _of_type("path", path, (str, os.PathLike, NoneType), "a path or None")
    _port("port", port)
    if metrics_port is not None:
        _port("metrics_port", metrics_port)
    _of_type("listen", listen, (str,), "str")
    _of_type("advertise", advertise, (str, NoneType), "str")
    _of_type("auto_create", auto_create, (bool,), "bool")
    _of_type("vip", vip, (bool,), "bool")
    named = {name: names.get(name, name) for name in _NAMED}
    _check_address(listen, named)
    one_of("on_corruption", on_corruption, ("raise", "fill"))
    one_of("verify", verify, ("tail", "full"))
    chosen = _config(config, flush, small=path is None)
    if keep is not None:
        chosen = chosen.replace(file_reserved_time=None if keep == "forever" else keep)
    from_file = False
    if config is not None and not isinstance(config, StoreConfig):
        from_file = True
        conf = conf or BrokerConf.from_file(config)
    conf = conf or BrokerConf()
    port = port or conf.port or 0
    taken = [port, port - VIP_DISTANCE] if vip else [port]
    if port and metrics_port in taken:
        clients = f"{' and '.join(map(str, taken))}, where clients connect"
        raise wrong_value(named["metrics_port"], f"a port other than {clients}", metrics_port)
    context, tls_only = _tls(tls)
    settings = Settings(
        host=listen,
        port=port,
        vip=vip,
        advertise=split_address(named["advertise"], advertise) if advertise is not None else None,
        own_host=_own_host(conf.host, listen, named) if advertise is None else None,
        auto_create=auto_create and conf.auto_create,
        auto_create_groups=conf.auto_create_groups,
        default_queue_nums=conf.default_queue_nums,
        trace_topic=conf.trace_topic if conf.trace else None,
        property_filter=conf.property_filter,
        tls=context,
        tls_only=tls_only,
        acl=_acl(acl),
        cluster=conf.cluster,
        broker=conf.broker,
        region=conf.region,
        limits=Limits(idle_seconds=conf.idle_seconds),
    )
    if conf.acl and settings.acl is None:
        _LOG.warning("aclEnable has no effect without the file of the accounts (%s)", named["acl"])
    how = OpenHow(config is None and path is not None, on_corruption, verify, from_file)
    return path, settings, chosen, how, metrics_port


def _of_type(name: str, value: object, kinds: tuple[type, ...], allowed: str) -> None:
    if not isinstance(value, kinds):
        raise wrong_type(name, allowed, value)


def _port(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, "int", value)
    if not 0 <= value <= 65535:
        raise wrong_value(name, "0 to 65535", value)


def _config(config: object, flush: object, *, small: bool) -> StoreConfig:
    """Return the configuration of the store: without one a broker's for a server."""
    allowed = "a StoreConfig or the path of a broker.conf"
    _of_type("config", config, (StoreConfig, str, os.PathLike, NoneType), allowed)
    if isinstance(config, StoreConfig):
        made = config
    elif isinstance(config, (str, os.PathLike)):
        made = StoreConfig.from_file(config)
    elif small:
        made = StoreConfig.small(file_reserved_time=RESERVED_HOURS)
    else:
        made = StoreConfig(file_reserved_time=RESERVED_HOURS)
    if flush is None:
        return made
    if not isinstance(flush, str):
        raise wrong_type("flush", "'async' or 'sync'", flush)
    kind = one_of("flush", flush, ("async", "sync")).upper()
    return made.replace(flush_disk_type=f"{kind}_FLUSH")


def _check_address(listen: str, named: Mapping[str, str]) -> None:
    """Raise if it is empty, or has a port."""
    if not listen:
        raise wrong_value(named["listen"], "an address of this machine", "")
    host, colon, port = listen.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        allowed = f"an address without a port, which is {named['port']}"
        raise wrong_value(named["listen"], allowed, listen)


def _own_host(host: str | None, listen: str, named: Mapping[str, str]) -> str | None:
    """Return the address of a broker.conf for clients, if they can reach it."""
    if host is None or host == listen:
        return host
    if is_loopback(listen) and not (is_loopback(host) or host == "localhost"):
        _LOG.warning(
            "brokerIP1 is not told to clients: only %s is listened on (%s)", listen, named["listen"]
        )
        return None
    return host


def _tls(tls: object) -> tuple[ssl.SSLContext | None, bool]:
    """Return the context, and whether a client must begin with TLS."""
    only = False
    if isinstance(tls, tuple) and tls[-1:] == ("only",):
        if len(tls) == 3:
            tls, only = tls[:2], True
        elif isinstance(tls[0], ssl.SSLContext):
            tls, only = tls[0], True
    if tls is None:
        return None, False
    if isinstance(tls, ssl.SSLContext):
        return tls, only
    if not (
        isinstance(tls, tuple)
        and len(tls) == 2
        and all(isinstance(one, (str, os.PathLike)) for one in tls)
    ):
        allowed = "an SSLContext, or the paths of a certificate and its key, and 'only' behind them"
        raise wrong_type("tls", allowed, tls)
    for one in tls:
        Path(one).open("rb").close()  # the error of the next call would name no file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(*tls)
    except ssl.SSLError as error:
        raise ValueError(
            f"tls: {os.fspath(tls[0])} and {os.fspath(tls[1])} are no certificate with its key: "
            f"{error}"
        ) from None
    return context, only


def _acl(acl: object) -> Acl | None:
    if acl is None:
        return None
    from rmqstore.serve.accounts.acl import Acl

    if isinstance(acl, Acl):
        return acl
    if not isinstance(acl, (str, os.PathLike)):
        raise wrong_type("acl", "the path of a plain_acl.yml", acl)
    return Acl.from_file(acl)
