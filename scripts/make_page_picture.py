"""Make ``docs/page.png``: the page of a server while clients send and consume.

PYTHONPATH=tests python scripts/make_page_picture.py [--seconds 90]

It needs Chromium, and the ports 9876 and 9877.
"""

import argparse
import contextlib
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import rmqstore
from support.chromium import Page, find_chromium
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

PICTURE = Path(__file__).parent.parent / "docs" / "page.png"
SIZE = (1280, 1150)
QUEUES = 4
STATES = ("created", "paid", "shipped")


def send(address: str, topic: str, a_second: float, stop: threading.Event) -> None:
    """Send messages until stopped."""
    with RemotingClient(address) as client:
        client.ask(34, None, heartbeat(f"{topic}-producer", producers=[f"{topic}-p"]))
        for number in itertools.count():
            if stop.wait(1 / a_second):
                return
            state = STATES[number % len(STATES)]
            body = {topic.removesuffix("s"): number, "state": state, "amount": number * 7 % 2500}
            client.ask(310, {
                "a": f"{topic}-p", "b": topic, "c": "TBW102", "d": str(QUEUES),
                "e": str(number % QUEUES), "f": "0", "g": str(int(time.time() * 1000)), "h": "0",
                "i": f"KEYS\1{topic.removesuffix('s')}-{number}\2TAGS\1{state}\2", "j": "0",
                "k": "false", "m": "false",
            }, json.dumps(body).encode())  # fmt: skip


def consume(
    address: str, group: str, topic: str, queues: range, pause: float, stop: threading.Event
) -> None:
    """Pull and commit until stopped, with a pause after each pull."""
    with RemotingClient(address) as client:
        client.ask(34, None, heartbeat(f"{group}-{queues.start}", [consumer(group, {topic: "*"})]))
        offsets = dict.fromkeys(queues, 0)
        for queue in itertools.cycle(queues):
            if stop.wait(pause):
                return
            answer = client.ask(11, {
                "consumerGroup": group, "topic": topic, "queueId": queue,
                "queueOffset": offsets[queue], "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
                "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            })  # fmt: skip
            if answer.code == 0 and answer.fields:
                offsets[queue] = int(answer.fields["nextBeginOffset"])
                place = {"consumerGroup": group, "topic": topic, "queueId": queue}
                client.ask(15, {**place, "commitOffset": offsets[queue]})


def add_undelivered(store: rmqstore.MessageStore) -> None:
    """Put delayed messages, dead letters and a half message."""
    for level in (9, 9, 14, 18):
        store.put("orders", b"{}", queue_id=0, delay_level=level)
    for group, count in (("shipping", 7), ("audit", 2)):
        for _ in range(count):
            store.put(f"%DLQ%{group}", b"{}", queue_id=0)
    store.begin("orders", b"{}")


@contextlib.contextmanager
def running(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run each in a thread, until the end of the block."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=[stop]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def main() -> None:
    """Make the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="of traffic before it is taken")
    given = parser.parse_args()
    program = find_chromium()
    if program is None:
        parser.error("there is no chromium")
    with (
        tempfile.TemporaryDirectory(prefix="demo-") as scratch,
        rmqstore.serve(Path(scratch, "store"), port=9876, metrics_port=9877) as server,
    ):
        server.store.create_topic("orders", QUEUES)
        server.store.create_topic("invoices", QUEUES)
        add_undelivered(server.store)
        at = server.address
        with (
            running(
                lambda stop: send(at, "orders", 120, stop),
                lambda stop: send(at, "invoices", 15, stop),
                lambda stop: consume(at, "billing", "orders", range(2), 0.01, stop),
                lambda stop: consume(at, "billing", "orders", range(2, 4), 0.01, stop),
                lambda stop: consume(at, "shipping", "orders", range(4), 0.5, stop),
                lambda stop: consume(at, "audit", "invoices", range(4), 0.02, stop),
            ),
            Page(program, f"http://{server.metrics_address}/#orders", size=SIZE) as page,
        ):
            time.sleep(given.seconds)
            page.wait_for("document.querySelector('#put_rate').textContent !== '0'")
            page.run("byId('find_text').value = 'order-1'; byId('find_topic').value = 'orders'")
            page.run("byId('find_form').requestSubmit()")
            page.wait_for("document.querySelectorAll('#found li').length > 0")
            PICTURE.write_bytes(page.picture())
    print(f"{os.path.relpath(PICTURE)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
