"""The two servers that clients are run against: the real name server and broker, and ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import rmqstore
from interop.broker import Broker
from serve.killed import free_port
from serve.recording import PROXY_HOST, Recorder

# Settings of both, so that scenarios need not wait: transactions are asked for after a second,
# and not again before two more: a real broker commits twice what a client is slow to answer.
CHECK_TIMEOUT, CHECK_INTERVAL = 1000, 2000
BROKER_CONFIG = {
    "brokerIP1": PROXY_HOST,
    "transactionTimeOut": CHECK_TIMEOUT,
    "transactionCheckInterval": CHECK_INTERVAL,
}


class RealServer:
    """The real 4.9.3 name server and broker behind a recorder.  A context manager.

    Parameters
    ----------
    path : Path
        Of the store.
    config, broker_config : dict, optional
        Fields of MessageStoreConfig, and of BrokerConfig.
    broker : callable, optional
        Makes the process of both.
    """

    name = "real"

    def __init__(
        self,
        path: Path,
        config: dict[str, Any] | None = None,
        broker_config: dict[str, Any] | None = None,
        broker: Callable[[], Broker] = Broker,
    ) -> None:
        self._broker = broker()
        try:
            told = {**BROKER_CONFIG, **(broker_config or {})}
            started = self._broker.start(path, config or {}, told)
            broker_port = int(started["store_host"].rpartition(":")[2])
            self.ports = {
                "names": started["names_port"],
                "broker": broker_port,
                "vip": broker_port - 2,
            }
            self.recorder = Recorder(self.ports)
        except BaseException:
            self._broker.close()
            raise
        self.pid = self._broker.pid
        self.namesrv = f"{PROXY_HOST}:{self.ports['names']}"
        self.broker = self._broker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.recorder.__exit__()
        self._broker.close()

    def stop(self) -> None:
        """Close the store, for the next reader."""
        assert self._broker.shutdown()


class OurServer:
    """``rmqstore.serve`` behind a recorder.  A context manager."""

    name = "ours"

    def __init__(self, path: Path, **options: Any) -> None:
        port = free_port()
        config = rmqstore.StoreConfig(
            transaction_timeout=CHECK_TIMEOUT, transaction_check_interval=CHECK_INTERVAL
        )
        self.server = rmqstore.serve(
            path, port=port, advertise=f"{PROXY_HOST}:{port}", config=config, **options
        )
        self.ports = {"broker": port, "vip": port - 2}
        self.recorder = Recorder(self.ports)
        self.namesrv = f"{PROXY_HOST}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.recorder.__exit__()
        self.server.close()

    def stop(self) -> None:
        """Close the store, for the next reader."""
        self.server.close()
