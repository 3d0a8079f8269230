"""The client of PyPI's ``rocketmq`` (librocketmq, C++) in a process of its own: it ends with it.

``python python_client.py NAMESRV SITE``: sends, pulls and consumes, and prints a JSON line of each.
"""

import json
import sys
import time

sys.path.insert(0, sys.argv[2])  # where the wheel was installed, apart from all else

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

NAMESRV = sys.argv[1]
COUNT = 8


def say(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), flush=True)


def show(who, message):
    say(
        "got",
        who=who,
        topic=message.topic,
        body=message.body.decode(),
        tags=message.tags.decode(),
        keys=message.keys.decode(),
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        psly=message[b"psly"].decode(),
    )


def main():
    producer = Producer("cpp-p")
    producer.set_namesrv_addr(NAMESRV)
    producer.start()
    for n in range(COUNT):
        message = Message("cpp")
        message.set_keys(f"k{n}")
        message.set_tags("created" if n % 2 == 0 else "paid")
        message.set_property("psly", "psly")
        message.set_body(f"body {n}")
        result = producer.send_sync(message)
        say("sent", status=int(result.status), offset=result.offset)
    producer.shutdown()

    got = []

    def take(message):
        show("push", message)
        got.append(message.body)

    pushed = PushConsumer("cpp-c")
    pushed.set_namesrv_addr(NAMESRV)
    pushed.subscribe("cpp", take)
    pushed.start()
    deadline = time.monotonic() + 30
    while len(got) < COUNT and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)  # time for one too many
    pushed.shutdown()

    puller = PullConsumer("cpp-pull")
    puller.set_namesrv_addr(NAMESRV)
    puller.start()
    for message in puller.pull("cpp"):
        show("pull", message)
    puller.shutdown()
    say("end")


main()
