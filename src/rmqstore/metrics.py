"""Prometheus metrics of a store, under rocketmq-exporter's names where they mean the same.

It needs the extra ``metrics`` (prometheus-client).

Source: rocketmq-exporter's ``RMQMetricsCollector.java``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.base.warn import log_warning
from rmqstore.consume.lag import bounds_by_topic, lag_of, time_of_one
from rmqstore.errors import StoreClosedError, StoreCorruptError
from rmqstore.services.figures import RATE_SECONDS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from rmqstore.brokerfiles.offsets import Offsets
    from rmqstore.store import MessageStore

__all__ = ["RUNTIME", "RUNTIME_LABELS", "StoreCollector", "collector", "runtime_labels"]

RUNTIME = "rocketmq_brokeruntime_"
RUNTIME_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
# Classes of put times, as the exporter names them.
_PUT_TIMES = (
    "0ms",
    "0to10ms",
    "10to50ms",
    "50to100ms",
    "100to200ms",
    "200to500ms",
    "500to1s",
    "1to2s",
    "2to3s",
    "3to4s",
    "4to5s",
    "5to10s",
    "10stomore",
)
_RATES = {
    "putTps": "put_tps",
    "getFoundTps": "getfound_tps",
    "getMissTps": "getmiss_tps",
    "getTotalTps": "gettotal_tps",
    "getTransferedTps": "gettransfered_tps",
}
# The exporter's name: our key in stats(), description.
_RUNTIME_FIGURES = {
    "dispatch_behind_bytes": ("dispatch_behind_bytes", "bytes that dispatch is behind the log"),
    "put_message_size_total": ("putMessageSizeTotal", "bytes of the records put"),
    "put_message_average_size": ("putMessageAverageSize", "bytes of a record"),
    "putmessage_times_total": ("putMessageTimesTotal", "records put"),
    "putmessage_entire_time_max": ("putMessageEntireTimeMax", "ms of the slowest put"),
    "getmessage_entire_time_max": ("getMessageEntireTimeMax", "ms of the slowest get"),
    "earliest_message_timestamp": ("earliestMessageTimeStamp", "store time of the first, ms"),
    "commitlog_disk_ratio": ("commitLogDiskRatio", "how full the log's file system is"),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", "how full the queues' file system is"),
    "commitlog_minoffset": ("commitLogMinOffset", "the log's first byte"),
    "commitlog_maxoffset": ("commitLogMaxOffset", "the log's end"),
    "remain_howmanydata_toflush": ("remainHowManyDataToFlush", "bytes not on the disk yet"),
    "dispatch_maxbuffer": ("dispatchMaxBuffer", "bytes that dispatch was behind at most"),
}
_OURS = {
    "rmqstore_put_failed": ("putMessageFailedTimes", "calls that stored nothing", "counter"),
    "rmqstore_commit_log_syncs": ("commit_log_syncs", "syncs of the log", "counter"),
    "rmqstore_consume_queue_syncs": ("consume_queue_syncs", "syncs of the queues", "counter"),
    "rmqstore_skipped_records": ("skipped_records", "records in no queue", "counter"),
    "rmqstore_index_files": ("index_files", "index files", "gauge"),
}


def collector(
    store: MessageStore, *, cluster: str = "DefaultCluster", broker: str = "broker-a"
) -> StoreCollector:
    """Return a collector of a store's figures, to be registered with prometheus-client.

    Parameters
    ----------
    store : MessageStore
        In any mode.  Held weakly: a closed or collected one gives no figures.
    cluster, broker : str, optional
        Label values: a different broker for each store of a registry.

    Returns
    -------
    StoreCollector
        ``REGISTRY.register(rmqstore.metrics.collector(store))``.

    Raises
    ------
    ImportError
        prometheus-client is not installed: ``pip install prometheus-client``.
    """
    need_client()
    return StoreCollector(store, cluster, broker)


def need_client() -> None:
    """Raise ``ImportError``, with the remedy, where prometheus-client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "metrics need prometheus-client: pip install prometheus-client"
        ) from error


def runtime_labels(store: MessageStore, cluster: str, broker: str, boot: int) -> tuple[str, ...]:
    """Return the values of ``RUNTIME_LABELS``."""
    from rmqstore import __version__

    return cluster, store.config.store_host, broker, "rmqstore", str(boot), __version__


class StoreCollector:
    """Prometheus collector of a store; made by :func:`collector`."""

    def __init__(self, store: MessageStore, cluster: str, broker: str) -> None:
        self._store = weakref.ref(store)
        self._cluster = cluster
        self._broker = broker

    def describe(self) -> list[Metric]:
        """Return nothing: registering a collector does not read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics; none of a closed store.

        Yields
        ------
        prometheus_client.core.Metric
            The gauges of a broker's runtime info, offsets by topic and by group, lag of groups, and
            our own counters, which begin with ``rmqstore_``.
        """
        store = self._store()
        if store is None or store.closed:
            return
        try:
            found = [*self._runtime(store), *self._topics(store), *self._groups(store)]
        except StoreClosedError:  # closed meanwhile
            return
        yield from found

    def _runtime(self, store: MessageStore) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stats = store.stats()
        host = store.config.store_host
        labels = runtime_labels(store, self._cluster, self._broker, stats["bootTimestamp"])

        def gauge(name: str, text: str, value: Any) -> Metric:
            family = GaugeMetricFamily(RUNTIME + name, text, labels=RUNTIME_LABELS)
            family.add_metric(labels, float(value))
            return family

        for name, (key, text) in _RUNTIME_FIGURES.items():
            yield gauge(name, text, stats[key])
        for name, calls in zip(_PUT_TIMES, stats["putMessageDistributeTime"].values(), strict=True):
            yield gauge(f"pmdt_{name}", "calls of put by how long they took", calls)
        for key, name in _RATES.items():
            for seconds, rate in zip(RATE_SECONDS, stats[key], strict=False):
                yield gauge(f"{name}{seconds}", f"a second, over {seconds} s", rate)
        capacity = stats["commitLogDirCapacity"]
        yield gauge("commitlogdir_capacity_total", "bytes of the file system", capacity["total"])
        yield gauge("commitlogdir_capacity_free", "bytes of it that are free", capacity["free"])
        whole = (self._cluster, host, self._broker)
        for name, key in (
            ("rocketmq_broker_tps", "putTps"),
            ("rocketmq_broker_qps", "getTotalTps"),
        ):
            family = GaugeMetricFamily(
                name, "a second, over 10 s", labels=("cluster", "brokerIP", "broker")
            )
            family.add_metric(whole, stats[key][0] if stats[key] else 0.0)
            yield family
        for name, (key, text, kind) in _OURS.items():
            ours = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            own = ours(name, text, labels=("cluster", "broker"))
            own.add_metric((self._cluster, self._broker), float(stats[key]))
            yield own

    def _topics(self, store: MessageStore) -> Iterator[Metric]:
        """Yield each topic's end, summed over its queues; retries and dead letters apart."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ("cluster", "broker", "topic")
        plain = GaugeMetricFamily("rocketmq_producer_offset", "messages so far", labels=labels)
        retry = GaugeMetricFamily("rocketmq_topic_retry_offset", "retries so far", labels=labels)
        dead = GaugeMetricFamily(
            "rocketmq_topic_dlq_offset",
            "dead letters so far",
            labels=("cluster", "broker", "group"),
        )
        for topic, of_queues in bounds_by_topic(store.core).items():
            end = float(sum(one.stop for one in of_queues))
            if topic.startswith("%DLQ%"):
                dead.add_metric((self._cluster, self._broker, topic.removeprefix("%DLQ%")), end)
            elif topic.startswith("%RETRY%"):
                retry.add_metric((self._cluster, self._broker, topic), end)
            else:
                plain.add_metric((self._cluster, self._broker, topic), end)
        yield from (plain, retry, dead)

    def _offsets(self, store: MessageStore) -> Offsets:
        """Return the counted offsets of each group by queue."""
        return {names: dict(queues) for names, queues in store.offsets.items()}

    def _groups(self, store: MessageStore) -> Iterator[Metric]:
        """Yield the progress and the lag of each group in each topic."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ("cluster", "broker", "topic", "group")
        offset = GaugeMetricFamily("rocketmq_consumer_offset", "messages consumed", labels=labels)
        behind, retried, given_up = (
            GaugeMetricFamily(
                name, text, labels=("group", "topic", "countOfOnlineConsumers", "msgModel")
            )
            for name, text in (
                ("rocketmq_group_diff", "messages that a group is behind"),
                ("rocketmq_group_retrydiff", "retries that a group is behind"),
                ("rocketmq_group_dlqdiff", "dead letters that a group is behind"),
            )
        )
        late = GaugeMetricFamily(
            "rocketmq_group_get_latency_by_storetime",
            "ms since the first message that is not consumed was stored",
            labels=labels,
        )
        span = GaugeMetricFamily(
            "rmqstore_group_behind_seconds",
            "between the newest message of a queue and the first that is not consumed",
            labels=labels,
        )
        now = store.clock.now()
        try:
            offsets = self._offsets(store)
            lags = lag_of(store.core, offsets, None, None, sizes=False)
        except StoreCorruptError as error:  # the other figures stay valid
            log_warning("no figures of groups: %s", error)
            return
        sums = {(topic, group): [0.0, 0.0, 0.0, 0.0] for topic, group in sorted(offsets)}
        for lag in lags:
            one = sums[lag.topic, lag.group]
            one[0] += lag.committed
            one[1] += lag.messages
            one[2] = max(one[2], lag.behind.total_seconds())
            if lag.messages:
                first = max(lag.committed, lag.min_offset)
                stored = time_of_one(
                    store.core, lag.topic, lag.queue_id, range(first, lag.max_offset)
                )
                one[3] = max(one[3], float(now - stored) if stored >= 0 else 0.0)
        for (topic, group), (consumed, messages, seconds, millis) in sums.items():
            where = (self._cluster, self._broker, topic, group)
            offset.add_metric(where, consumed)
            late.add_metric(where, millis)
            span.add_metric(where, seconds)
            if topic.startswith("%RETRY%"):
                retried.add_metric((group, topic, "", ""), messages)
            elif topic.startswith("%DLQ%"):
                given_up.add_metric((group, topic, "", ""), messages)
            else:
                behind.add_metric((group, topic, "", ""), messages)
        yield from (offset, behind, retried, given_up, late, span)
