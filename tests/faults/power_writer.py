"""A program that writes, deletes topics and says what is flushed, until it is killed.

``power_writer.py ROOT ACKS SEED PREFIX CONFIG``: as ``crash/writer.py``, CONFIG a JSON object.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import Any

from crash.writer import THREADS, Writer, placed

SECONDS = 30  # that it goes on where nobody kills it
DELETED = ["Gone1", "Gone2"]


_report = threading.excepthook


class PowerWriter(Writer):
    def tell_flushed(self, draw: random.Random) -> None:
        while True:
            flushed = self.store.stats()["flushed_position"]
            self.say(f"flushed {flushed}")
            time.sleep(draw.uniform(0, 0.02))
            if draw.random() < 0.05:
                self.store.flush()

    def make_and_delete(self, draw: random.Random) -> None:
        number = 0
        while True:
            topic = draw.choice(DELETED)
            for _ in range(draw.randrange(1, 8)):
                name = f"{self.prefix}.d{number}@={topic}"
                number += 1
                m = placed(name)
                done = self.store.put(
                    topic, m["body"], queue_id=m["queue_id"], tags=m["tags"], keys=m["keys"]
                )
                self.acknowledged([name], [(done.queue_offset, done.physical_offset)], [m])
            time.sleep(draw.uniform(0, 0.02))
            if draw.random() < 0.5:
                self.say(f"deleting {topic}")
                self.store.delete_topic(topic)
                self.say(f"deleted {topic}")


def write(root: str, acks: int, seed: int, prefix: str, config: Any) -> None:
    """Write until the end of this process, which is some time off."""
    import rmqstore

    # A disk that went away ends a thread.
    threading.excepthook = lambda args: (
        None if isinstance(args.exc_value, OSError | rmqstore.StoreError) else _report(args)
    )
    os.write(acks, b"opening\n")
    store = rmqstore.open(root, "a", config=config)
    os.write(acks, b"open\n")
    writer = PowerWriter(store, acks, seed, prefix)
    until = time.monotonic() + SECONDS
    targets: list[tuple[Any, tuple[Any, ...]]] = [
        (writer.run, (number, until)) for number in range(THREADS)
    ]
    targets.append((writer.tell_flushed, (random.Random(f"{seed} flushed"),)))
    targets.append((writer.make_and_delete, (random.Random(f"{seed} deleted"),)))
    for work, arguments in targets:
        threading.Thread(target=work, args=arguments, daemon=True).start()
    time.sleep(SECONDS)
    os._exit(0)


def main(root: str, acks: str, seed: str, prefix: str, config: str) -> None:
    import rmqstore

    chosen = rmqstore.StoreConfig(**json.loads(config))
    write(root, int(acks), int(seed), prefix, chosen)


if __name__ == "__main__":
    main(*sys.argv[1:])
