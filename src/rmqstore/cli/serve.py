"""``serve``: name server and broker for RocketMQ clients, until it is told to stop."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from rmqstore.cli.common import load_config, refuse_foreign, store_command
from rmqstore.cli.completion import complete_file
from rmqstore.cli.failures import USAGE, CliError

if TYPE_CHECKING:
    from rmqstore.serve.server import Server as RunningServer

__all__ = ["serve"]

_FORCED = 1  # exit code at the second signal
_PORT = 9876  # of a name server


class _JsonLines(logging.Formatter):
    """A log record as an object on a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return _json_line(
            record.levelname.lower(),
            record.getMessage(),
            when=record.created,
            error=self.formatException(record.exc_info) if record.exc_info else None,
        )


class _Lines(logging.Formatter):
    """A log record as the other lines of the command."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback of an error of ours."""
        return "rmqstore: " + super().format(record)


def _json_line(level: str, message: str, *, when: float, **fields: object) -> str:
    shown = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + f".{int(when * 1000) % 1000:03}Z"
    )
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"time": shown, "level": level, "message": message, **given})


@store_command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Of name server and broker; 0 takes a free one. The VIP channel has the port minus two.  "
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
    help="The address in routes and message ids.  [default: what the client dialled]",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="Answer once a message is in the log, or once it is on the disk.  [default: async]",
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
    flush: str | None,
    auto_create: bool | None,
    tls_cert: str | None,
    tls_key: str | None,
    acl: str | None,
    metrics_port: int | None,
) -> None:
    """Serve a store to RocketMQ clients, as name server and broker in one; it is made if missing.

    Messages are kept for 72 hours where no configuration says otherwise. SIGTERM and SIGINT stop
    it: what is being answered is, the store is flushed and closed; a second one ends it at once.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key are given together")
    refuse_foreign(Path(store))
    settings = load_config(config)
    _log_to_standard_error()
    stop = threading.Event()
    _stop_on_signals(stop)
    from rmqstore.serve.conf import BrokerConf
    from rmqstore.serve.network.descriptors import raise_limit
    from rmqstore.serve.server import Server
    from rmqstore.serve.serving import served

    raise_limit()
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
                flush=flush,
                tls=(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
                acl=acl,
                metrics_port=metrics_port,
                config=settings,
                # What is said here wins over the file.
                conf=dataclasses.replace(
                    conf,
                    port=port or None,
                    auto_create=conf.auto_create if auto_create is None else auto_create,
                ),
            )
        )
    except (ValueError, TypeError, ImportError) as error:
        raise CliError(str(error), USAGE) from None
    with server:
        _say_where(server)
        stop.wait()


def _say_where(server: RunningServer) -> None:
    """Write the line that says where clients connect, to standard output."""
    log = logging.getLogger("rmqstore.serve")
    for mended in server.store.recovery.ranges:
        log.warning("%s", mended)
    hours = server.store.config.file_reserved_time
    kept = "for ever" if hours is None else f"for {hours} hours"
    text = f"serving {server.store.path} at {server.address}, name server and broker"
    page = server.metrics_address
    url = f"http://{page}/" if page else None
    if sys.stdout.isatty():
        click.echo(
            f"rmqstore: {text}; messages are kept {kept}" + (f"; page: {url}" if url else "")
        )
    else:
        where = {"address": server.address, "store": server.store.path, "pid": os.getpid()}
        line = _json_line(
            "info", text, when=time.time(), **where, file_reserved_hours=hours, page=url
        )
        click.echo(line)
    if not sys.stderr.isatty():
        log.info("%s", text)
        log.info("messages are kept %s", kept)


def _log_to_standard_error() -> None:
    """Write the log to standard error: lines for people in a terminal, objects elsewhere."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if sys.stderr.isatty() else _JsonLines())
    log = logging.getLogger("rmqstore")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _stop_on_signals(stop: threading.Event) -> None:
    """Have SIGTERM and SIGINT set the event, and the second of them end the process."""

    def stopped(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(_FORCED)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)
