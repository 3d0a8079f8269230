"""Write a store with every writing method of rmqstore, then close it or die.  Run as a program.

``writers.py DIRECTORY KIND END RESULT``: KIND names an entry of ``CONFIGS``, END is ``close`` or
``kill``; RESULT is a file that gets the pickled list of what was put, dicts as ``Writer._expect``
makes them.  With ``kill`` the process then sends itself SIGKILL, the store open.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

# File sizes by MessageStoreConfig's names, and further fields of our StoreConfig.
SMALL = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
CONFIGS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "small": (SMALL, {}),
    "small-sync": (SMALL, {"flush_disk_type": "SYNC_FLUSH"}),
    "default-v6": ({}, {"store_host": "[2001:db8::a:b]:10911"}),
    "checksum": (SMALL, {"record_checksum": True}),
}
FIELDS = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}
MESSAGES = {"small": 6000, "small-sync": 1500, "default-v6": 1500, "checksum": 1500}

TOPICS = ["Topic1", "orders", "a_b-c%1|2"]
FEW = "few"  # gets so little that each of its queues has one file
WIDE, WIDE_QUEUES = "wide", 100
TAGS = [None, None, "TagA", "TagB", "Aa", "BB", "\u6807\u7b7e", "\U0001f680\U0001f680"]
KEYS = [f"order-{n}" for n in range(300)] + ["Aa", "BB", "\u952e", "\U0001f511"]
HOSTS = [None, "10.0.0.1:1", "255.254.253.252:65535", "[2001:db8::1]:40000", "[::1]:0"]
WRITE_QUEUES = 4  # what an unknown topic is made with


def config_of(kind: str) -> Any:
    """The StoreConfig of a kind, for ours."""
    import rmqstore

    sizes, more = CONFIGS[kind]
    return rmqstore.StoreConfig(**{FIELDS[name]: size for name, size in sizes.items()}, **more)


def java_hash(text: str) -> int:
    """``String.hashCode``, signed."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def queues_of(topic: str) -> int:
    """How many queues a topic has."""
    return WIDE_QUEUES if topic == WIDE else WRITE_QUEUES


def queue_of(key: str | int, queues: int = WRITE_QUEUES) -> int:
    """The queue that ``SelectMessageQueueByHash`` picks: abs of Java's remainder."""
    return abs(key if isinstance(key, int) else java_hash(key)) % queues


class Writer:
    """Puts random messages and keeps what a reader must find."""

    def __init__(self, store: Any, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.expected: list[dict[str, Any]] = []
        self._serial = 0

    def _expect(self, **fields: Any) -> None:
        """Note one message.

        It is found by ``physical_offset``, or by topic, queue id and queue offset where that is
        None.  ``uniq_key``: the key, None for none, True for one that is not known here.
        """
        self.expected.append(
            {
                "physical_offset": None,
                "queue_offset": None,
                "flag": 0,
                "born_host": None,
                "born_timestamp": None,
                "delay_level": 0,
                **fields,
            }
        )

    def _body(self) -> bytes:
        longest = self.random.choice([0, 1, 40, 40, 200, 200, 200, 1000, 6000])
        return self.random.randbytes(self.random.randint(0, longest))

    def _keys(self) -> list[str]:
        return self.random.sample(KEYS, self.random.choice([0, 0, 1, 1, 1, 2, 4]))

    def _properties(self, longest: int = 20_000) -> dict[str, str]:
        some = {"psly": "psly", "a": "1", "\u5c5e\u6027": "\u503c", "rocket": "\U0001f680" * 3}
        names = self.random.sample(sorted(some), self.random.choice([0, 0, 1, 2, 4]))
        properties = {name: some[name] for name in names}
        if self.random.random() < 0.02:
            properties["long"] = "x" * self.random.randint(100, longest)
        return properties

    def _uniq_key(self) -> bool | str:
        self._serial += 1
        return self.random.choice([True, True, True, False, f"own-{self._serial}"])

    def put(
        self,
        topic: str,
        delay_level: int = 0,
        body: bytes | None = None,
        queue_id: int | None = None,
    ) -> None:
        """One ``put`` with a random choice of everything it takes."""
        body = self._body() if body is None else body
        tags, keys, properties = self.random.choice(TAGS), self._keys(), self._properties()
        uniq_key = self._uniq_key()
        where: dict[str, Any] = self.random.choice(
            [
                {"queue_id": self.random.randrange(queues_of(topic))},
                {"queue_key": self.random.choice(KEYS)},
                {"queue_key": self.random.randint(-(1 << 31), (1 << 31) - 1)},
                {},
            ]
        )
        if queue_id is not None:
            where = {"queue_id": queue_id}
        more: dict[str, Any] = {}
        if self.random.random() < 0.3:
            more["flag"] = self.random.randint(-(1 << 31), (1 << 31) - 1)
            more["born_timestamp"] = 1_600_000_000_000 + self._serial
        host = self.random.choice(HOSTS)
        if host is not None:
            more["born_host"] = host
        if keys:
            more["keys"] = " ".join(keys) if self.random.random() < 0.5 else keys
        if properties:
            more["properties"] = properties
        if delay_level:
            more["delay_level"] = delay_level
        wait = self.random.random() < 0.7
        done = self.store.put(topic, body, tags=tags, uniq_key=uniq_key, wait=wait, **where, **more)
        if "queue_id" in where:
            queue_id = where["queue_id"]
        else:
            queue_id = queue_of(where["queue_key"], queues_of(topic)) if where else None
        if queue_id is not None and not delay_level:
            assert done.queue_id == queue_id, (where, done.queue_id)
        for name in ("keys", "properties"):
            more.pop(name, None)
        if uniq_key is True:
            assert len(done.uniq_key) == 32, done.uniq_key
            assert int(done.uniq_key, 16) >= 0
        self._expect(
            topic=topic,
            body=body,
            tags=tags,
            keys=keys,
            properties=properties,
            physical_offset=done.physical_offset,
            queue_offset=done.queue_offset,
            queue_id=queue_id if delay_level else done.queue_id,
            uniq_key={True: done.uniq_key, False: None}.get(uniq_key, uniq_key),
            msg_id=done.msg_id,
            **more,
        )

    def _rows(self, count: int) -> dict[str, Any]:
        """Columns of tags, keys and properties, each one for all or one a row.

        A batch must stay smaller than a file: 4.9.3 loses what is not, and answers PUT_OK.
        """
        rows: dict[str, Any] = {}
        rows["tags"] = (
            [self.random.choice(TAGS) for _ in range(count)]
            if self.random.random() < 0.6
            else self.random.choice(TAGS)
        )
        rows["keys"] = (
            [self._keys() for _ in range(count)]
            if self.random.random() < 0.6
            else self.random.choice(KEYS)
        )
        rows["properties"] = (
            [self._properties(2000) for _ in range(count)]
            if self.random.random() < 0.6
            else self._properties(2000)
        )
        return rows

    @staticmethod
    def _row(rows: dict[str, Any], n: int) -> dict[str, Any]:
        row = {name: c[n] if isinstance(c, list) else c for name, c in rows.items()}
        if isinstance(row["keys"], str):
            row["keys"] = row["keys"].split(" ")
        return row

    def batch(self, topic: str, count: int) -> None:
        """One ``put_batch``."""
        bodies = [self.random.randbytes(self.random.randint(0, 300)) for _ in range(count)]
        rows = self._rows(count)
        queue_id = self.random.randrange(queues_of(topic))
        uniq_key = self.random.random() < 0.7
        done = self.store.put_batch(
            topic, bodies, queue_id=queue_id, uniq_key=uniq_key, wait=self._serial % 2 == 0, **rows
        )
        assert done.queue_id == queue_id
        for n, body in enumerate(bodies):
            self._expect(
                topic=topic,
                body=body,
                queue_id=queue_id,
                queue_offset=done.queue_offset + n,
                uniq_key=True if uniq_key else None,
                **self._row(rows, n),
            )

    def many(self, count: int, topic: str | None = None) -> None:
        """One ``put_many`` of columns: lists, NumPy arrays, an Arrow array where that is there."""
        import numpy as np

        bodies = [self._body() for _ in range(count)]
        topics: Any = [self.random.choice(TOPICS) for _ in range(count)] if topic is None else topic
        rows = self._rows(count)
        keys = [self.random.choice(KEYS) for _ in range(count)]
        queues = WRITE_QUEUES if topic is None else queues_of(topic)
        ids = [self.random.randrange(queues) for _ in range(count)]
        where: dict[str, Any] = self.random.choice(
            [{"queue_id": np.array(ids, dtype=np.int32)}, {"queue_key": keys}, {"queue_id": 2}, {}]
        )
        self._serial += 1
        own = [f"many-{self._serial}-{n}" for n in range(count)]
        uniq_key: Any = self.random.choice([True, True, False, own])
        sent: Any = bodies
        if self._serial % 2:
            try:
                import pyarrow as pa

                sent = pa.array(bodies, pa.binary())
            except ImportError:
                pass
        done = self.store.put_many(topics, sent, uniq_key=uniq_key, **where, **rows)
        assert done.count == count
        if "queue_key" in where:
            assert done.queue_id.tolist() == [queue_of(key, queues) for key in keys]
        elif where:
            assert done.queue_id.tolist() == (
                ids if len(np.shape(where["queue_id"])) else [2] * count
            )
        for n, body in enumerate(bodies):
            self._expect(
                topic=topics if isinstance(topics, str) else topics[n],
                body=body,
                queue_id=int(done.queue_id[n]),
                queue_offset=int(done.queue_offset[n]),
                physical_offset=int(done.physical_offset[n]),
                uniq_key=own[n] if uniq_key is own else uniq_key or None,
                **self._row(rows, n),
            )

    def wide(self) -> None:
        """Something in every one of many queues, by all methods."""
        self.store.create_topic(WIDE, WIDE_QUEUES)
        for queue_id in range(WIDE_QUEUES):
            self.put(WIDE, queue_id=queue_id)
        for size in (3, 10):
            self.batch(WIDE, size)
        for _ in range(3):
            self.many(100, WIDE)

    def everything(self, count: int) -> None:
        """About ``count`` messages, by all methods in turn."""
        for _ in range(60):
            self.put(FEW)
        self.put("big", body=self.random.randbytes(200_000))
        self.put("Topic1", body=b"")
        self.wide()
        while len(self.expected) < count:
            for _ in range(200):
                self.put(self.random.choice(TOPICS))
            for level in (16, 17, 18):
                self.put("orders", delay_level=level)
            for size in (1, 2, 7, 20, 50):
                self.batch(self.random.choice(TOPICS), size)
            self.many(1, "orders")
            self.many(200, self.random.choice(TOPICS))
            self.many(100)
            self.store.wait_durable(timeout=60)


def main(directory: str, kind: str, end: str, result: str) -> None:
    import rmqstore

    store = rmqstore.open(directory, "a", config=config_of(kind))
    writer = Writer(store, seed=sum(kind.encode()))
    began = int(time.time() * 1000)
    writer.everything(MESSAGES[kind])
    with Path(result).open("wb") as file:
        pickle.dump({"began": began, "expected": writer.expected}, file)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
