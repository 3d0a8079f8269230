"""Readers of other processes beside an owner that rolls, deletes, recovers, dies and comes back."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import rmqstore
from crash import writer
from faults import invariants
from faults.framework import SANITIZED, Case, Run, campaign
from faults.model import MANY, Content, Model, Named, learn
from faults.reopen import check_reopened

READERS = 2
LIVES = 5  # of the owner
LIMIT = 60  # seconds
FORKS = 4  # while a store is opened
FORKED_SECONDS = 1.5  # that such a child lives: longer than its parent
SIZES = {
    "mapped_file_size_commit_log": 512 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
DELETED, BODY = "deleted", b"of a topic that is deleted"
PREFIXES = {f"o{life}" for life in range(LIVES)} | {"after"}


class Besides(Named):
    """Names as ever; and whatever is in the topic that is deleted and made again."""

    def identity(self, message: Any) -> object:
        if message.topic == DELETED:
            return message.physical_offset
        return super().identity(message)

    def sent(self, message: Any) -> Content | None:
        if message.topic != DELETED:
            return super().sent(message)
        own = message.keys and message.keys[0].startswith("d-") and message.body == BODY
        return Content.of(message) if own else None


def own(case: Case, root: Path, told: Path, config: Any, life: int) -> None:
    """Put, delete a topic and make it again, until it is killed or has put enough."""
    out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if not SANITIZED:  # a child of several threads may wait for the sanitizer's own locks for ever
        threading.Thread(target=_fork_while_it_opens).start()
    store = rmqstore.open(root, "a", config=config)
    work = writer.Writer(store, out, life, f"o{life}")
    draw = random.Random(f"{case.name} {life}")
    until = time.monotonic() + draw.uniform(0.1, 0.5)
    number = 0
    while time.monotonic() < until:
        work.write_once(draw, [f"o{life}.{number + i}" for i in range(12)])
        number += 12
        time.sleep(0.003)
        if number % 10 == 0:
            _put_to_deleted(store, f"d-{life}-{number}")
            if draw.random() < 0.7:
                store.delete_topic(DELETED)
                if draw.random() < 0.5:  # it is made again at once, or a while later
                    _put_to_deleted(store, f"d-{life}-{number}-again")
    if life < LIVES - 1 and draw.random() < 0.7:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def _fork_while_it_opens() -> None:
    """Fork children that do nothing: none may keep the store's lock when its owner has died."""
    for _ in range(FORKS):
        time.sleep(0.0005)
        if os.fork() == 0:
            signal.alarm(LIMIT)
            time.sleep(FORKED_SECONDS)
            os._exit(0)


def _put_to_deleted(store: Any, prefix: str) -> None:
    for one in range(8):
        store.put(DELETED, BODY, queue_id=one % 2, keys=f"{prefix}-{one}")


def read(case: Case, root: Path, config: Any, done: Path) -> None:
    """Read everything again and again until the owner is gone for good."""
    known = Besides(set(PREFIXES))
    model = Model(known)
    draw = random.Random(f"{case.name} {os.getpid()}")
    while not (root / "commitlog").is_dir() or not os.listdir(root / "commitlog"):  # noqa: PTH208
        time.sleep(0.005)
    time.sleep(draw.choice([0, draw.uniform(0, 1)]))  # beside an owner, or between two
    with rmqstore.open(root, "r", config=config) as store:
        last = False
        while not last:
            last = done.exists()
            _look(case, store, model, draw)
        model = Model(Besides(set(PREFIXES)))
        learn(model, (root.parent / "told").read_bytes())
        deadline = time.monotonic() + LIMIT / 6  # new files are looked for every 100 ms
        found = _all(store, model)
        while found and time.monotonic() < deadline:
            time.sleep(0.1)
            found = _all(store, model)
        for kind, text in found:
            case.violation(kind, f"at the end, owner gone: {text}")
        with rmqstore.open(root, "r", config=config) as anew:
            expected = _made_again(anew)
        deadline = time.monotonic() + LIMIT / 6
        while (shown := _made_again(store)) != expected and time.monotonic() < deadline:
            time.sleep(0.1)
        if shown != expected:
            case.violation("I2", f"at the end {DELETED} shows {shown}, opened anew {expected}")


def _made_again(store: Any) -> list[tuple[Any, ...]]:
    """What is in the topic that was deleted and made again: queue and offsets of each message."""
    topic = store.topics.get(DELETED, {})  # one look: the next one may see the deletion
    return [
        (queue_id, message.queue_offset, message.physical_offset)
        for queue_id, queue in topic.items()
        if queue.max_offset > queue.min_offset
        for message in store.get(DELETED, queue_id, queue.min_offset, MANY).messages
    ]


def _all(store: Any, model: Model) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    invariants.check(store, model, lambda *told: found.append(told), where="a reader")
    return found


def _look(case: Case, store: Any, model: Model, draw: random.Random) -> None:
    """What can be seen now was sent, where it says it is."""
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            low, high = queue.min_offset, queue.max_offset
            if low >= high:
                continue
            at = draw.randrange(low, high)
            try:
                got = store.get(name, queue_id, at, 64)
            except rmqstore.StoreError as error:
                if name != DELETED:  # its files may go between two looks
                    case.violation("I3", f"beside its owner: {name}/{queue_id} at {at}: {error!r}")
                continue
            for step, message in enumerate(got.messages):
                place = name, queue_id, at + step
                sent = model.known.sent(message)
                if (message.topic, message.queue_id, message.queue_offset) != place:
                    case.violation("I3", f"{place} shows {message!r}")
                if sent is None or sent != Content.of(message):
                    case.violation("I2", f"{place} is not what was sent: {message!r}")
            if got.messages and name != DELETED and draw.random() < 0.2:
                message = draw.choice(got.messages)
                hits = [hit.physical_offset for hit in store.query(name, message.keys[0])]
                if hits != [message.physical_offset]:
                    case.violation("I4", f"{name} {message.keys[0]}: {hits}, {message!r}")


def _fork(case: Case, work: Any, *arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT)
            work(case, *arguments)
            os._exit(0)
        except BaseException as error:
            case.violation("error", f"{work.__name__}: {error!r}\n{traceback.format_exc()}")
            raise
        finally:
            os._exit(1)
    return child


def one_beside(case: Case, number: int) -> None:
    root, told, done = (case.scratch / name for name in ("store", "told", "done"))
    flush = case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    config = rmqstore.StoreConfig(**SIZES, **writer.FAST, flush_disk_type=flush)
    told.touch()
    readers = [
        _fork(case, read, root, case.draw.choice([config, None]), done) for _ in range(READERS)
    ]
    for life in range(LIVES):
        owner = _fork(case, own, root, told, config, life)
        _, status = os.waitpid(owner, 0)
        if os.waitstatus_to_exitcode(status) not in {0, -signal.SIGKILL}:
            case.violation("died", f"the owner: {os.waitstatus_to_exitcode(status)}")
    done.touch()
    for reader in readers:
        _, status = os.waitpid(reader, 0)
        if code := os.waitstatus_to_exitcode(status):
            case.violation("hung" if code == -signal.SIGALRM else "died", f"a reader: {code}")
    model = Model(Besides(set(PREFIXES)))
    learn(model, told.read_bytes())
    check_reopened(case, root, model, config=case.draw.choice([config, None]), slow=False)


@campaign("beside", cases=100, slice=4)
def beside(run: Run) -> None:
    """An owner of three lives, most of them ended by SIGKILL, and two readers all the time."""
    logging.disable(logging.CRITICAL)
    run.fork(one_beside, range(run.cases), seconds=2 * LIMIT)
