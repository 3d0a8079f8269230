"""A store's life in steps, against a model: what a step does, and what must hold after it.

A step is a name and a number that its draws come from, so that a run is a list of steps and any
part of that list is a run as well.  The steps between two openings are done in a child, which may
be killed; the model goes on from there.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import TOPICS, Writer, message_of
from faults import invariants
from faults.machine_company import (
    Company,
    changing_memory,
    fork_while_opening,
    in_child,
    reading,
    wait_for_topics,
)
from faults.model import Content, MessageLike, Model, Named, learn
from support import oracle_store

Step = tuple[str, int]
Found = tuple[str, str]  # kind of violation, text
# Loaded before the first child, or each one does it again.
WARM = [importlib.import_module(name) for name in ("numpy", "xxhash", "rmqstore.opening")]
PREFIX = "m"
LOG_FILE = 16 << 10
SIZES = {
    "mapped_file_size_commit_log": LOG_FILE,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 20,
    "max_index_num": 80,
    # Queues, index and checkpoint are forced by flush and close alone: a cut knows what was.
    "flush_interval_consume_queue": 3_600_000,
    "flush_consume_queue_thorough_interval": 3_600_000,
}
PAGE = 4096
FILES = ("commitlog", "consumequeue", "index")
PLACES = ("after-abort", "after-log", "in-force", "after-queues", "after-index", "after-force")
POINTS = [f"recover-{place}" for place in PLACES]

WORK = {
    "put": 12,
    "batch": 3,
    "many": 4,
    "refused": 2,
    "changing": 1,
    "get": 4,
    "check": 2,
    "query": 3,
    "flush": 3,
    "reader": 1,
    "second owner": 1,
    "create": 1,
    "delete": 1,
}
ENDS = {"close": 4, "kill": 4, "cut": 3, "kill opening": 2, "hand over": 1, "fork opening": 1}


def draw_steps(draw: random.Random, most: int) -> list[Step]:
    """A run of up to so many steps; about one in six ends a life."""
    names = list(WORK | ENDS)
    weights = [WORK.get(name, 0) or ENDS[name] for name in names]
    count = draw.randint(2, most)
    return [(name, draw.getrandbits(32)) for name in draw.choices(names, weights, k=count)]


@dataclass
class Known(Named):
    """Names, and messages whose bodies were told by the store itself."""

    told: dict[str, Content] = field(default_factory=dict)

    def sent(self, message: MessageLike) -> Content | None:
        return (
            self.told.get(message.keys[0])
            if message.keys and message.keys[0] in self.told
            else (super().sent(message))
        )


@dataclass
class State:
    """What outlives the child that a life is in."""

    flush: str
    model: Model = field(default_factory=lambda: Model(Known({PREFIX})))
    counter: int = 0
    saved: bool = False  # the directory beside has what was on the disk at the last flush
    found: list[Found] = field(default_factory=list)


class Life:
    """An open store and the steps done with it, in a child of its own."""

    def __init__(self, root: Path, state: State, mode: str, config: Any, company: Company) -> None:
        self.root, self.state, self.mode, self.company = root, state, mode, company
        self.tell: Callable[[str, str], None] = lambda kind, text: state.found.append((kind, text))
        self.store = rmqstore.open(root, mode, config=config)
        self.check(f'opened "{mode}"')
        self.ends: dict[tuple[str, int], int] = {}
        if mode != "r":
            self.said = os.memfd_create("said")
            self.writer = Writer(self.store, self.said, 0, PREFIX)
            for name, topic in self.store.topics.items():
                for queue_id, queue in topic.items():
                    self.ends[name, queue_id] = queue.max_offset

    def names(self, count: int) -> list[str]:
        """The next names whose messages are short enough for the files of this machine."""
        names: list[str] = []
        while len(names) < count:
            name = f"{PREFIX}.{self.state.counter}"
            self.state.counter += 1
            if len(message_of(name)["body"]) < LOG_FILE // 4:
                names.append(name)
        return names

    def check(self, where: str) -> None:
        invariants.check(self.store, self.state.model, self.tell, where=where)

    def learn(self) -> None:
        """Take what was acknowledged: each at the very end of its queue."""
        size = os.fstat(self.said).st_size
        lines = os.pread(self.said, size, 0)
        os.ftruncate(self.said, 0)
        os.lseek(self.said, 0, os.SEEK_SET)
        for line in lines.decode().splitlines():
            _, topic, queue_id, queue_offset, _ = line.split(" ")
            name = topic, int(queue_id)
            expected = self.ends.get(name, 0)
            if int(queue_offset) != expected:
                self.tell("I3", f"{line!r}: put at another place than {expected}")
            self.ends[name] = int(queue_offset) + 1
        learn(self.state.model, lines)
        self.learn_flushed()

    def learn_flushed(self) -> None:
        flushed = self.store.stats()["flushed_position"]
        self.state.model.flushed = max(self.state.model.flushed, flushed)

    def do(self, step: Step) -> None:
        name, number = step
        draw = random.Random(number)
        if self.mode == "r":
            if name in {"put", "batch", "many", "changing", "flush", "create", "delete"}:
                try:
                    self.store.put("Topic1", b"", queue_id=0)
                    self.tell("I7", 'a store opened "r" took a message')
                except rmqstore.ReadOnlyStoreError:
                    pass
                return
            if name in {"refused", "second owner", "reader"}:
                return
        getattr(self, "do_" + name.replace(" ", "_"))(draw)

    def do_put(self, draw: random.Random) -> None:
        (name,) = self.names(1)
        self.writer.put(name, message_of(name))
        self.learn()

    def do_batch(self, draw: random.Random) -> None:
        self.writer.put_batch(self.names(draw.randint(1, 4)))
        self.learn()

    def do_many(self, draw: random.Random) -> None:
        self.writer.put_many(self.names(draw.randint(1, 12)))
        self.learn()

    def do_refused(self, draw: random.Random) -> None:
        """A message that no file can hold uses nothing up."""
        topic, queue_id = draw.choice(TOPICS), draw.randrange(4)
        try:
            self.store.put(topic, bytes(LOG_FILE + draw.randrange(100)), queue_id=queue_id)
            self.tell("I2", "a message longer than a file was taken")
        except rmqstore.PutError:
            pass

    def do_changing(self, draw: random.Random) -> None:
        """Bodies that change while they are put: what is in the log has its checksum."""
        with changing_memory(self.company, self.root.with_name("changing"), 3500) as body:
            for name in self.names(16):
                time.sleep(0.0005)  # whoever changes it has a turn
                m = message_of(name)
                key = f"{name}!"
                put = self.store.put(m["topic"], body, queue_id=m["queue_id"], keys=key)
                try:
                    found = self.store.at(put.physical_offset)
                except rmqstore.StoreCorruptError as error:
                    self.tell("I1", f"a body that changed while it was put: {error}")
                    return
                content = Content.of(found)
                self.state.model.known.told[key] = content
                place = m["topic"], m["queue_id"], put.queue_offset
                self.state.model.acked[place] = content, put.physical_offset
                self.ends[place[:2]] = put.queue_offset + 1
        self.learn_flushed()

    def do_get(self, draw: random.Random) -> None:
        topic, queue_id = draw.choice(TOPICS), draw.randrange(4)
        known = {
            place[2]: content
            for place, (content, _) in self.state.model.acked.items()
            if place[:2] == (topic, queue_id)
        }
        if not known:
            return
        at = draw.choice(sorted(known))
        got = self.store.get(topic, queue_id, at, draw.randint(1, 9))
        if not got.messages or got.messages[0].queue_offset != at:
            self.tell("I1", f"{topic}/{queue_id} at {at}: {got!r}")

    def do_query(self, draw: random.Random) -> None:
        places = sorted(self.state.model.acked)
        if not places:
            return
        place = draw.choice(places)
        content, physical_offset = self.state.model.acked[place]
        hits = self.store.query(place[0], content.keys[0])
        if [hit.queue_offset for hit in hits] != [place[2]]:
            self.tell("I4", f"query of {content.keys[0]} at {place}, {physical_offset}: {hits!r}")

    def do_check(self, draw: random.Random) -> None:
        for (topic, queue_id), end in self.ends.items():
            self.store.get(topic, queue_id, end - 1, 1)  # waits until it is there
        self.check("check")

    def do_flush(self, draw: random.Random) -> None:
        self.flush()

    def flush(self) -> None:
        """Force all that there is, and keep it: that much is on the disk."""
        self.store.flush()
        self.learn_flushed()
        saved = self.root.with_name("saved")
        shutil.rmtree(saved, ignore_errors=True)
        invariants.copy(self.root, saved)
        self.state.saved = True

    def do_reader(self, draw: random.Random) -> None:
        """Another process reads beside the owner."""
        self.flush()  # what is put is in its queue a moment later
        config = rmqstore.StoreConfig(**SIZES) if draw.random() < 0.5 else None
        self.company.ask(read_beside, self.root, config, self.state.model)
        found, status = self.company.answer()
        self.state.found += found or []
        if status:
            self.tell("died", f"a reader beside the owner: {status}")

    def do_second_owner(self, draw: random.Random) -> None:
        """It is refused, and has changed nothing."""
        self.flush()
        before = invariants.contents(self.root)
        try:
            rmqstore.open(self.root, "r+").close()
            self.tell("I7", "a second owner was let in")
        except rmqstore.StoreLockedError:
            pass
        if names := invariants.changed(before, invariants.contents(self.root)):
            self.tell("I7", f"a second owner that was refused changed {names}")

    def do_create(self, draw: random.Random) -> None:
        self.store.create_topic(draw.choice(TOPICS), draw.randint(4, 6))

    def do_delete(self, draw: random.Random) -> None:
        topic = draw.choice(TOPICS)
        if topic not in self.store.topics:
            return
        self.state.model.deleting(topic)
        with reading(self.store, topic, draw.randrange(3)):
            self.store.delete_topic(topic)
        self.state.model.deleted(topic)
        self.ends = {name: end for name, end in self.ends.items() if name[0] != topic}
        self.state.saved = False  # what was deleted is deleted on the disk as well

    def hand_over(self, draw: random.Random, config: Any) -> None:
        """The next owner waits for the lock, and sees what the last one made meanwhile."""
        self.company.ask(wait_for_topics, self.root, config)
        time.sleep(0.05)
        for topic in TOPICS:
            self.store.create_topic(topic, draw.randint(4, 9))
        expected = {name: topic.write_queue_nums for name, topic in self.store.topics.items()}
        self.store.close()  # and it is opened at once
        seen, status = self.company.answer()
        if seen is None:
            self.tell("died", f"who waited for the lock: {status}")
        elif seen != expected:
            self.tell("I1", f"who waited for the lock sees the topics {seen}, not {expected}")

    def close(self) -> None:
        self.store.close()
        if self.mode != "r":
            if not self.state.model.deleted_topics:  # of which the slow codec knows nothing
                slots = SIZES["max_hash_slot_num"]
                invariants.check_closed(self.root, self.tell, slot_num=slots)
            self.state.model.flushed = max(
                self.state.model.flushed, *[at + 1 for _, at in self.state.model.acked.values()], 0
            )


def read_beside(root: Path, config: Any, model: Model) -> list[Found]:
    """What a reader finds that must not be."""
    found: list[Found] = []
    with rmqstore.open(root, "r", config=config) as store:
        invariants.check(store, model, lambda *what: found.append(what), where="beside")
    return found


def cut_power(root: Path, saved: Path, state: State, draw: random.Random) -> None:
    """Undo any pages that were written since the last flush, but for the log below its flushed end.

    The lists of topics are forced as they are written.
    """
    chance = draw.choice([0, 0.1, 0.5, 0.9, 1])
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if not path.is_file() or name.parts[0] not in {"commitlog", "consumequeue", "index"}:
            continue
        old = saved / name
        data = bytearray(path.read_bytes())
        before = old.read_bytes() if old.exists() else bytes(len(data))
        keep = 0
        if name.parts[0] == "commitlog":
            keep = max(0, min(len(data), state.model.flushed - int(name.name)))
        for at in range(0, len(data), PAGE):
            stop = min(at + PAGE, len(data))
            if draw.random() < chance and stop > keep:
                first = max(at, keep)
                if draw.random() < 0.2:  # torn within the page
                    first += draw.randrange((stop - first) // 512 + 1) * 512
                data[first:stop] = before[first:stop]
        path.write_bytes(data)
    shutil.rmtree(saved)
    state.saved = False
    if state.flush == "ASYNC_FLUSH":
        state.model = state.model.flushed_part()


class Machine:
    """A run: lives, one after the other."""

    def __init__(self, home: Path, seed: int) -> None:
        self.root, self.saved = home / "store", home / "saved"
        draw = random.Random(seed)
        self.state = State(draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]))
        self.config = rmqstore.StoreConfig(**SIZES, flush_disk_type=self.state.flush)

    def run(self, steps: list[Step]) -> list[Found]:
        """Do the steps; what was violated first."""
        work: list[Step] = []
        for step in [*steps, ("close", 0)]:
            if step[0] not in ENDS:
                work.append(step)
                continue
            found = self.live(work, step)
            if found:
                return found
            work = []
        return []

    def live(self, work: list[Step], end: Step) -> list[Found]:
        name, number = end
        draw = random.Random(number)
        self.state.saved = False  # of this life alone: recovery forces some things
        fresh = not (self.root / "commitlog").exists()
        mode = "a" if fresh else draw.choice(["r", "r+", "r+", "a"])
        config = self.config if fresh or draw.random() < 0.6 else self.again()

        def life() -> State:
            step = ("open", 0)
            company = Company()
            try:
                store = Life(self.root, self.state, mode, config, company)
                for step in work:
                    store.do(step)
                    if self.state.found:
                        return self.state
                step = end
                if name == "hand over" and mode != "r":
                    store.hand_over(draw, self.config)
                elif name == "close":
                    store.close()
                elif name == "cut" and mode != "r":
                    store.learn_flushed()  # the checkpoint may know of it
            except Exception:
                kind = "refused" if step[0] == "open" else "error"
                self.state.found.append((kind, f"{step}: {traceback.format_exc()}"))
            finally:
                company.end()
            return self.state

        state, status = in_child(life)
        if state is None:
            return [("died", f"a life of {work} in mode {mode!r} ended with {status}")]
        self.state = state
        if not state.found and name == "cut" and state.saved:
            cut_power(self.root, self.saved, state, draw)
        if name == "kill opening":
            self.kill_opening(draw)
        if name == "fork opening":
            point = draw.choice(POINTS)
            said, status = in_child(lambda: fork_while_opening(self.root, self.config, point))
            if said or status:
                state.found.append(("refused", f"a fork at {point}: {said} {status}"))
        return self.state.found

    def again(self) -> Any:
        """No sizes, as users open, where there is something to tell them from."""
        told = all(any((self.root / name).rglob("[0-9]" * 17 + "*")) for name in FILES)
        return None if told and self.state.flush == "ASYNC_FLUSH" else self.config

    def kill_opening(self, draw: random.Random) -> None:
        """Killed in a recovery, which may be that of a closed store: it is not clean then."""
        point = draw.choice(POINTS)

        def opens() -> None:
            os.environ["RMQ_KILL_AT"] = f"{point}:1"
            rmqstore.open(self.root, "r+", config=self.config).close()

        _, status = in_child(opens)
        if status == -signal.SIGKILL and oracle_store.is_clean(self.root):
            self.state.found.append(("I5", f"killed at {point}, and the store says it was closed"))


def shrunk(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A shorter list of steps that still fails."""
    size = max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps
