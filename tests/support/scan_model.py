"""Random logs, random arguments of ``scan``, and in plain Python the rows they should give."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rmqstore
from support import oracle, oracle_store, sql_oracle
from support.message_tables import COLUMNS
from support.strategies import assert_same

FIRST_TIME = 1_700_000_000_000
HOUR = 3_600_000
PREPARED, ROLLBACK = oracle.TRANSACTION_PREPARED, oracle.TRANSACTION_ROLLBACK
FOREIGN = "t\u00e9"  # no name of a topic: in the log and in no queue
KEYS = ["Aa", "BB", "AaAa", "order-1", "order-2", "\u00e9", "\U0001d11e"]
TAGS = ["TagA", "TagB", "Aa", "BB", "\u00e9"]
SQL = [
    "TAGS = 'TagA' OR p IS NOT NULL",
    "TAGS IN ('Aa', 'BB', 'TagB', '\u00e9', 'x') AND NOT (KEYS = 'Aa')",
    "UNIQ_KEY IS NULL",
    "TAGS <> 'TagA' and not p",
    "n7 BETWEEN 10 AND 50 OR two IS NOT NULL",
    "p = '\U0001d11e'",
    "empty IS NULL AND bad IS NOT NULL",
    "n3 > 10 OR n9 <= n8 OR UNIQ_KEY > 5",
]
RAW_ENTRIES = [
    b"KEYS\x01Aa",
    b"KEYS\x01 order-1  BB ",
    b"TAGS\x01TagA",
    b"TAGS\x01BB",
    b"TAGS\x01",
    b"UNIQ_KEY\x01order-2",
    b"p\x01first",
    b"p\x01\xf0\x9d\x84\x9e",
    b"bad\x01\xff\xfe\xed\xa0\x80\xc3",
    b"b\xc3d\x01x",
    b"b\xed\xa0d\x01y",
    b"empty\x01",
    b"\x01nameless",
    b"no separator",
    b"two\x01one\x01two",
]


def config(rng: random.Random) -> rmqstore.StoreConfig:
    """Small files, so that log, queues and index roll."""
    slots = rng.choice([5, 50, 500])
    return rmqstore.StoreConfig(
        mapped_file_size_commit_log=rng.choice([20_000, 65_536, 262_144, 1 << 20]),
        mapped_file_size_consume_queue=20 * rng.choice([3, 20, 500]),
        max_hash_slot_num=slots,
        max_index_num=4 * slots,  # as is taken where nothing is configured
    )


def _host(rng: random.Random) -> str:
    address = rng.choice(["10.1.2.3", "127.0.0.1", "[::1]", "[2001:db8::ff00:42:8329]"])
    return f"{address}:{rng.choice([0, 10911, 65535])}"


def _properties(rng: random.Random) -> bytes:
    entries = []
    if rng.random() < 0.5:
        entries.append(b"TAGS\x01" + rng.choice(TAGS).encode())
    if rng.random() < 0.4:
        words = rng.sample(KEYS, rng.randint(1, 3))
        entries.append(b"KEYS\x01" + " ".join(words).encode())
    if rng.random() < 0.5:
        entries.append(b"UNIQ_KEY\x01%032X" % rng.getrandbits(128))
    entries += rng.choices(RAW_ENTRIES, k=rng.choice([0, 0, 0, 1, 4]))
    if rng.random() < 0.02:  # more names than are compared one by one
        entries += [b"n%d\x01%d" % (rng.randrange(40), number) for number in range(60)]
    if rng.random() < 0.3:
        rng.shuffle(entries)
    return b"\x02".join(entries) + (b"\x02" if rng.random() < 0.5 else b"")


def clock_steps(rng: random.Random, count: int, gaps: Sequence[int]) -> list[int]:
    """Store times: equal ones, a clock set back or ahead, a leap for three records."""
    times = []
    now = FIRST_TIME
    for _ in range(count):
        now += rng.choice(gaps)
        times.append(now)
    for _ in range(rng.choice([0, 1, 1, 2])):
        at = rng.randrange(count)
        step = rng.choice([-HOUR, -5, 5, 24 * HOUR, -24 * HOUR, -30 * HOUR])
        stop = rng.choice([count, at + 3, at + 1, at + 90])
        times[at:stop] = [time + step for time in times[at:stop]]
    return times


def random_records(rng: random.Random, count: int, file_size: int) -> list[bytes]:
    """Encoded records: a busy topic, some others, a rare one."""
    most = rng.choice([900, 900, file_size // 2 - 2000])  # a few bodies are so large
    topics = ["busy"] * 20 + ["orders"] * 5 + ["%RETRY%a-b_c|d"] * 2 + ["rare"]
    if rng.random() < 0.2:
        topics.append(FOREIGN)
    transactions = rng.choice(["none", "none", "anywhere", "end"])
    next_offsets: dict[tuple[str, int], int] = {}
    if rng.random() < 0.3:
        next_offsets["orders", 0] = rng.randint(1, 9)
    records = []
    for number, now in enumerate(clock_steps(rng, count, [0, 0, 1, 7])):
        topic, queue_id = rng.choice(topics), rng.choice([0, 0, 1, 3])
        allowed = transactions == "anywhere" or (transactions == "end" and number >= count - 9)
        sys_flag = rng.choice([PREPARED, ROLLBACK, 8]) if allowed and rng.random() < 0.4 else 0
        queue_offset = 0
        if sys_flag in (PREPARED, ROLLBACK):
            topic = rng.choice([topic, "rare"])
        else:
            queue_offset = next_offsets.get((topic, queue_id), 0)
            next_offsets[topic, queue_id] = queue_offset + 1
        body = rng.choice([rng.randbytes(rng.randint(0, 900)), b"text " * rng.randint(0, 150)])
        if rng.random() < 0.04:
            body = rng.randbytes(rng.randint(0, most))
        if rng.random() < 0.15:
            body = zlib.compress(body)
            sys_flag |= oracle.FLAG_COMPRESSED | rng.choice([0, 3 << 8])
        records.append(
            oracle.encode_record(
                topic,
                body,
                queue_id=queue_id,
                queue_offset=queue_offset,
                flag=rng.choice([0, -1, 7]),
                sys_flag=sys_flag,
                born_timestamp=now - rng.choice([0, 5]),
                born_host=_host(rng),
                store_timestamp=now,
                store_host=_host(rng),
                reconsume_times=rng.choice([0, 3]),
                prepared_transaction_offset=rng.choice([0, 0, 1 << 40]),
                properties=_properties(rng),
            )
        )
    return records


def write_store(root: Path, records: Sequence[bytes], config: rmqstore.StoreConfig) -> None:
    """A closed store whose log has these records, with queues and index made from it."""
    log_directory = root / "commitlog"
    log_size = config.mapped_file_size_commit_log
    with rmqstore.CommitLog(log_directory, file_size=log_size, mode="a") as log:
        log.append(records)
    with rmqstore.open(root, "a", config=config):
        pass


def read_log(root: Path) -> list[Any]:
    """The messages of the log, row by row, each compared with the slow codec."""
    files = {start: path.open("rb") for start, path in oracle_store.log_files(root / "commitlog")}
    messages = []
    for record in oracle_store.walk_log(root / "commitlog"):
        start = max(start for start in files if start <= record.physical_offset)
        files[start].seek(record.physical_offset - start)
        message = rmqstore.decode_record(files[start].read(record.store_size))
        assert_same(message, record)
        messages.append(message)
    for file in files.values():
        file.close()
    return messages


def random_arguments(rng: random.Random, log: Sequence[Any], *, one_queue: bool) -> dict[str, Any]:
    """Arguments of ``scan``; ``one_queue``: a single queue may be asked for."""
    arguments: dict[str, Any] = {}
    known = sorted({message.topic for message in log})
    if rng.random() < 0.7:
        topics = rng.sample(known, rng.randint(1, min(3, len(known))))
        if "rare" in known and rng.random() < 0.5:
            topics = ["rare"]
            if rng.random() < 0.5:  # nothing else: along the queues if that is less
                return {"topic": "rare", "batch_rows": rng.choice([1, 16384])}
        if rng.random() < 0.1:
            topics.append("unknown")
        arguments["topic"] = topics[0] if len(topics) == 1 and rng.random() < 0.5 else topics
    topics = arguments.get("topic", [])
    if rng.random() < 0.4 and (one_queue or (isinstance(topics, list) and len(topics) != 1)):
        arguments["queue_id"] = rng.choice([0, 0, 1, 2, 3])
    stop = log[-1].physical_offset + log[-1].store_size
    places = [rng.randint(0, stop + 50), rng.choice(log).physical_offset, stop]
    if is_one_queue(arguments):
        places = [rng.randint(0, 30), 10**6]
    if rng.random() < 0.4:
        arguments["start"] = rng.choice(places)
        arguments["on_removed"] = "skip"  # a queue may begin later
    if rng.random() < 0.4:
        arguments["stop"] = rng.choice(places)
    for bound in ("since", "until"):
        if rng.random() < 0.25:
            arguments[bound] = rng.choice(log).store_timestamp + rng.choice([-1, 0, 1, 7])
    if rng.random() < 0.3:
        arguments["tags"] = " || ".join(rng.sample([*TAGS, "TagC"], rng.randint(1, 3)))
    if rng.random() < 0.3:
        arguments["sql"] = rng.choice(SQL)
    # By its keys such a record is found; one queue, which it has none of, does not have it.
    if rng.random() < 0.3 and not (is_one_queue(arguments) and FOREIGN in topics):
        keys = rng.sample([*KEYS, "unknown"], rng.randint(1, 3))
        keys += [rng.choice(log).uniq_key or "Aa"]
        arguments["keys"] = rng.choice([keys, " ".join(keys), keys[0]])
    if rng.random() < 0.8:
        names = [*COLUMNS, "raw_body"]
        arguments["columns"] = rng.sample(names, rng.choice([0, 1, 3, len(names)]))
    arguments["batch_rows"] = rng.choice([1, 2, 7, 100, 16384])
    if rng.random() < 0.5:
        arguments["batch_bytes"] = rng.choice([1, 500, 5000, 100_000])
    return arguments


def is_one_queue(arguments: dict[str, Any]) -> bool:
    """Whether ``start`` and ``stop`` are queue offsets."""
    topic = arguments.get("topic")
    single = isinstance(topic, str) or (topic is not None and len(topic) == 1)
    return single and arguments.get("queue_id") is not None


def in_range(log: Sequence[Any], arguments: dict[str, Any]) -> list[Any]:
    """The items between ``start`` and ``stop``."""
    start, stop = arguments.get("start", 0), arguments.get("stop", 1 << 62)
    if not is_one_queue(arguments):
        return [message for message in log if start <= message.physical_offset < stop]
    topic, queue_id = arguments["topic"], arguments["queue_id"]
    topic = topic if isinstance(topic, str) else topic[0]
    return [
        message
        for message in log
        if (message.topic, message.queue_id) == (topic, queue_id)
        and topic != FOREIGN
        and message.sys_flag & oracle.FLAG_TRANSACTION in (0, 8)
        and start <= message.queue_offset < stop
    ]


def expected(log: Sequence[Any], arguments: dict[str, Any]) -> list[Any]:
    """The messages that a scan should give, in its order."""
    topic, keys = arguments.get("topic"), arguments.get("keys")
    topics = None if topic is None else {topic} if isinstance(topic, str) else set(topic)
    wanted = set(keys.split()) if isinstance(keys, str) else set(keys or ())
    tags = {tag.strip() for tag in arguments.get("tags", "").split("||")} - {""}
    filter = sql_oracle.compiled(arguments.get("sql", "TRUE"))
    queue_id = arguments.get("queue_id")
    since, until = arguments.get("since", 0), arguments.get("until", 1 << 62)
    return [
        message
        for message in in_range(log, arguments)
        if (topics is None or message.topic in topics)
        and (queue_id is None or message.queue_id == queue_id)
        and since <= message.store_timestamp < until
        and (not tags or message.tags in tags)
        and sql_oracle.matches(filter, message.properties)
        and (not wanted or _has_key(message, wanted))
    ]


def _has_key(message: Any, wanted: set[str]) -> bool:
    if message.sys_flag & oracle.FLAG_TRANSACTION == ROLLBACK:
        return False
    return message.uniq_key in wanted or not wanted.isdisjoint(message.keys)
