"""The traffic of the turns, and the program that writes our share of it.

``turns.py ROOT ACKS TURN END``: ACKS is a file descriptor, END ``close`` or ``kill``.  The program
opens the store, says ``open`` and goes on when its standard input has a line.  With ``close`` it
makes the turn's calls and closes; with ``kill`` it writes until it is killed.  A line of ACKS is a
word or the JSON list of what one call acknowledged: ``[name, place, physical offset]`` for each.

A message's name says all that is in it (see :func:`message_of`), so that whoever reads the store
can tell what was sent from what came out of nowhere.  Names are ``TURN.THREAD.NUMBER.KIND``; in a
batch ``@`` and the name whose topic and queue all of it have.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import zlib
from functools import lru_cache
from typing import Any

SIZES = {
    "mappedFileSizeCommitLog": 256 << 10,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1500,
}
OUR_SIZES = {
    "mapped_file_size_commit_log": SIZES["mappedFileSizeCommitLog"],
    "mapped_file_size_consume_queue": SIZES["mappedFileSizeConsumeQueue"],
    "max_hash_slot_num": SIZES["maxHashSlotNum"],
    "max_index_num": SIZES["maxIndexNum"],
}
TOPICS = ["Topic1", "orders", "a_b-c%1|2", "%RETRY%group"]
QUEUES = 4
GROUPS = [f"g{n}" for n in range(40)] + ["Aa", "BB", "\u952e", "\U0001f511"]
TAGS = [None, "TagA", "Aa", "BB", "\u6807\u7b7e", "\U0001f680"]
HOSTS = ["127.0.0.1:10911", "10.0.0.1:1", "[2001:db8::1]:40000", "[::1]:65535"]
PROPERTIES = {"psly": "psly", "a": "1", "\u5c5e\u6027": "\u503c", "rocket": "\U0001f680" * 3}
LEVELS = {16: 1_800_000, 17: 3_600_000, 18: 7_200_000}  # delays in ms, longer than any test
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
CALLS = 16  # of each thread in a turn that ends in peace
MOST_CALLS = 3000  # of each thread in a turn that does not
THREADS = 2
PIPE_BYTES = 4096  # so little is acknowledged and not yet read
SYNC_FLUSH_EACH = 4  # turns


@lru_cache(maxsize=1 << 16)
def message_of(name: str) -> dict[str, Any]:
    """Everything of a message, derived from its name and the environment's seed."""
    own, _, leader = name.partition("@")
    turn, _, _, kind = own.split(".")
    seed = os.environ.get("RMQSTORE_INTEROP_SEED", "")
    draw = random.Random(f"{seed} {own}")
    longest = draw.choice([0, 1, 40, 200, 200, 1000, 1000, 6000, 40_000 if kind == "p" else 0])
    size = draw.randint(0, longest)
    body = (zlib.crc32(own.encode()).to_bytes(4, "big") * (size // 4 + 1))[:size]
    names = draw.sample(sorted(PROPERTIES), draw.choice([0, 0, 1, 2, 4]))
    message = {
        "topic": draw.choice(TOPICS),
        "queue_id": draw.randrange(QUEUES),
        "body": body,
        "tags": draw.choice(TAGS),
        "keys": [name, *draw.sample(GROUPS, draw.choice([0, 1, 1, 2]))],
        "properties": {each: PROPERTIES[each] for each in names},
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": None,
        "born_host": None,
        "delay_level": 0,
        "uniq_key": None if draw.random() < 0.5 else f"own-{name}",
        "prepared_transaction_offset": 0,
        "store_host": random.Random(f"{seed} {turn}").choice(HOSTS),
    }
    if kind == "p":
        message["flag"] = draw.randint(-(1 << 31), (1 << 31) - 1)
        message["born_timestamp"] = 1_600_000_000_000 + draw.randrange(1 << 30)
        message["born_host"] = draw.choice(HOSTS)
        message["delay_level"] = draw.choice([0] * 20 + list(LEVELS))
    elif kind == "t":
        message["sys_flag"] = draw.choice([PREPARED, COMMIT, ROLLBACK])
        message["prepared_transaction_offset"] = draw.randrange(1 << 40)
    if leader:
        message |= {each: message_of(leader)[each] for each in ("topic", "queue_id")}
    return message


def is_queued(message: dict[str, Any]) -> bool:
    """Whether it gets a unit in a queue; prepared and rolled back ones do not."""
    return message["sys_flag"] not in {PREPARED, ROLLBACK}


def queue_of(message: dict[str, Any]) -> tuple[str, int]:
    """The queue that it is stored in."""
    if message["delay_level"]:
        return SCHEDULE_TOPIC, message["delay_level"] - 1
    return message["topic"], message["queue_id"]


class Names:
    """Makes the names of one thread's messages in one turn."""

    def __init__(self, turn: int, thread: int) -> None:
        self._prefix = f"{turn}.{thread}"
        self._number = 0
        seed = os.environ.get("RMQSTORE_INTEROP_SEED", "")
        self.random = random.Random(f"{seed} names {self._prefix}")

    def some(self, kind: str, count: int = 1) -> list[str]:
        names = [f"{self._prefix}.{self._number + n}.{kind}" for n in range(count)]
        self._number += count
        return [f"{name}@{names[0]}" for name in names] if kind == "b" else names


class Writer:
    """Writes through rmqstore and says what was acknowledged."""

    def __init__(self, store: Any, acks: int) -> None:
        self.store = store
        self.acks = acks
        self.lock = threading.Lock()
        self.stopped = threading.Event()

    def say(self, what: Any) -> None:
        data = json.dumps(what).encode() + b"\n"
        with self.lock:
            while data:
                data = data[os.write(self.acks, data) :]

    def put(self, name: str) -> None:
        m = message_of(name)
        more = {each: m[each] for each in ("born_timestamp", "born_host")} if m["born_host"] else {}
        put = self.store.put(
            m["topic"],
            m["body"],
            queue_id=m["queue_id"],
            tags=m["tags"],
            keys=m["keys"],
            properties=m["properties"],
            flag=m["flag"],
            delay_level=m["delay_level"],
            uniq_key=m["uniq_key"] or False,
            **more,
        )
        self.say([[name, [*queue_of(m), put.queue_offset], put.physical_offset]])

    def put_batch(self, names: list[str]) -> None:
        messages = [message_of(name) for name in names]
        put = self.store.put_batch(
            messages[0]["topic"],
            [m["body"] for m in messages],
            queue_id=messages[0]["queue_id"],
            tags=[m["tags"] for m in messages],
            keys=[m["keys"] for m in messages],
            properties=[m["properties"] for m in messages],
            uniq_key=True,
        )
        self.say(
            [
                [name, [*queue_of(m), put.queue_offset + n], None if n else put.physical_offset]
                for n, (name, m) in enumerate(zip(names, messages, strict=True))
            ]
        )

    def put_many(self, names: list[str]) -> None:
        messages = [message_of(name) for name in names]
        put = self.store.put_many(
            [m["topic"] for m in messages],
            [m["body"] for m in messages],
            queue_id=[m["queue_id"] for m in messages],
            tags=[m["tags"] for m in messages],
            keys=[m["keys"] for m in messages],
            properties=[m["properties"] for m in messages],
            uniq_key=True,
        )
        places = zip(put.queue_offset.tolist(), put.physical_offset.tolist(), strict=True)
        self.say(
            [
                [name, [*queue_of(m), offset], physical]
                for name, m, (offset, physical) in zip(names, messages, places, strict=True)
            ]
        )

    def run(self, names: Names, calls: int) -> None:
        for _ in range(calls):
            if self.stopped.is_set():
                return
            kind = names.random.random()
            if kind < 0.75:
                self.put(names.some("p")[0])
            elif kind < 0.9:
                self.put_batch(names.some("b", names.random.randint(1, 5)))
            else:
                self.put_many(names.some("m", names.random.randint(1, 12)))


def main(root: str, acks: str, turn: str, end: str) -> None:
    import rmqstore

    flush = "ASYNC_FLUSH" if int(turn) // 2 % SYNC_FLUSH_EACH else "SYNC_FLUSH"
    store_host = message_of(f"{turn}.0.0.p")["store_host"]
    config = rmqstore.StoreConfig(**OUR_SIZES, store_host=store_host, flush_disk_type=flush)
    store = rmqstore.open(root, "a", config=config)
    writer = Writer(store, int(acks))
    writer.say("open")
    sys.stdin.readline()
    calls = CALLS if end == "close" else MOST_CALLS
    threads = [
        threading.Thread(target=writer.run, args=(Names(int(turn), number), calls))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if end == "kill":  # it should have come long since
        time.sleep(60)
        raise SystemExit("nobody killed it")
    store.close()
    writer.say("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
