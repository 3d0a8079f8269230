"""A program that opens what a killed one left, and tells what it sees, until it is killed.

``power_looker.py ACKS PREFIX ROOT END CONFIG``: a line is as that of an acknowledged message.  With
the END ``close`` it puts some more and closes the store before it tells that this was all.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from crash.writer import Writer, message_of
from faults.model import messages_of

SECONDS = 30
MORE = 40  # messages


def main(acks: str, prefix: str, root: str, end: str, config: str) -> None:
    import rmqstore

    logging.disable(logging.CRITICAL)  # recovery warns
    store = rmqstore.open(root, "r+", config=rmqstore.StoreConfig(**json.loads(config)))
    lines = [
        f"{m.keys[0]} {topic} {queue_id} {m.queue_offset} {m.physical_offset}\n"
        for topic, queue_id, messages in messages_of(store)
        for m in messages
    ]
    flushed = store.stats()["flushed_position"]
    if end == "close":
        writer = Writer(store, int(acks), 0, prefix)
        for number in range(MORE):
            name = f"{prefix}.{number}"
            writer.put(name, message_of(name))
        flushed = store.stats()["wrote_position"]
        store.close()
    with os.fdopen(int(acks), "w") as out:
        out.writelines([*lines, f"flushed {flushed}\n", "seen\n"])
    time.sleep(SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
