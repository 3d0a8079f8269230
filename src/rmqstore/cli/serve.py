"""``serve``: name server and broker for RocketMQ clients, until stopped."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from rmqstore.base.foreign import printable
from rmqstore.base.layout import INT32_MAX
from rmqstore.base.warn import Log
from rmqstore.cli.common import load_config, refuse_foreign, store_command
from rmqstore.cli.completion import complete_file
from rmqstore.cli.failures import UNREADABLE, USAGE, CliError, in_options
from rmqstore.cli.log_lines import json_line, write_log

if TYPE_CHECKING:
    from rmqstore.serve.server import Server as RunningServer

__all__ = ["serve"]

_LOG = Log("rmqstore.serve")

_FORCED = 1  # exit code at the second signal
_PORT = 9876  # of a name server
# GIL switch interval, 5 ms by default. The loop releases the GIL several times a request and waits
# up to an interval to get it back from a thread that makes figures, reads accounts or writes files.
_SWITCH_SECONDS = 0.0005
_MOST_HOURS = INT32_MAX  # of fileReservedTime
_NAMES = {
    "acl": "--acl",
    "advertise": "--advertise",
    "listen": "--listen",
    "metrics_port": "--metrics",
    "port": "--port",
}


def _hours(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> int | Literal["forever"] | None:
    """Return the hours of an option, or its word."""
    if value is None:
        return None
    if value == "forever":
        return "forever"
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_HOURS):
        raise click.UsageError(f"--keep is {value!r}, must be hours, 1 or more, or 'forever'", ctx)
    return int(value)


@store_command(
    examples=(
        "serve STORE",
        "serve STORE --listen 0.0.0.0 --keep 24 -c broker.conf",
    )
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Of name server and broker; 0 takes a free one. The VIP channel has the port minus two, "
    "which must be free.  "
    "[default: the configuration's listenPort, else 9876]",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; 0.0.0.0 for all.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address in routes and message ids. Where its port is mapped to ours, map the port "
    "minus two as well, for the VIP channel.  [default: what the client dialled]",
)
@click.option(
    "--vip/--no-vip",
    default=True,
    show_default=True,
    help="Whether to listen on the port minus two, where clients send whose VIP channel is on.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="Answer once a message is in the log, or once it is on the disk.  [default: async]",
)
@click.option(
    "--keep",
    metavar="HOURS|forever",
    callback=_hours,
    help="How old messages get before retention deletes them, in whole files of the log.  "
    "[default: the configuration's fileReservedTime, else 72]",
)
@click.option(
    "--on-corruption",
    type=click.Choice(["raise", "fill"]),
    default="raise",
    show_default=True,
    help="Of damage that good messages follow: stop, or put a filler in its place and save its "
    "bytes.",
)
@click.option(
    "--verify",
    type=click.Choice(["tail", "full"]),
    default="tail",
    show_default=True,
    help="Check what a crash may have left, or every message and every entry of the queues.",
)
@click.option(
    "--auto-create/--no-auto-create",
    default=None,
    help="Whether a message to an unknown topic makes it.  [default: as the configuration says, "
    "else auto-create]",
)
@click.option(
    "--tls-cert", metavar="FILE", shell_complete=complete_file, help="PEM, its chain too."
)
@click.option("--tls-key", metavar="FILE", shell_complete=complete_file, help="PEM.")
@click.option("--tls-only", is_flag=True, help="Close connections in plain text.")
@click.option(
    "--acl", metavar="FILE", shell_complete=complete_file, help="Accounts: a plain_acl.yml."
)
@click.option(
    "--metrics",
    "metrics_port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Figures at /metrics and a page for people at /, on 127.0.0.1.",
)
def serve(
    *,
    store: str,
    config: str | None,
    port: int | None,
    listen: str,
    advertise: str | None,
    vip: bool,
    flush: str | None,
    keep: int | Literal["forever"] | None,
    on_corruption: Literal["raise", "fill"],
    verify: Literal["tail", "full"],
    auto_create: bool | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_only: bool,
    acl: str | None,
    metrics_port: int | None,
) -> None:
    """Serve a store to RocketMQ clients, as name server and broker in one; it is made if missing.

    Messages are kept for 72 hours where neither --keep nor a configuration says otherwise. SIGTERM,
    SIGINT or, unless ignored, SIGHUP stops it: requests in progress are answered, then the store is
    flushed and closed. A second SIGTERM or SIGINT ends it at once.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key are given together")
    if tls_only and tls_cert is None:
        raise click.UsageError("--tls-only needs --tls-cert and --tls-key")
    refuse_foreign(Path(store))
    write_log(partial(in_options, verb=serve))
    # Warnings go to the log, as do later ones when it is applied.
    settings = load_config(config, lambda text: _LOG.warning("%s", text), strict=True)
    wait_for_signal = _stop_on_signals()
    from rmqstore.config.file_sizes import java_keys
    from rmqstore.serve.conf import BrokerConf
    from rmqstore.serve.network.descriptors import raise_limit
    from rmqstore.serve.network.sockets import VipPortError
    from rmqstore.serve.server import Server
    from rmqstore.serve.serving import served

    raise_limit()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        conf = BrokerConf.from_file(config) if config is not None else BrokerConf()
        if port is None:
            port = conf.port or _PORT
        server = Server(
            *served(
                store,
                port=port,
                listen=listen,
                advertise=advertise,
                vip=vip,
                flush=flush,
                tls=_tls(tls_cert, tls_key, only=tls_only),
                acl=acl,
                metrics_port=metrics_port,
                config=settings,
                keep=keep,
                on_corruption=on_corruption,
                verify=verify,
                names=_NAMES,
                # Options win over the file.
                conf=dataclasses.replace(
                    conf,
                    port=port or None,
                    auto_create=conf.auto_create if auto_create is None else auto_create,
                ),
            )
        )
    except (ValueError, TypeError, ImportError) as error:
        raise CliError(java_keys(str(error)), USAGE) from None
    except VipPortError as error:
        text = f"{error.filename}: {error.reason}; {error.conflict}"
        raise CliError(f"{text}: give another --port, or --no-vip", UNREADABLE) from None
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        option = "--metrics" if str(error.filename).endswith(f":{metrics_port}") else "--port"
        reason, mark, perhaps = str(error.strerror).partition(";")
        text = f"{error.filename}: {reason}; give another {option}, or 0 for a free one"
        raise CliError(f"{text}{mark}{perhaps}", UNREADABLE) from None
    with server:
        # Keep start-up objects, which live to the end, out of the collector's passes of 15 ms.
        gc.collect()
        gc.freeze()
        _print_addresses(server, store)
        wait_for_signal()
    _LOG.info("stopped; the store is flushed and closed")


def _tls(cert: str | None, key: str | None, *, only: bool) -> tuple[str, ...] | None:
    """Return the ``tls`` argument for the options."""
    if cert is None or key is None:
        return None
    return (cert, key, "only") if only else (cert, key)


def _print_addresses(server: RunningServer, store: str) -> None:
    """Write the addresses for clients to standard output, as lines on a terminal, else JSON."""
    for mended in server.store.recovery.ranges:
        _LOG.warning("%s", mended)
    hours = server.store.config.file_reserved_time
    kept = "for ever" if hours is None else f"for {hours} hour{'s' * (hours != 1)}"
    text = f"serving {server.store.path} at {server.address}, name server and broker"
    page = server.metrics_address
    url = f"http://{page}/" if page else None
    if sys.stdout.isatty():
        lines = [f"name server and broker at {server.address}"]
        lines.append(f"store {store}, messages are kept {kept}")
        lines += [f"page {url}"] if url else []
        for one in lines:
            click.echo(printable(f"rmqstore: {one}"))
    else:
        where = {"address": server.address, "store": server.store.path, "pid": os.getpid()}
        given = {**where, "file_reserved_hours": hours, "page": url}
        click.echo(json_line("info", text, when=time.time(), **given))
    if not sys.stderr.isatty():
        _LOG.info("%s", text)
        _LOG.info("messages are kept %s", kept)


def _stop_on_signals() -> Callable[[], None]:
    """Return a function that waits for a signal to stop; the second ends the process.

    A terminal that is closed sends SIGHUP; ``nohup`` has it ignored.

    The wait reads the interpreter's wakeup byte: a signal just before it would not interrupt a
    wait for a lock.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handled: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if handled and number != signal.SIGHUP:  # a closed terminal sends SIGHUP twice
            os._exit(_FORCED)
        handled.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)

    def wait() -> None:
        while not handled:
            os.read(reading, 1)

    return wait
