"""``rmqstore.serve`` and ``rmqstore.aserve``: check the arguments, start a server.

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
    """Serve a store to RocketMQ clients, as name server and broker in one, in its own thread.

    Parameters
    ----------
    path : path-like, optional
        Directory of the store, made if missing. By default a temporary store with small files,
        removed at the end.
    port : int, optional
        Port of both roles; 0, the default, takes ``listenPort`` of a broker.conf, else a free one.
        Clients with the VIP channel on, the default before 4.5.1, send to the port minus two,
        which is listened on as well, and must be free.
    listen : str, optional
        Address to listen on: one of this machine's, or ``"0.0.0.0"`` for all of IPv4. The default
        is reachable from this machine only.
    advertise : str, optional
        ``"HOST:PORT"`` in routes and message ids. By default each client gets the address that
        it dialled, which is right unless ports are mapped; or ``brokerIP1`` of a broker.conf with
        the port, if other machines can connect.
    flush : str, optional
        ``"sync"`` answers once a message is on the disk, ``"async"`` once it is in the log;
        by default as configured, or asynchronous without a configuration.
    auto_create : bool, optional
        Whether a message to an unknown topic creates it; False also by
        ``autoCreateTopicEnable=false`` in a broker.conf.
    tls : SSLContext or (certificate, key), optional
        For clients that begin with TLS, on the same port; others use plain text. With a last
        ``"only"``, ``(certificate, key, "only")`` or ``(context, "only")``, plain-text connections
        are closed.
    acl : path of a plain_acl.yml, optional
        Accounts: every request must then be signed.
    metrics_port : int, optional
        Port on 127.0.0.1 of ``/metrics`` for Prometheus, and of a page for people at ``/``. 0
        takes a free port. By default there is neither.
    keep : int or "forever", optional
        Hours to keep messages; by default as configured.
    vip : bool, optional
        False does not listen on the port minus two: another listener there gets the messages of
        clients with the VIP channel on.
    on_corruption, verify : str, optional
        How to open the store, as in :func:`rmqstore.open`.
    config : StoreConfig or path of a broker.conf, optional
        As in :func:`rmqstore.open`. Without one, messages are deleted after 72 hours, as by a
        broker; a ``StoreConfig`` is used unchanged. Of a broker.conf the server also reads its
        own keys: names of cluster, broker and region, and those in docs/serve.md.

    Returns
    -------
    Server
        Running; close it, best by ``with``.

    Raises
    ------
    StoreLockedError
        The store is open for writing elsewhere.
    StoreCorruptError, IncompatibleStoreError
        From opening the store.
    OSError
        The port or the port minus two is in use, or the address is not this machine's
        (``filename`` is the address); or the store cannot be written (``filename`` is the
        path).
    ImportError
        ``acl`` needs PyYAML, ``metrics_port`` prometheus-client.
    TypeError, ValueError
        An argument has a wrong type or value; the message names it and the accepted values.

    Notes
    -----
    Source: ``broker/BrokerStartup.java``, ``namesrv/NamesrvStartup.java``.

    Examples
    --------
    >>> with rmqstore.serve(port=9876) as server:
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
    """Serve a store as :func:`rmqstore.serve`, in an asyncio program.

    The server has its own loop and thread: neither does it wait for the caller's loop, nor the
    caller's for its start and stop.

    Parameters
    ----------
    path, port, listen, advertise, flush, auto_create, tls, acl, metrics_port, keep, vip
        As in :func:`rmqstore.serve`.
    on_corruption, verify, config
        As in :func:`rmqstore.serve`.

    Returns
    -------
    AsyncServer
        For ``async with``, which gives the :class:`Server` and closes it; or ``await`` it, and
        close the server yourself.

    Raises
    ------
    StoreLockedError, StoreCorruptError, IncompatibleStoreError, OSError, ImportError
        At ``async with`` or ``await``, as in :func:`rmqstore.serve`.
    TypeError, ValueError
        An argument has a wrong type or value.

    Notes
    -----
    Source: ``broker/BrokerStartup.java``.

    Examples
    --------
    >>> async with rmqstore.aserve() as server:
    ...     await program(server.address)
    """
    options = locals()
    return AsyncServer(*served(**options))


class AsyncServer:
    """A server about to start; made by :func:`rmqstore.aserve`, for ``async with``."""

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
        """Start the server."""
        self._server = await self._start()
        return self._server

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the server, even if the caller is cancelled meanwhile."""
        assert self._server is not None
        closing = asyncio.ensure_future(asyncio.to_thread(self._server.close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise


class _Starting:
    """A start in a thread, completed even when nobody waits for it any more."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self._lock = threading.Lock()
        self._abandoned = False
        self._server: Server | None = None

    def run(self) -> Server:
        """Start a server; close it at once if abandoned meanwhile."""
        server = Server(*self._served)
        with self._lock:
            abandoned = self._abandoned
            self._server = server
        if abandoned:
            server.close()
        return server

    def abandon(self) -> None:
        """Have the server closed, whether started or not."""
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

    ``conf`` has the gateway's keys of a broker.conf, if ``config`` is not its path; ``names`` are
    names of arguments for errors, where they differ.
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
    """Return the store's configuration, by default with a broker's retention."""
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
    """Raise if the address is empty, or has a port."""
    if not listen:
        raise wrong_value(named["listen"], "an address of this machine", "")
    host, colon, port = listen.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        allowed = f"an address without a port, which is {named['port']}"
        raise wrong_value(named["listen"], allowed, listen)


def _own_host(host: str | None, listen: str, named: Mapping[str, str]) -> str | None:
    """Return a broker.conf's address for clients, if they can reach it."""
    if host is None or host == listen:
        return host
    if is_loopback(listen) and not (is_loopback(host) or host == "localhost"):
        _LOG.warning(
            "brokerIP1 is not told to clients: only %s is listened on (%s)", listen, named["listen"]
        )
        return None
    return host


def _tls(tls: object) -> tuple[ssl.SSLContext | None, bool]:
    """Return the context, and whether clients must begin with TLS."""
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
        Path(one).open("rb").close()  # the next call's error would name no file
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
