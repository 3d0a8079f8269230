"""``toolbox.repair`` beside the real 4.9.3: a damaged store, repaired, is started on and read."""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import rmqstore
from interop.broker import Broker
from interop.driver import SMALL
from interop.test_hand_over import until
from rmqstore.toolbox import repair
from support import damage, repairs

pytestmark = pytest.mark.long

SIZES = {
    "mappedFileSizeCommitLog": repairs.LOG,
    "mappedFileSizeConsumeQueue": repairs.UNITS,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
IN_SUITE = ("middle-missing", "queue-gone", "bak-in-log")


@pytest.fixture(scope="module")
def broker(java: None) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_SUITE else pytest.param(name, marks=pytest.mark.campaign)
        for name in repairs.DAMAGE
    ],
)
def test_the_real_one_starts_and_shows_what_is_on_the_disk(broker, tmp_path, compared, name):
    root = tmp_path / "store"
    repairs.make(root)
    repairs.DAMAGE[name](root)
    whole = repairs.readable(root)
    config = repairs.CONFIG  # of "queues-gone" no file shows the sizes
    assert repair(root, config=config, apply=True).left == 0
    compared("test_repair messages", shown(broker, root, SIZES, whole))


def shown(broker, root, sizes, whole):
    """Start the real one on a store: it shows each of the messages; return their number."""
    started = broker.call("start", dir=str(root.resolve()), config=sizes, broker={}, timeout=120)[1]
    assert started["load"], broker.log()[-2000:]
    try:
        found = {
            (topic, one.queue_id, one.queue_offset): one.body_sha1
            for topic in ("orders", "bills")
            for one in broker.pull(topic)
        }
    finally:
        broker.shutdown()
    wanted = {
        place: base64.b64encode(hashlib.sha1(body).digest()).decode()
        for *place, body in whole.values()
        for place in [tuple(place)]
    }
    lost = {place for place, body in wanted.items() if found.get(place) != body}
    assert not lost, (len(lost), sorted(lost)[:3])
    return len(wanted)


@pytest.mark.parametrize("name", ["all-at-once", "torn-tail", "queues-and-index-gone"])
def test_a_log_in_two_directories(broker, tmp_path, compared, name):
    root = tmp_path / "store"
    repairs.make(root, count=2000)
    repairs.DAMAGE[name](root)
    config = repairs.spread(root, tmp_path / "a", tmp_path / "b")
    whole = repairs.readable(root, config)
    assert repair(root, config=config, apply=True).left == 0
    sizes = {**SIZES, "storePathCommitLog": config.store_path_commit_log}
    compared("test_repair messages", shown(broker, root, sizes, whole))
    assert not (root / "commitlog").exists()


@pytest.mark.parametrize("kind", ["same", "begun"])
def test_a_log_file_in_two_directories(broker, tmp_path, compared, kind):
    root = tmp_path / "store"
    repairs.make(root, count=2000)
    config = repairs.spread(root, tmp_path / "a", tmp_path / "b")
    whole = repairs.readable(root, config)
    name = f"{repairs.LOG:020d}"
    data = (tmp_path / "b" / name).read_bytes()
    (tmp_path / "a" / name).write_bytes(data if kind == "same" else data[:70_000])
    sizes = {**SIZES, "storePathCommitLog": config.store_path_commit_log}
    call = {"dir": str(root.resolve()), "config": sizes, "broker": {}}
    if kind == "begun":
        assert not broker.call("start", **call, timeout=120)[1]["load"]
    assert repair(root, config=config, apply=True).left == 0
    compared("test_repair messages", shown(broker, root, sizes, whole))


@pytest.mark.campaign
@pytest.mark.parametrize("kind", damage.KINDS)
def test_the_real_one_starts_after_any_kind_of_damage(broker, tmp_path, kind):
    damage.make(tmp_path, "plain")
    root = tmp_path / "new"
    damage.KINDS[kind](root, random.Random(kind), tmp_path / "old")
    assert repair(root, config=repairs.CONFIG, apply=True).left == 0
    whole = {tuple(place) for *place, _ in repairs.readable(root).values()}
    started = broker.call("start", dir=str(root.resolve()), config=SIZES, broker={}, timeout=120)[1]
    assert started["load"], broker.log()[-2000:]
    try:
        shown = {
            (topic, one.queue_id, one.queue_offset)
            for topic in ("orders", "bills")
            for one in broker.pull(topic)
        }
    finally:
        broker.shutdown()
    assert {place for place in whole if place[0] in ("orders", "bills")} <= shown


def test_delays_and_groups_made_from_the_log(broker, tmp_path, broker_copy, compared):
    """Each delayed message is delivered once, though the broker's own file was behind."""
    root = broker_copy("broker-clean", tmp_path).root

    def delivered():
        with rmqstore.open(root) as store:
            return Counter(
                one.uniq_key
                for one in store.scan()
                if "DELAY" in one.properties and not one.topic.startswith("SCHEDULE_TOPIC")
            )

    with rmqstore.open(root) as store:
        waiting = {one.message.uniq_key for one in store.delayed()}
    before = delivered()
    for name in ("delayOffset.json", "subscriptionGroup.json"):
        for one in (name, f"{name}.bak"):
            (root / "config" / one).write_bytes(b'{"off')
    assert repair(root, apply=True).left == 0
    assert waiting.isdisjoint(before)
    broker.start(root, SMALL, {"autoCreateSubscriptionGroup": False})
    try:
        until(lambda: waiting <= set(delivered()))
    finally:
        broker.shutdown()
    after = delivered()
    assert after == before + Counter(waiting)
    compared("test_repair delayed", len(after))
