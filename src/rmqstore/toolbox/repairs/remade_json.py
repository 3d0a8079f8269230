"""JSON files of which no copy is whole, made from the log as far as it has what was in them.

Source: ``store/schedule/ScheduleMessageService.java``,
``broker/subscription/SubscriptionGroupManager.java``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from rmqstore import opening
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.groups import GroupConfig, GroupTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.files import paths
from rmqstore.offline.start_json import read_json
from rmqstore.services.schedule_search import find_delivered, level_millis
from rmqstore.services.stored import SCHEDULE_TOPIC

__all__ = ["remade_delays", "remade_groups"]

Config = StoreConfig | str | os.PathLike[str] | None

_OF_GROUP = ("%RETRY%", "%DLQ%")
_OWN = "CID_RMQ_SYS_"  # a broker's own groups
_SHOWN = 3


def remade_delays(root: Path, config: Config) -> tuple[bytes, str] | None:
    """Return ``delayOffset.json`` and what it says; None without a delayed message in the log.

    A level goes on at its first message without a record in its real topic: none is passed over,
    and those behind it that were delivered are delivered again.
    """
    with opening.open(root, config=config) as store:
        bounds = {
            queue_id + 1: found
            for queue_id in store.queue_ids().get(SCHEDULE_TOPIC, ())
            if (found := store.core.bounds(SCHEDULE_TOPIC, queue_id)) and found[0] < found[1]
        }
        millis = level_millis(store.config.message_delay_level)
        starts = {level: start for level, (start, _) in bounds.items() if level <= len(millis)}
        now = max(int(time.time() * 1000), store.core.newest_store_time())
        delivered = find_delivered(store.core, millis, starts, now)
    if not bounds:
        return None
    offsets = {}
    again = waiting = 0
    for level, (start, stop) in sorted(bounds.items()):
        gone = delivered.get(level, set())
        offsets[level] = next(at for at in range(start, stop + 1) if at not in gone)
        again += sum(at > offsets[level] for at in gone)
        waiting += stop - offsets[level]
    text = f"by the log, {waiting:,} delayed messages are still to be delivered"
    if again:
        text += f", {again:,} of which were, and are once more"
    return fastjson.dumps({"offsetTable": offsets}).encode(), text


def remade_groups(root: Path, topics: Iterable[str]) -> tuple[bytes, str] | None:
    """Return ``subscriptionGroup.json`` and what it says; None if no group is known.

    Groups are known by their retry topics and dead letters, and by their offsets.
    """
    names = {
        name.removeprefix(prefix)
        for prefix in _OF_GROUP
        for name in topics
        if name.startswith(prefix)
    }
    names |= {str(key).partition("@")[2] for key in _offset_keys(root)}
    known = sorted(one for one in names if paths.is_group_name(one) and not one.startswith(_OWN))
    if not known:
        return None
    table = GroupTable(root)
    for name in known:
        table.put(GroupConfig(name))
    shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    text = (
        f"{shown} by retry topics and offsets, with a broker's defaults: settings of "
        "their retries and permissions are lost"
    )
    return fastjson.dumps(table.to_json()).encode("utf-8"), text


def _offset_keys(root: Path) -> Collection[object]:
    path = root / paths.CONFIG / paths.CONSUMER_OFFSET_JSON
    places = (path, path.with_name(f"{path.name}.bak"))
    found = [read_json(one, "offsetTable", dict) for one in places]
    return next((one.names for one in found if one.state == "good"), ())
