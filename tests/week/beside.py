"""The directory of a week in the hands of the real broker: its consumers find no difference."""

from __future__ import annotations

import random
import time
from pathlib import Path

import rmqstore
from interop.broker import Broker
from week import traffic
from week.worker import config

SAMPLES = 2000
QUIET_SECONDS = 4.0
CONFIG = {
    "mappedFileSizeCommitLog": config(24).mapped_file_size_commit_log,
    "mappedFileSizeConsumeQueue": config(24).mapped_file_size_consume_queue,
    "maxHashSlotNum": config(24).max_hash_slot_num,
    "maxIndexNum": config(24).max_index_num,
    "fileReservedTime": 24 * 365 * 20,
}


def differences(path: Path) -> tuple[int, list[str]]:
    """Compare bounds and a sample of messages, and let a real consumer of each group look.

    Returns what was compared, and what differs.
    """
    with rmqstore.open(path) as store:
        bounds = {
            (topic, queue_id): store.queue_bounds(topic, queue_id)
            for topic, ids in store.queue_ids().items()
            for queue_id in ids
        }
        draw = random.Random(1)
        filled = [queue for queue, (low, high) in bounds.items() if high > low]
        places = [
            (*queue, draw.randrange(*bounds[queue]))
            for queue in (draw.choice(filled) for _ in range(SAMPLES))
        ]
        ours = {place: store.get(*place, 1).messages[0] for place in places}
        behind = [lag for lag in store.lag() if lag.messages and lag.group in traffic.GROUPS]
    problems = [f"behind: {lag}" for lag in behind]
    compared = 0
    with Broker() as broker:
        broker.start(path, CONFIG, {})
        theirs = broker.minmax()
        for queue, found in bounds.items():
            compared += 1
            if theirs.get(queue, (0, 0)) != found:
                problems.append(f"{queue}: theirs {theirs.get(queue)}, ours {found}")
        for place, message in ours.items():
            compared += 1
            record = broker.get(*place, 1).records[0]
            if (record["msg_id"], record["properties"]) != (message.msg_id, message.properties):
                problems.append(f"{place}: theirs {record}, ours {message!r}")
        for group in traffic.GROUPS:
            broker.consumer_start(group, {traffic.TOPIC: "*"})
        time.sleep(QUIET_SECONDS)
        for group in traffic.GROUPS:
            compared += 1
            if again := broker.consumer_stop(group):
                problems.append(f"{group} gets {len(again)} again: {again[0]}")
        broker.shutdown()
    return compared, problems
