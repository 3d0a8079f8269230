"""A program that keeps a store at work, hours in a moment, until it is killed or is done.

``worker.py SETTINGS``: a JSON object, see ``Week.settings``.  It notes what it did in files beside
the store, each entry before the next step relies on it: they are what the checks go by.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore.config.store_config import StoreConfig
from week import traffic

RANGE = struct.Struct("<qq")
DELIVERED = struct.Struct("<qqq")  # number, physical offset, times tried
SAMPLE = struct.Struct("<qqqqq")  # round, bytes of the log, of the store, of memory, descriptors
DRAIN_STEPS, DRAIN_SECONDS = 400, 900
COMMITS_SYNCED = 10  # each so many rounds
SAMPLED = 10
LOG_FILE = 4 << 20


def check(doubt: Any) -> str:
    """What a producer says that is asked about its transaction."""
    return "commit" if traffic.number_of(doubt.message.body) % 2 == 0 else "rollback"


def config(hours: int) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=LOG_FILE,
        mapped_file_size_consume_queue=200_000,
        max_hash_slot_num=20_000,
        max_index_num=80_000,
        file_reserved_time=hours,
        delete_when=";".join(f"{hour:02d}" for hour in range(24)),
        delete_commit_log_files_interval=0,
        transaction_check=check,
    )


class Notes:
    """Files of fixed entries that a kill leaves whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: dict[str, int] = {}

    def add(self, name: str, entries: bytes) -> None:
        if name not in self.files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self.files[name] = os.open(self.directory / name, flags, 0o666)
        if entries:
            assert os.write(self.files[name], entries) == len(entries)


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.notes = Notes(Path(settings["notes"]))
        self.next = settings["next"]
        self.store: Any = None
        self.consumers: dict[str, Any] = {}

    def run(self) -> None:
        settings = self.settings
        path = Path(settings["store"])
        with rmqstore.open(path, "a", config=config(settings["hours"])) as self.store:
            if traffic.TOPIC not in self.store:
                self.store.create_topic(traffic.TOPIC, 4)
            for group in traffic.GROUPS:
                if group not in self.store.groups:
                    self.store.create_group(group, retry_max=traffic.RETRY_MAX)
                self.consumers[group] = self.store.consumer(traffic.TOPIC, group=group)
            for turn in range(settings["round"], settings["rounds"]):
                self.clock_to(settings["start"] + turn * settings["step"])
                self.put()
                self.consume(turn)
                self.sample(turn)
                self.notes.add("rounds", struct.pack("<q", turn))
            self.drain()
            for consumer in self.consumers.values():
                consumer.close()

    def clock_to(self, millis: int) -> None:
        """Put the clock forward, and let the services do what is due by then."""
        self.store.clock.advance((millis - self.store.clock.now()) / 1000)
        self.store.housekeeper.run_due()

    def put(self) -> None:
        first, stop = self.next, self.next + self.settings["messages"]
        self.next = stop
        self.notes.add("begun", RANGE.pack(first, stop))
        plain: list[bytes] = []
        for number in range(first, stop):
            kind = traffic.kind(number)
            if kind == traffic.PLAIN:
                plain.append(traffic.body(number))
            elif kind == traffic.DELAYED:
                level = traffic.level(number)
                self.store.put(traffic.TOPIC, traffic.body(number), delay_level=level)
            else:
                self.transaction(number)
        self.store.put_many(traffic.TOPIC, plain, uniq_key=False)
        self.notes.add("acknowledged", RANGE.pack(first, stop))

    def transaction(self, number: int) -> None:
        begun = self.store.begin(traffic.TOPIC, traffic.body(number), producer_group="shop")
        if traffic.end(number) == traffic.COMMITTED:
            begun.commit()
        elif traffic.end(number) == traffic.ROLLED_BACK:
            begun.rollback()

    def consume(self, turn: int) -> int:
        """Let each group handle what is there; what it handled is noted before it is committed."""
        count = 0
        for group, consumer in self.consumers.items():
            done = []
            for message in consumer:
                number, times = traffic.number_of(message.body), message.reconsume_times
                if traffic.fails(number, group, times):
                    consumer.retry(message)
                else:
                    done.append(DELIVERED.pack(number, message.physical_offset, times))
                count += 1
            self.notes.add(f"delivered-{group}", b"".join(done))
            consumer.commit(sync=turn % COMMITS_SYNCED == 0)
            count += self.note_dead(group)
        return count

    def note_dead(self, group: str) -> int:
        """Note the dead letters that came: retention will remove them as well."""
        topic = f"%DLQ%{group}"
        if topic not in self.store:
            return 0
        with self.store.consumer(topic, group=f"{group}-dead") as dead:
            numbers = [traffic.number_of(message.body) for message in dead]
            self.notes.add(f"dead-{group}", struct.pack(f"<{len(numbers)}q", *numbers))
            dead.commit()
        return len(numbers)

    def sample(self, turn: int) -> None:
        if turn % SAMPLED:
            return
        sizes = {"commitlog": 0, "": 0}
        for directory, _, names in os.walk(self.settings["store"]):
            for name in names:
                try:
                    used = Path(directory, name).stat().st_blocks * 512
                except FileNotFoundError:  # retention was faster
                    continue
                sizes[""] += used
                if directory.endswith("commitlog"):
                    sizes["commitlog"] += used
        anonymous = Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        self.notes.add(
            "samples",
            SAMPLE.pack(turn, sizes["commitlog"], sizes[""], int(anonymous) << 10, descriptors),
        )

    def drain(self) -> None:
        """Hours without a new message: what is delayed, retried or in doubt comes to its end."""
        until = time.monotonic() + DRAIN_SECONDS
        now = self.settings["start"] + self.settings["rounds"] * self.settings["step"]
        idle = 0
        for step in range(DRAIN_STEPS):
            now += 60_000
            self.clock_to(now)
            time.sleep(0.02)
            idle = idle + 1 if self.consume(step) == 0 else 0
            if idle > 3 and not self.store.delayed() and not self.store.in_doubt():
                self.notes.add("drained", struct.pack("<q", step))
                return
            assert time.monotonic() < until, "not drained in time"
        raise AssertionError(
            f"not drained: {self.store.delayed()[:3]!r}, {self.store.in_doubt()[:3]!r}"
        )


if __name__ == "__main__":
    Worker(json.loads(sys.argv[1])).run()
