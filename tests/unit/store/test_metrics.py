"""The figures of a store for prometheus-client, and how they reach a scrape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import CollectorRegistry, generate_latest

import rmqstore
from rmqstore.config.store_config import StoreConfig


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Samples without a group's or topic's labels by name, others by name and those."""
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            named = [sample.labels[one] for one in ("topic", "group") if one in sample.labels]
            found["/".join([sample.name, *named])] = sample.value
    return found


def test_figures_by_the_names_of_the_exporter(store: rmqstore.MessageStore) -> None:
    store.put_many("orders", [b"x" * 10] * 8)
    store.put("%DLQ%billing", b"dead", queue_id=0)
    with store.consumer("orders", group="billing", queues=[0]) as orders:
        next(iter(orders))
        orders.commit(sync=True)
    store.put("%RETRY%billing", b"again", queue_id=0)
    with store.consumer("%RETRY%billing", group="billing") as retries:
        assert len(list(retries)) == 1
        retries.commit()
    with store.consumer("%DLQ%billing", group="mending") as dead:
        assert len(list(dead)) == 1
        dead.commit()
    store.put("%DLQ%billing", b"dead too", queue_id=0)
    store.put_many("%RETRY%billing", [b"again"] * 2)
    registry = CollectorRegistry()
    registry.register(rmqstore.metrics.collector(store))
    found = scraped(registry)
    stats = store.stats()
    assert found["rocketmq_producer_offset/orders"] == 8
    assert found["rocketmq_topic_dlq_offset/billing"] == 2
    assert found["rocketmq_topic_retry_offset/%RETRY%billing"] == 3
    assert found["rocketmq_consumer_offset/orders/billing"] == 1
    assert found["rocketmq_group_diff/orders/billing"] == 1
    assert found["rocketmq_group_retrydiff/%RETRY%billing/billing"] == 2
    assert found["rocketmq_group_dlqdiff/%DLQ%billing/mending"] == 1
    assert len([name for name in found if name.startswith("rocketmq_group_diff/")]) == 1
    assert found["rocketmq_group_get_latency_by_storetime/orders/billing"] >= 0
    assert found["rocketmq_brokeruntime_putmessage_times_total"] == 13
    assert found["rocketmq_brokeruntime_commitlog_maxoffset"] == stats["wrote_position"]
    assert (
        found["rocketmq_brokeruntime_pmdt_0ms"]
        + sum(
            value for name, value in found.items() if "pmdt_" in name and not name.endswith("_0ms")
        )
        == stats["put_calls"]
    )
    assert found["rmqstore_commit_log_syncs_total"] >= 0
    text = generate_latest(registry).decode()
    assert 'cluster="DefaultCluster"' in text
    assert 'broker="broker-a"' in text


def test_a_store_that_is_closed_or_gone_gives_none(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    store = rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small())
    registry.register(rmqstore.metrics.collector(store, cluster="c", broker="b"))
    assert scraped(registry)
    store.close()
    assert scraped(registry) == {}
    del store
    assert scraped(registry) == {}


def test_a_reader_has_figures_as_well(
    store: rmqstore.MessageStore, wait_until: Callable[..., None]
) -> None:
    store.put("orders", b"x", queue_id=0)
    wait_until(lambda: not store.stats()["dispatch_behind_bytes"])
    with rmqstore.open(store.path) as reader:
        registry = CollectorRegistry()
        registry.register(rmqstore.metrics.collector(reader))
        assert scraped(registry)["rocketmq_producer_offset/orders"] == 1


def test_a_damaged_message_leaves_the_figures_of_groups(store: rmqstore.MessageStore) -> None:
    """Also of the group and the queue that it is in."""
    for topic in ("orders", "refunds"):
        store.put(topic, b"x", queue_id=0)
        store.put(topic, b"y", queue_id=0)
        store.progress.commit(topic, "billing", 0, 0)
    store.close()
    with (Path(store.path) / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(bytes(64))
    registry = CollectorRegistry()
    with rmqstore.open(store.path) as reader:
        registry.register(rmqstore.metrics.collector(reader))
        found = scraped(registry)
    assert found["rocketmq_group_diff/orders/billing"] == 2
    assert found["rocketmq_group_diff/refunds/billing"] == 2
