"""The metrics port: ``/metrics`` for Prometheus, and a page for people.

Source: rocketmq-exporter's ``RMQMetricsCollector.java``.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rmqstore.metrics import (
    RUNTIME,
    RUNTIME_LABELS,
    StoreCollector,
    need_client,
    runtime_labels,
)
from rmqstore.serve.figures.http import HttpServer, Reply
from rmqstore.serve.figures.lag import OnlineGroup, counted_offsets, online_groups
from rmqstore.serve.figures.rates import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from rmqstore.serve.wire.codes import UNKNOWN

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from rmqstore.brokerfiles.offsets import Offsets
    from rmqstore.serve.figures.sources import GatewayFigures
    from rmqstore.store import MessageStore

__all__ = ["MetricsServer", "gateway_figures"]

# Exporter's name of a rate: counter, description.
_RATES = {
    "rocketmq_producer_tps": (TOPIC_PUT_NUMS, "messages put a second"),
    "rocketmq_producer_message_size": (TOPIC_PUT_SIZE, "bytes of their records a second"),
    "rocketmq_consumer_tps": (GROUP_GET_NUMS, "messages pulled a second"),
    "rocketmq_consumer_message_size": (GROUP_GET_SIZE, "bytes of their records a second"),
    "rocketmq_send_back_nums": (SNDBCK_PUT_NUMS, "messages given back a second"),
}
_STEP = 64  # figures taken between two steps


class MetricsServer(HttpServer):
    """Server of the figures of a gateway and its store."""

    @staticmethod
    def bind(port: int) -> socket.socket:
        """Return a port's socket; ``OSError`` if in use, ``ImportError`` without the client."""
        need_client()
        return HttpServer.bind(port)

    def __init__(self, figures: GatewayFigures, listening: socket.socket) -> None:
        super().__init__(listening)
        self._sources = figures
        self.add({"/metrics": self.made_once(self._metrics)})

    async def _metrics(self) -> Reply:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        # The gateway's figures are read in its loop, which this is; the rest is done in a thread.
        figures = self._sources
        run = figures.work.turns.run
        own = CollectorRegistry()
        own.register(_Families(await run(gateway_figures(figures))))
        store_s = CollectorRegistry()
        online = await run(online_groups(figures.clients))
        store_s.register(_StoreFamilies(figures, online))
        of_store = await self.aside(generate_latest, store_s)
        return Reply(of_store + await self.aside(generate_latest, own), CONTENT_TYPE_LATEST)


class _StoreFamilies(StoreCollector):
    """Figures of the gateway's store, with the subscriptions of connected consumers."""

    def __init__(self, figures: GatewayFigures, online: Mapping[str, OnlineGroup]) -> None:
        settings = figures.settings
        super().__init__(figures.store, settings.cluster, settings.broker)
        self._online = online
        self._limit = settings.limits.offsets

    def _offsets(self, store: MessageStore) -> Offsets:
        return counted_offsets(store, self._online, self._limit)


class _Families:
    """Collector of figures taken before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def gateway_figures(figures: GatewayFigures) -> Generator[None, None, list[Metric]]:
    """Return the figures of a gateway without its store's, in steps of its loop."""
    found = yield from _rates(figures)
    found += yield from _clients(figures)
    return [*found, *_runtime(figures), *_own(figures)]


def _rates(figures: GatewayFigures) -> Generator[None, None, list[Metric]]:
    """Return rates a second, over the last minute."""
    from prometheus_client.core import GaugeMetricFamily

    settings = figures.settings
    broker = (settings.cluster, settings.broker)
    found: list[Metric] = []
    yield from figures.rates.read()
    for name, (counter, text) in _RATES.items():
        of_groups = counter not in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE)
        labels = ("cluster", "broker", "topic", *(("group",) if of_groups else ()))
        family = GaugeMetricFamily(name, text, labels=labels)
        for number, (key, rate) in enumerate(figures.rates.rates(counter)):
            family.add_metric((*broker, *(key.rsplit("@", 1) if of_groups else (key,))), rate)
            if number % _STEP == _STEP - 1:
                yield
        found.append(family)
    return found


def _clients(figures: GatewayFigures) -> Generator[None, None, list[Metric]]:
    """Return the number of clients by group; by address, each client would add a new series."""
    from prometheus_client.core import GaugeMetricFamily

    settings, clients = figures.settings, figures.clients
    consumers = GaugeMetricFamily(
        "rocketmq_group_count", "consumers of a group", labels=("caddr", "localaddr", "group")
    )
    for number, (name, group) in enumerate(list(clients.groups.items())):
        members = len(group.members)
        if members:
            consumers.add_metric(("", "", name), members)
        if number % _STEP == _STEP - 1:
            yield
    producers = GaugeMetricFamily(
        "rocketmq_producer_count", "producers of a group", labels=("cluster", "broker", "group")
    )
    for number, name in enumerate(list(clients.producer_groups)):
        members = len(clients.producers(name))
        if members:
            producers.add_metric((settings.cluster, settings.broker, name), members)
        if number % _STEP == _STEP - 1:
            yield
    return [consumers, producers]


def _runtime(figures: GatewayFigures) -> Iterator[Metric]:
    """Yield the gateway's part of the runtime info: messages put and read, by day."""
    from prometheus_client.core import GaugeMetricFamily

    settings, rates = figures.settings, figures.rates
    boot = figures.store.core.figures()["opened_at"]
    where = runtime_labels(figures.store, settings.cluster, settings.broker, boot)
    for name, text, value in (
        ("msg_put_total_today_now", "messages put", rates.put_total),
        ("msg_puttotal_todaymorning", "put until this morning", rates.put_morning[1]),
        ("msg_puttotal_yesterdaymorning", "put until yesterday's", rates.put_morning[0]),
        ("msg_gettotal_today_now", "messages read", rates.got_total),
        ("msg_gettotal_todaymorning", "read until this morning", rates.got_morning[1]),
        ("msg_gettotal_yesterdaymorning", "read until yesterday's", rates.got_morning[0]),
    ):
        family = GaugeMetricFamily(RUNTIME + name, text, labels=RUNTIME_LABELS)
        family.add_metric(where, value)
        yield family


def _own(figures: GatewayFigures) -> Iterator[Metric]:
    """Yield figures specific to this gateway."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    settings = figures.settings
    broker = (settings.cluster, settings.broker)
    labels = ("cluster", "broker")
    for name, text, value in (
        ("rmqstore_connections", "connections of clients", len(figures.connections.open)),
        ("rmqstore_held_pulls", "pulls that wait for messages", len(figures.holds)),
        ("rmqstore_held_pull_bytes", "of pulls that wait for messages", figures.holds.taken),
        ("rmqstore_queue_locks", "locks of queues, also expired ones", len(figures.locks)),
        (
            "rmqstore_read_buffer_bytes",
            "of requests that are not complete, wait for their turn or for their answer",
            figures.connections.kept_frames.taken,
        ),
        (
            "rmqstore_unanswered_bytes",
            "of requests that are answered later, and of answers that wait for the disk",
            figures.connections.unanswered,
        ),
        (
            "rmqstore_write_buffer_bytes",
            "of answers that clients have not taken",
            sum(one.unwritten for one in figures.connections.open),
        ),
    ):
        gauge = GaugeMetricFamily(name, text, labels=labels)
        gauge.add_metric(broker, value)
        yield gauge
    refused = CounterMetricFamily(
        "rmqstore_refused_connections", "closed as there were too many", labels=labels
    )
    refused.add_metric(broker, figures.connections.refused)
    yield refused
    requests = CounterMetricFamily(
        "rmqstore_requests", "requests of clients by their code", labels=(*labels, "code")
    )
    counts = figures.requests + Counter(figures.sends.requests())
    for code, count in sorted(counts.items()):
        requests.add_metric((*broker, str(code) if code != UNKNOWN else "unknown"), count)
    yield requests
