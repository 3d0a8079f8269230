"""A program that writes from many threads until somebody ends it, and says what was acknowledged.

``writer.py ROOT ACKS SEED ROUND FLUSH SECONDS``: ACKS is a file descriptor; SECONDS is how long to
write before a clean close.  A line of ACKS is a word, or one acknowledged message:
``name topic queue_id queue_offset physical_offset``.  The line is written after the put returned.

A message's name says all that is in it (see :func:`message_of`), so that whoever reads the store
can tell what was sent from what came out of nowhere.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import zlib
from typing import Any

TOPICS = ["Topic1", "orders", "%RETRY%a-b_c|d"]
QUEUES = 4
THREADS = 4
GROUPS = 50  # values of the second key
MAX_BODY = 200 << 10
SIZES = {
    "mapped_file_size_commit_log": 512 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
FAST = {
    "flush_interval_commit_log": 10,
    "flush_interval_consume_queue": 10,
    "flush_consume_queue_thorough_interval": 40,
    "flush_commit_log_thorough_interval": 20,
}


def config(flush: str) -> Any:
    import rmqstore

    return rmqstore.StoreConfig(**SIZES, **FAST, flush_disk_type=flush)


def message_of(name: str) -> dict[str, Any]:
    """Topic, queue, body, tags and keys of a message, derived from its name alone.

    ``PREFIX~LONGEST~QUEUES`` before the first full stop limits bodies and spreads over more queues.
    """
    draw = random.Random(name)
    _, _, limits = name.partition(".")[0].partition("~")
    longest, queues = map(int, limits.split("~")) if limits else (MAX_BODY, QUEUES)
    kind = draw.random()
    if kind < 0.1:
        size = 0
    elif kind < 0.7:
        size = draw.randrange(1, 300)
    elif kind < 0.95:
        size = draw.randrange(300, 5000)
    elif kind < 0.99:
        size = draw.randrange(5000, 40_000)
    else:
        size = draw.randrange(40_000, MAX_BODY + 1)
    seed = zlib.crc32(name.encode()).to_bytes(4, "big")
    return {
        "topic": draw.choice(TOPICS),
        "queue_id": draw.randrange(queues),
        "body": (seed * (size // 4 + 1))[: min(size, longest)],
        "tags": draw.choice([None, "TagA", "paid"]),
        "keys": [name, f"g{draw.randrange(GROUPS)}"],
    }


class Writer:
    def __init__(self, store: Any, acks: int, seed: int, prefix: str) -> None:
        self.store = store
        self.acks = acks
        self.seed = seed
        self.prefix = prefix
        self.lock = threading.Lock()

    def say(self, *lines: str) -> None:
        data = "".join(line + "\n" for line in lines).encode()
        with self.lock:
            while data:
                data = data[os.write(self.acks, data) :]

    def acknowledged(self, names: list[str], done: list[tuple[int, int]], message: Any) -> None:
        self.say(
            *(
                f"{name} {m['topic']} {m['queue_id']} {queue_offset} {physical_offset}"
                for name, m, (queue_offset, physical_offset) in zip(
                    names, message, done, strict=True
                )
            )
        )

    def write_once(self, draw: random.Random, names: list[str]) -> None:
        """One call of one writing method; names has as many names as it may take."""
        kind = draw.random()
        if kind < 0.7:
            self.put(names[0], message_of(names[0]))
        elif kind < 0.85:
            self.put_batch(names[: draw.randrange(2, 6)])
        else:
            self.put_many(names)

    def put(self, name: str, m: dict[str, Any]) -> None:
        put = self.store.put(
            m["topic"], m["body"], queue_id=m["queue_id"], tags=m["tags"], keys=m["keys"]
        )
        self.acknowledged([name], [(put.queue_offset, put.physical_offset)], [m])

    def put_batch(self, names: list[str]) -> None:
        """One topic and queue, those of the first; bodies of up to 1 KiB, so that all fit a file.

        A name that ends in ``@NAME`` is a message whose topic and queue are NAME's.
        """
        names = [f"{name}@{names[0]}" for name in names]
        messages = [placed(name) for name in names]
        put = self.store.put_batch(
            messages[0]["topic"],
            [m["body"] for m in messages],
            queue_id=messages[0]["queue_id"],
            tags=[m["tags"] for m in messages],
            keys=[m["keys"] for m in messages],
        )
        found, at = [], put.physical_offset
        for number in range(len(names)):
            found.append((put.queue_offset + number, at))
            at = -1  # the result names the first only
        self.acknowledged(names, found, messages)

    def put_many(self, names: list[str]) -> None:
        messages = [message_of(name) for name in names]
        put = self.store.put_many(
            [m["topic"] for m in messages],
            [m["body"] for m in messages],
            queue_id=[m["queue_id"] for m in messages],
            tags=[m["tags"] for m in messages],
            keys=[" ".join(m["keys"]) for m in messages],
        )
        places = zip(put.queue_offset.tolist(), put.physical_offset.tolist(), strict=True)
        self.acknowledged(names, list(places), messages)

    def run(self, thread: int, until: float) -> None:
        draw = random.Random(f"{self.seed}-{self.prefix}-{thread}")
        number = 0
        while time.monotonic() < until:
            count = draw.randrange(6, 20)
            names = [f"{self.prefix}.{thread}.{number + i}" for i in range(count)]
            number += count
            self.write_once(draw, names)
            time.sleep(draw.choice([0, 0, 0.001, 0.003]))


def placed(name: str) -> dict[str, Any]:
    """What a message of any name is: NAME@LEADER is one of a batch, NAME@=TOPIC goes there."""
    m = message_of(name)
    if "@=" in name:
        m["topic"] = name.rpartition("=")[2]
    elif "@" in name:
        leader = message_of(name.rpartition("@")[2])
        m["topic"], m["queue_id"] = leader["topic"], leader["queue_id"]
        m["body"] = m["body"][:1024]
    return m


def main(root: str, acks: str, seed: str, prefix: str, flush: str, seconds: str) -> None:
    import rmqstore

    say = int(acks)
    os.write(say, b"opening\n")
    store = rmqstore.open(root, "a", config=config(flush))
    os.write(say, b"open\n")
    writer = Writer(store, say, int(seed), prefix)
    until = time.monotonic() + float(seconds)
    threads = [
        threading.Thread(target=writer.run, args=(number, until)) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    os.write(say, b"closed\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
