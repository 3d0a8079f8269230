"""Figures of a store's directory as Prometheus' text, for node_exporter's textfile collector.

Source: rocketmq-exporter's ``RMQMetricsCollector.java``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore import opening
from rmqstore.base.warn import log_warning
from rmqstore.config.brokerconf import read_properties
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreCorruptError
from rmqstore.files.regular import not_regular, require_parent
from rmqstore.metrics import RUNTIME, StoreCollector, need_client
from rmqstore.offline.start import broker_start_of
from rmqstore.toolbox.sizes import disk_use_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from rmqstore.store import MessageStore

__all__ = ["inside_store", "metrics_text", "metrics_text_of", "write_textfile"]

UNKNOWN = "unknown"
_TELLING = frozenset(  # of a broker's runtime info: what its files tell
    RUNTIME + name
    for name in (
        "commitlog_disk_ratio",
        "commitlog_maxoffset",
        "commitlog_minoffset",
        "commitlogdir_capacity_free",
        "commitlogdir_capacity_total",
        "consumequeue_disk_ratio",
        "dispatch_behind_bytes",
        "earliest_message_timestamp",
    )
)


def metrics_text(
    path: str | os.PathLike[str], *, config: str | os.PathLike[str] | None = None
) -> str:
    """Return the figures of a store as Prometheus' text, from queues, offsets and names of files.

    Under rocketmq-exporter's names where they mean the same; the rest begins with ``rmqstore_``.
    Rates and times of calls, which a running broker alone has, are left out. The log is not
    scanned.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    config : path of a broker.conf, optional
        As for :func:`rmqstore.open`; also the source of the labels of cluster and broker, which are
        ``"unknown"`` without it.

    Returns
    -------
    str
        In the text format 0.0.4; each line ends with a newline.

    Raises
    ------
    ImportError
        prometheus-client is not installed.
    StoreNotFoundError, IncompatibleStoreError, OSError, ValueError
        As for :func:`rmqstore.open`.

    Notes
    -----
    Source: rocketmq-exporter's ``RMQMetricsCollector.java``.
    """
    need_client()
    with opening.open(path, config=config) as store:
        return metrics_text_of(store, config)


def metrics_text_of(store: MessageStore, config: str | os.PathLike[str] | None = None) -> str:
    """Return :func:`metrics_text` of an open store; ``config`` is the broker.conf."""
    need_client()
    from prometheus_client import CollectorRegistry, generate_latest

    keys = {} if config is None else {one.key: one.value for one in read_properties(config)}
    registry = CollectorRegistry()
    registry.register(_Offline(store, keys))
    text: bytes = generate_latest(registry)
    return text.decode()


def inside_store(store: MessageStore, file: str | os.PathLike[str]) -> bool:
    """Whether a file would be in the directory of an open store, or of its log."""
    place = Path(os.path.realpath(os.fsdecode(file)))
    directories = [Path(store.path), *log_directories(store.path, store.config)]
    return any(place.is_relative_to(os.path.realpath(one)) for one in directories)


def write_textfile(text: str, file: str | os.PathLike[str]) -> None:
    """Replace a file by a text at once, readable for all, as node_exporter expects.

    Its reader sees the old text or the new one. After an ``OSError`` it is as it was.
    """
    target = Path(os.path.realpath(os.fsdecode(file)))
    require_parent(target)
    if (kind := not_regular(target)) is not None:  # a device or a FIFO would be replaced, too
        raise FileExistsError(errno.EEXIST, f"is {kind}; name a file", str(target))
    # Files that do not end in .prom are not collected.
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with made.open("xb") as stream:
            stream.write(text.encode())
            os.fchmod(stream.fileno(), 0o644)
        made.replace(target)
    except BaseException as error:
        if not isinstance(error, FileExistsError):
            with contextlib.suppress(OSError):
                made.unlink()
        raise


class _Offline(StoreCollector):
    """Figures of a store that no process needs to have open."""

    def __init__(self, store: MessageStore, keys: Mapping[str, str]) -> None:
        cluster = keys.get("brokerClusterName", "DefaultCluster") if keys else UNKNOWN
        super().__init__(store, cluster, keys.get("brokerName", UNKNOWN))
        self._of = store
        self._broker_labels = {"cluster": cluster, "broker": keys.get("brokerName", UNKNOWN)}
        self._address = keys.get("brokerIP1", UNKNOWN)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; names that are no UTF-8 with escapes."""
        for family in (*super().collect(), *self._own()):
            if family.name.startswith(RUNTIME):
                if family.name not in _TELLING:
                    continue
                # The start of this process, its host and version would make new series each time.
                _relabel(family, brokerIP=self._address, boottime="", broker_version="")
            _relabel(family)
            if family.samples and family.name not in _OF_A_PROCESS:
                yield family

    def _own(self) -> Iterator[Metric]:
        """Yield what rocketmq-exporter does not have."""
        store, broker = self._of, self._broker_labels
        used = disk_use_of(store, ("topic",))
        now = store.clock.now()
        yield _gauge(
            "rmqstore_topic_retained_messages",
            "messages that the log still has",
            (({**broker, "topic": one.keys["topic"]}, one.messages) for one in used),
        )
        yield _gauge(
            "rmqstore_topic_retained_bytes",
            "bytes of them in the log",
            (({**broker, "topic": one.keys["topic"]}, one.bytes) for one in used),
        )
        yield _gauge(
            "rmqstore_topic_oldest_seconds",
            "seconds since the first of them was stored",
            (
                ({**broker, "topic": one.keys["topic"]}, max(0, now - one.first) / 1000)
                for one in used
                if one.first is not None
            ),
        )
        yield from self._waiting()
        kinds = Counter(one.kind for one in broker_start_of(store).findings)
        yield _gauge(
            "rmqstore_verify_problems",
            "problems that a broker would have at its start",
            (({**broker, "kind": kind}, count) for kind, count in sorted(kinds.items())),
        )

    def _waiting(self) -> Iterator[Metric]:
        """Yield the numbers of messages that wait; none whose file is torn."""
        broker = self._broker_labels
        try:
            levels = Counter(one.level for one in self._of.delayed())
            yield _gauge(
                "rmqstore_delay_pending",
                "delayed messages that wait",
                (({**broker, "level": str(level)}, count) for level, count in levels.items()),
            )
        except StoreCorruptError as error:  # the other figures stay valid
            log_warning("no figures of delayed messages: %s", error)
        try:
            yield _gauge(
                "rmqstore_halfmsg_in_doubt",
                "half messages without an end",
                [(broker, len(self._of.in_doubt()))],
            )
        except StoreCorruptError as error:
            log_warning("no figures of transactions: %s", error)


_OF_A_PROCESS = frozenset(
    (
        "rocketmq_broker_qps",
        "rocketmq_broker_tps",
        "rmqstore_commit_log_syncs",
        "rmqstore_consume_queue_syncs",
        "rmqstore_put_failed",
        "rmqstore_skipped_records",
    )
)


def _gauge(name: str, text: str, values: Iterable[tuple[dict[str, str], Any]]) -> Metric:
    from prometheus_client.core import Metric

    family = Metric(name, text, "gauge")
    for labels, value in values:
        family.add_sample(name, labels, float(value))
    return family


def _relabel(family: Metric, **changes: str) -> None:
    """Set labels of each sample, and escape what UTF-8 does not have."""
    family.samples = [
        one._replace(
            labels={
                name: changes.get(name, value).encode("utf-8", "backslashreplace").decode()
                for name, value in one.labels.items()
            }
        )
        for one in family.samples
    ]
