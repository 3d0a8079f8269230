"""The metrics port: ``/metrics`` for Prometheus, and a page for people.

Source: rocketmq-exporter's ``RMQMetricsCollector.java``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmqstore.metrics import collector
from rmqstore.serve.figures.http import HttpServer, Reply, Resource
from rmqstore.serve.page import resources

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from rmqstore.serve.gateway import Gateway

__all__ = ["MetricsServer"]


class MetricsServer(HttpServer):
    """Serves the figures of a gateway and of its store.

    Parameters
    ----------
    gateway : Gateway
    port : int
        On 127.0.0.1; 0 takes a free one.

    Raises
    ------
    ImportError
        prometheus-client is not installed.
    OSError
        The port is in use.
    """

    def __init__(self, gateway: Gateway, port: int) -> None:
        settings = gateway.settings
        of_store = collector(gateway.store, cluster=settings.cluster, broker=settings.broker)
        from prometheus_client import CollectorRegistry

        self._registry = CollectorRegistry()
        self._registry.register(of_store)
        self._registry.register(_Collector(gateway))
        pages: dict[str, Resource] = {"/metrics": self._metrics}
        super().__init__(port, pages)
        pages.update(resources(gateway, self))

    async def _metrics(self, query: Mapping[str, str]) -> Reply:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return Reply(await self.aside(generate_latest, self._registry), CONTENT_TYPE_LATEST)


class _Collector:
    """The gateway's own figures."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def describe(self) -> list[Metric]:
        """Return nothing: registering reads nothing."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield how many connections there are."""
        from prometheus_client.core import GaugeMetricFamily

        settings = self._gateway.settings
        family = GaugeMetricFamily(
            "rmqstore_connections", "connections of clients", labels=("cluster", "broker")
        )
        family.add_metric((settings.cluster, settings.broker), len(self._gateway.connections))
        yield family
