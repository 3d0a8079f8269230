"""The toolbox on a stopped broker's store, against the broker's deletion and mqadmin's answers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from conftest import BrokerStore
from interop.broker import Broker, deliver_nothing
from interop.driver import SMALL
from rmqstore import toolbox

pytestmark = pytest.mark.long

HOUR = 3_600
Compared = Callable[[str, int], None]
Copied = Callable[[str, Path], BrokerStore]


@pytest.fixture(scope="module")
def broker(java: None) -> Iterator[Broker]:
    with Broker() as started:
        yield started


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in (root / "commitlog").iterdir()
        if path.name.isdecimal()
    }


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("due", [True, False])
def test_a_broker_deletes_at_delete_when_as_planned(
    broker: Broker, broker_copy: Copied, tmp_path: Path, compared: Compared, kept: int, due: bool
) -> None:
    """By the files' own times, in an hour of ``deleteWhen`` and in no other one."""
    root = broker_copy("broker-clean", tmp_path).root
    now = int(time.time())
    log = sorted((root / "commitlog").iterdir())
    assert len(log) == 3
    for number, path in enumerate(log):
        age = 100 * HOUR if number < len(log) - 1 - kept else HOUR
        os.utime(path, (now - age, now - age))
    hour = time.localtime(now).tm_hour
    hours = {hour, (hour + 1) % 24} if due else {(hour + 12) % 24}
    settings = {
        "deleteWhen": ";".join(f"{one:02d}" for one in sorted(hours)),
        "fileReservedTime": 72,
        "deleteCommitLogFilesInterval": 1,
        "diskMaxUsedSpaceRatio": 95,
    }
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (settings | SMALL).items()))
    with rmqstore.open(root) as store:
        stored = {(m.topic, m.queue_id, m.queue_offset): m.physical_offset for m in store.scan()}
    start, deletion, *_ = toolbox.plan(root, config=conf).events
    assert (start.event, start.files, start.messages) == ("start", (), 0)
    assert len(deletion.files) == len(log) - 1 - kept
    before = files(root)
    broker.start(root, SMALL | settings, {})
    try:
        assert files(root) >= before
        done = broker.clean(by_itself=True)
        mins = {place: low for place, (low, _) in broker.minmax().items()}
    finally:
        broker.shutdown()
    gone = before - files(root)
    if not due:
        assert deletion.at is not None
        assert deletion.at > (now + 10 * HOUR) * 1000
        assert gone == set()
        return
    assert gone == set(deletion.files)
    assert done["min_phy_offset"] == int(Path(max(deletion.files)).name) + (1 << 20)
    cut = [place for place, offset in stored.items() if offset < done["min_phy_offset"]]
    assert len(cut) == deletion.messages
    first: dict[tuple[str, int], int] = {}
    for (*queue, queue_offset), offset in stored.items():
        if offset >= done["min_phy_offset"]:
            first.setdefault((queue[0], queue[1]), queue_offset)
    assert {queue: mins[queue] for queue in first} == first  # of a queue that is all gone it stays
    compared("toolbox: messages of a planned deletion", len(cut))


def rows(printed: str, width: int) -> list[list[str]]:
    """Split the lines of a table that mqadmin printed: those with so many columns or more."""
    lines = (line.split() for line in printed.splitlines() if not line.startswith("#"))
    return [line for line in lines if len(line) >= width]


def test_offline_answers_are_those_of_mqadmin(
    broker: Broker, broker_copy: Copied, tmp_path: Path, compared: Compared
) -> None:
    """Queues, lags and keys, asked of the running broker, then of what it left when stopped."""
    root = broker_copy("broker-clean", tmp_path).root
    deliver_nothing(root)
    with rmqstore.open(root) as store:
        keys = sorted({key for message in store.scan("orders") for key in message.keys})[::40]
        topics = [name for name in store.topics if re.fullmatch(r"[A-Za-z0-9]+", name)]
    assert len(keys) > 5
    started = broker.start(root, SMALL, {"transactionCheckInterval": 3_600_000})
    names = f"127.0.0.1:{started['names_port']}"
    commands = [["topicStatus", "-t", topic] for topic in topics]
    commands += [["queryMsgByKey", "-t", "orders", "-k", key] for key in keys]
    commands += [["consumerProgress", "-g", "orders-group"]]
    try:
        answers = broker.admin(names, commands)
    finally:
        broker.shutdown()
    assert [thrown for thrown, _ in answers if thrown] == []
    texts = [printed for _, printed in answers]
    count = 0
    with rmqstore.open(root) as store:
        for topic, printed in zip(topics, texts, strict=False):
            theirs = {int(row[1]): (int(row[2]), int(row[3])) for row in rows(printed, 4)}
            ours = {number: store.queue_bounds(topic, number) for number in theirs}
            assert theirs == ours, topic
            assert set(store[topic]) <= set(theirs)
            count += len(theirs)
        for key, printed in zip(keys, texts[len(topics) :], strict=False):
            theirs = {(row[0], int(row[1]), int(row[2])) for row in rows(printed, 3)}
            found = store.query("orders", key)
            ours = {(m.uniq_key or m.msg_id, m.queue_id, m.queue_offset) for m in found}
            assert theirs == ours, key
            count += len(ours)
        theirs = {
            (row[0], int(row[2])): (int(row[3]), int(row[4]), int(row[5]))
            for row in rows(texts[-1], 6)
            if row[1] == "broker-a"
        }
        lags = {
            (one.topic, one.queue_id): (one.max_offset, one.committed, one.messages)
            for one in store.lag("orders-group")
        }
        assert theirs
        assert {place: lags.get(place) for place in theirs} == theirs
        count += len(theirs)
    compared("toolbox: answers of mqadmin", count)
