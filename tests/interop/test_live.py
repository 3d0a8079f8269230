"""Mode ``"r"`` beside a real broker under load, with files rolling and retention behind the reader.

``RMQSTORE_INTEROP_SEED`` repeats a run's traffic; ``RMQSTORE_INTEROP_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rmqstore
from interop import checks, compare
from interop.broker import Broker, Consumed, Loaded

pytestmark = pytest.mark.long

ROUNDS = int(os.environ.get("RMQSTORE_INTEROP_ROUNDS", "1"))
LOAD_SECONDS = 8.0 * ROUNDS
KEPT_MS = 1500  # what has not changed for so long is deleted
FIRST_DELETION = 3.0  # seconds after the load began
CATCH_UP = 60.0
GROUP = "live-group"
QUEUES = 4
TOPICS = {"orders": QUEUES, "payments": QUEUES}
LOAD = {"topics": list(TOPICS), "queues": QUEUES, "rate": 2500, "max_body": 500}
LOG_FILE = 256 << 10
CONFIG = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 300,
    "maxIndexNum": 1200,
    "fileReservedTime": 0,
    "deleteCommitLogFilesInterval": 10,
    "deleteConsumeQueueFilesInterval": 10,
}
# Every name that a broker makes; a reader makes none.
BROKERS_NAMES = re.compile(
    r"abort|checkpoint|lock|commitlog|consumequeue|index|config"
    r"|commitlog/\d{20}|consumequeue/[^/]+(/\d+(/\d{20})?)?|index/\d{17}"
    r"|config/\w+\.json(\.bak|\.tmp)?"
)
COLUMNS = ["uniq_key", "body", "keys", "tags"]
Place = tuple[str, int]


class Follower:
    """Reads every queue row by row behind its head, one pass after the other."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.at = 0  # of the log, for one who goes along it
        self.next = {(topic, n): 0 for topic, queues in topics.items() for n in range(queues)}
        self.rows: dict[Place, list[tuple]] = defaultdict(list)
        self.removed: list[tuple[Place, int, int]] = []  # queue offsets that were gone when read

    def pass_over(self, store: rmqstore.MessageStore) -> int:
        """Take what is new in every queue; return how many messages that were."""
        count = 0
        for place, start in self.next.items():
            at = start
            while True:
                got = store.get(*place, at, 500)
                for message in got.messages:
                    assert (message.topic, message.queue_id) == place
                    assert message.queue_offset >= at
                    if message.queue_offset > at:
                        self.removed.append((place, at, message.queue_offset))
                    self.rows[place].append(
                        (
                            message.queue_offset,
                            message.physical_offset,
                            message.uniq_key,
                            compare.sha1(message.body),
                            message.properties["KEYS"],
                            message.tags,
                        )
                    )
                    at = message.queue_offset + 1
                    count += 1
                if got.status.name == "OFFSET_TOO_SMALL":
                    assert got.next_offset == got.min_offset > at
                if got.next_offset > at:
                    self.removed.append((place, at, got.next_offset))
                    at = got.next_offset
                elif not got.messages:
                    break
            self.next[place] = at
        return count


class ColumnFollower(Follower):
    """Reads every queue as columns."""

    def scan(self, store: rmqstore.MessageStore, place: Place, start: int) -> Iterator[dict]:
        names = [*COLUMNS, "queue_offset", "physical_offset"]
        scan = store.scan(*place, start=start, on_removed="skip", columns=names, batch_rows=500)
        for batch in scan.to_batches():
            yield from batch.to_pylist()

    def take(self, place: Place, row: dict) -> None:
        """Keep a row; a queue offset that was passed over has been removed."""
        offset = row["queue_offset"]
        assert offset >= self.next[place]
        if offset > self.next[place]:
            self.removed.append((place, self.next[place], offset))
        keys = " ".join(row["keys"])
        kept = (offset, row["physical_offset"], row["uniq_key"], compare.sha1(row["body"]))
        self.rows[place].append((*kept, keys, row["tags"]))
        self.next[place] = offset + 1

    def pass_over(self, store: rmqstore.MessageStore) -> int:
        count = 0
        for place, start in list(self.next.items()):
            for row in self.scan(store, place, start):
                self.take(place, row)
                count += 1
            least = store[place[0]][place[1]].min_offset
            if least > self.next[place]:
                self.removed.append((place, self.next[place], least))
                self.next[place] = least
        return count


class LogFollower(ColumnFollower):
    """Reads the log as columns, whatever the topic."""

    def pass_over(self, store: rmqstore.MessageStore) -> int:
        names = [*COLUMNS, "topic", "queue_id", "queue_offset", "physical_offset", "store_size"]
        count = 0
        scan = store.scan(start=self.at, on_removed="skip", columns=names)
        for batch in scan.to_batches():
            for row in batch.to_pylist():
                assert row["physical_offset"] >= self.at
                self.at = row["physical_offset"] + row["store_size"]
                place = row["topic"], row["queue_id"]
                if place in self.next:
                    self.take(place, row)
                    count += 1
        for place, end in self.next.items():
            least = store[place[0]][place[1]].min_offset
            if least > end:
                self.removed.append((place, end, least))
                self.next[place] = least
        return count


def consumer_row(row: Consumed) -> tuple:
    properties = row.properties
    return (
        row.queue_offset,
        row.physical_offset,
        row.msg_id,
        row.body_sha1,
        properties["KEYS"],
        properties["TAGS"],
    )


def names_below(root: Path) -> set[str]:
    found = set()
    for top, directories, files in os.walk(root):
        found |= {str(Path(top, name).relative_to(root)) for name in directories + files}
    return found


def opened_for_writing(root: Path) -> list[str]:
    """Return what this process has below the directory that it could write to."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            if target.startswith(str(root)):
                flags = fcntl.fcntl(int(link.name), fcntl.F_GETFL)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    found.append(target)
        except OSError:
            continue  # closed meanwhile
    for line in Path("/proc/self/maps").read_text().splitlines():
        columns = line.split(maxsplit=5)
        if len(columns) == 6 and columns[5].startswith(str(root)) and "w" in columns[1]:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def broker(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs on an empty store."""
    with Broker() as process:
        process.start(tmp_path_factory.mktemp("live") / "store", CONFIG, {})
        process.topics({**TOPICS, f"%RETRY%{GROUP}": 1})
        yield process


class Retention:
    """Lets the broker delete files, again and again, while others read."""

    def __init__(self, broker: Broker) -> None:
        self.stop = threading.Event()
        self.broker = broker
        self.rounds = 0

    def __call__(self) -> dict:
        self.stop.wait(FIRST_DELETION)
        while not self.stop.wait(0.3):
            self.broker.clean(KEPT_MS)
            self.rounds += 1
        return self.broker.info()


def test_everything_a_consumer_gets(broker: Broker, seed: str, tally: Counter) -> None:
    root = broker.root
    broker.consumer_start(GROUP, dict.fromkeys(TOPICS, "*"))
    broker.load_start(seed=random.Random(seed).getrandbits(32), **LOAD)
    sent = first_sent(broker)
    retention = Retention(broker)
    follower = Follower(TOPICS)
    columns = [ColumnFollower(TOPICS), LogFollower(TOPICS)]
    seen: set[str] = set()
    began = time.monotonic()
    passes = found = 0
    with rmqstore.open(root) as store, ThreadPoolExecutor(1) as executor:
        running = executor.submit(retention)
        try:
            # On a machine that is busy it takes longer until enough has happened.
            while (
                time.monotonic() < began + LOAD_SECONDS
                or not enough(seen - names_below(root))
                or min(passes, found) <= 5
                or retention.rounds <= 2
            ):
                assert time.monotonic() < began + LOAD_SECONDS + CATCH_UP, seen
                if follower.pass_over(store):
                    found += find_newest(store, follower)
                for each in columns:
                    each.pass_over(store)
                passes += 1
                seen |= names_below(root)
                assert opened_for_writing(root) == []
            # Name server, broker, its second port and replication; clients have connections.
            assert checks.assert_loopback_only(broker.pid) == 4
            with pytest.raises(rmqstore.StoreLockedError):
                rmqstore.open(root, "r+")
        finally:
            retention.stop.set()
            running.result(timeout=60)
        wait_for_files(broker)
        sent += broker.load_rows() + broker.load_stop()
        consumed = catch_up(broker, len(sent))
        for each in (follower, *columns):
            read_to_the_end(each, store, broker)
            check(each, consumed, sent, broker, tally)
        assert removed_behind_an_iteration(store, broker) > 0
        whole_queues(store, broker)
        seen |= names_below(root)
        assert opened_for_writing(root) == []
    assert broker.info()["writeable"]
    assert [name for name in sorted(seen) if not BROKERS_NAMES.fullmatch(name)] == []
    tally["found by key"] += found
    assert broker.hang_up() == 0  # all of it ends with its standard input


def enough(gone: set[str]) -> bool:
    """Whether files of all kinds were deleted while we read."""
    kinds = Counter(name.partition("/")[0] for name in gone)
    return kinds["commitlog"] > 3 and kinds["consumequeue"] > 3 and kinds["index"] > 1


def wait_for_files(broker: Broker) -> None:
    """Wait, under load, until a round of retention would have something to delete."""
    deadline = time.monotonic() + CATCH_UP
    while (info := broker.info())["max_phy_offset"] - info["min_phy_offset"] < 4 * LOG_FILE:
        assert time.monotonic() < deadline, info
        time.sleep(0.05)


def first_sent(broker: Broker) -> list[Loaded]:
    """Wait for the first messages: a broker makes the first file of its log with them."""
    deadline = time.monotonic() + CATCH_UP
    while not (sent := broker.load_rows()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return sent


def read_to_the_end(follower: Follower, store: rmqstore.MessageStore, broker: Broker) -> None:
    """Nothing is sent any more: the reader must come to where the broker's queues end."""
    ends = {place: stop for place, (_, stop) in broker.minmax().items() if place in follower.next}
    deadline = time.monotonic() + CATCH_UP
    while follower.next != ends:
        assert time.monotonic() < deadline, (follower.next, ends, follower.removed)
        follower.pass_over(store)


def find_newest(store: rmqstore.MessageStore, follower: Follower) -> int:
    """Find what was just read: by its place in the log, its keys and its ids."""
    place = max(follower.rows, key=lambda each: follower.rows[each][-1][1])
    offset, physical_offset, uniq_key, _, keys, _ = follower.rows[place][-1]
    message = store.at(physical_offset)
    assert (message.topic, message.queue_id, message.queue_offset) == (*place, offset)
    for key in (uniq_key, keys.split(" ")[0]):
        assert store.query(place[0], key) == [message]
    assert store.message(message.msg_id) == store.message(uniq_key) == message
    return 2


def whole_queues(store: rmqstore.MessageStore, broker: Broker) -> None:
    """What is left is the same for both, from the minimum to the end."""
    for place, (start, stop) in broker.minmax().items():
        if place[0] in TOPICS:
            queue = store[place[0]][place[1]]
            least = queue.min_offset
            assert least == start or (least == stop and broker.get(*place, start).records == [])
            assert [message.queue_offset for message in queue] == list(range(least, stop)), place
            assert len(queue.units()) == stop - least


def catch_up(broker: Broker, count: int) -> list[Consumed]:
    """Wait for the consumer to have everything that was acknowledged."""
    consumed: dict[tuple, Consumed] = {}
    deadline = time.monotonic() + CATCH_UP
    while len(consumed) < count:
        assert time.monotonic() < deadline, (len(consumed), count)
        time.sleep(0.1)
        for row in broker.consumer_rows(GROUP):
            assert consumed.setdefault(row[:3], row) == row or row.reconsume_times
    return list(consumed.values())


def check(
    follower: Follower, consumed: list[Consumed], sent: list, broker: Broker, tally: Counter
) -> None:
    """Every message that the consumer got is there, in order, once, but what retention took."""
    theirs: dict[Place, dict[int, tuple]] = defaultdict(dict)
    for row in consumed:
        theirs[row.topic, row.queue_id][row.queue_offset] = consumer_row(row)
    missed = 0
    first_kept = broker.info()["min_phy_offset"]
    for place, start, stop in follower.removed:
        for offset in range(start, stop):
            row = theirs[place].pop(offset, None)
            assert row is None or row[1] < first_kept, (place, offset, row, first_kept)
            missed += 1
    for place, rows in follower.rows.items():
        assert rows == [theirs[place][offset] for offset in sorted(theirs[place])], place
        tally[f"messages in order, {type(follower).__name__}"] += len(rows)
    taken = sum(map(len, follower.rows.values()))
    assert taken + missed == len(sent) == len(consumed)
    assert {row.uniq_key for row in sent} == {row.msg_id for row in consumed}
    assert taken > len(sent) // 2, (taken, missed)
    tally["removed before they were read"] += missed


def removed_behind_an_iteration(store: rmqstore.MessageStore, broker: Broker) -> int:
    """Iterations that began before retention took what was to come say so, and so does ``get``."""
    begun = []
    for topic, queues in TOPICS.items():
        for queue_id in range(queues):
            queue = store[topic][queue_id]
            begun.append((queue, queue.min_offset))
    iterations = [iter(queue) for queue, _ in begun]
    broker.clean()  # all but the last file, ten a round
    raised = 0
    for (queue, start), messages in zip(begun, iterations, strict=True):
        end = queue.min_offset
        if end == start:
            continue
        with pytest.raises(rmqstore.MessagesRemovedError) as removed:
            list(messages)
        error = removed.value
        assert (error.topic, error.queue_id) == (queue.topic, queue.queue_id)
        assert (error.offset, error.min_offset) == (start, end)
        got = store.get(queue.topic, queue.queue_id, start)
        assert got.status is rmqstore.GetStatus.OFFSET_TOO_SMALL
        assert (got.min_offset, got.next_offset) == (end, end)
        # A broker that has none of a queue's messages left goes on naming the minimum it had.
        if end < queue.max_offset:
            assert broker.get(queue.topic, queue.queue_id, start).status == "OFFSET_TOO_SMALL"
            assert broker.minmax()[queue.topic, queue.queue_id] == (end, queue.max_offset)
        raised += 1
    return raised
