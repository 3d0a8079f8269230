"""What must hold of a store whose writer was ended by force."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
from crash import writer
from support import oracle, oracle_store

HERE = Path(__file__).resolve().parent
PATIENCE = 60  # seconds after which a program counts as hung
MANY = 1 << 30
SHORT = bool(os.environ.get("RMQSTORE_SHORT"))  # fewer ways to fail: under the sanitizers
Place = tuple[str, int, int]


def environment(**extra: str) -> dict[str, str]:
    """Variables for a program that is to find the very package that the tests use."""
    own = [path for path in sys.path if path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(own)} | extra


def output_of(code: str, *arguments: object, seconds: float = PATIENCE, **extra: str) -> str:
    """What a program of its own prints, with ``extra`` in its environment; it has to succeed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=environment(**extra),
        capture_output=True,
        timeout=seconds,
        check=False,
        text=True,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


@dataclass
class Known:
    """Where each message was, by name; ``-1`` is a physical offset that was not told."""

    places: dict[str, tuple[Place, int]] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)  # of the names that were ever sent

    def learn(self, lines: bytes) -> list[str]:
        """Take what a writer said; return its words.  A torn last line is nothing."""
        words = []
        for line in lines[: lines.rfind(b"\n") + 1].decode().splitlines():
            name, *rest = line.split(" ")
            if not rest:
                words.append(name)
                continue
            topic, queue_id, queue_offset, physical_offset = rest
            place = (topic, int(queue_id), int(queue_offset))
            assert name not in self.places, name
            self.places[name] = (place, int(physical_offset))
        return words


def run_writer(
    root: Path, prefix: str, flush: str, seconds: float, *, seed: int = 0, **extra: str
) -> tuple[int, bytes]:
    """Let a writer run to its end: its exit status and what it said."""
    reading, writing = os.pipe()
    arguments = [root, writing, seed, prefix, flush, seconds]
    command = [sys.executable, HERE / "writer.py", *map(str, arguments)]
    with subprocess.Popen(
        command, pass_fds=[writing], env=environment(**extra), stderr=subprocess.PIPE
    ) as child:
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
                said = pipe.read()
            _, error = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert child.returncode in {0, -9}, (child.returncode, error.decode())
    return child.returncode, said


def assert_holds(store: Any, known: Known) -> dict[str, tuple[Place, int]]:
    """Every known message is there, by place and by key, and nothing else that was never sent.

    Returns where each message is that the store has.
    """
    found: dict[str, tuple[Place, int]] = {}
    groups: dict[tuple[str, str], set[int]] = {}
    uniques: list[Any] = []
    for topic_name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            messages = store.get(topic_name, queue_id, queue.min_offset, MANY).messages
            offsets = [m.queue_offset for m in messages]
            assert offsets == list(range(len(messages))), (topic_name, queue_id)
            assert queue.max_offset == len(messages)
            for m in messages:
                name, group = m.keys
                assert name not in found, f"{name} is there twice"
                assert name.split(".")[0] in known.prefixes, f"{name} was never sent"
                expected = writer.placed(name)
                assert m.body == expected["body"], name
                assert (m.topic, m.queue_id) == (expected["topic"], expected["queue_id"]), name
                assert (m.tags, list(m.keys)) == (expected["tags"], expected["keys"]), name
                assert (topic_name, queue_id) == (m.topic, m.queue_id), name
                found[name] = ((m.topic, m.queue_id, m.queue_offset), m.physical_offset)
                groups.setdefault((m.topic, group), set()).add(m.physical_offset)
                uniques.append(m)
    lost = known.places.keys() - found.keys()
    assert not lost, f"{len(lost)} of {len(known.places)} acknowledged are lost: {sorted(lost)[:5]}"
    for name, (place, physical_offset) in known.places.items():
        assert found[name][0] == place, name
        assert physical_offset in {-1, found[name][1]}, name
    assert_keys(store, found, groups, uniques)
    return found


def assert_keys(store: Any, found: Any, groups: Any, messages: list[Any]) -> None:
    for m in messages:
        for key in (m.keys[0], m.uniq_key):
            hits = [hit.physical_offset for hit in store.query(m.topic, key)]
            assert hits == [m.physical_offset], (key, hits, m.physical_offset)
    for (topic, group), expected in groups.items():
        hits = [hit.physical_offset for hit in store.query(topic, group)]
        assert hits == sorted(expected, reverse=True), (topic, group)


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Name, size and bytes of every file; not the times."""
    return {
        name: (size, digest) for name, (_, size, _, digest) in oracle_store.snapshot(root).items()
    }


def log_names(root: Path) -> set[str]:
    return {path.name for path in (root / "commitlog").iterdir()}


def verify(root: Path, known: Known, flush: str) -> None:
    """Open what is left with "r", then with "r+", then once more: see RELIABILITY I1 to I8."""
    before = oracle_store.snapshot(root)
    logs = log_names(root)
    if logs:
        with rmqstore.open(root, "r") as store:
            read = assert_holds(store, known)
        assert oracle_store.snapshot(root) == before, '"r" changed something'
    else:
        read = {}
        assert not known.places
    with rmqstore.open(root, "a", config=writer.config(flush)) as store:
        found = assert_holds(store, known)
        assert read.items() <= found.items()
    assert logs <= log_names(root), "a file of the log is gone"
    assert oracle_store.is_clean(root)
    by_queue = oracle_store.check_store(root)
    assert sum(map(len, by_queue.values())) == len(found)
    closed = contents(root)
    with rmqstore.open(root, "r+", config=writer.config(flush)) as store:
        assert store.recovery.clean
        assert store.recovery.bytes_cut == 0
    again = contents(root)
    changed = {name for name in closed.keys() | again.keys() if closed.get(name) != again.get(name)}

    assert not changed, f"opening it once more changed {sorted(changed)}"
    known.places = found  # what was seen once stays


def tear(root: Path) -> None:
    """Put the first half of a record at the log's end, as a writer does that is killed in it."""
    end = 0
    for entry in oracle_store.walk_entries(root / "commitlog"):
        end = entry.physical_offset + entry.store_size
    record = oracle.encode_record("Topic1", b"t" * 400, physical_offset=end)
    for start, path in oracle_store.log_files(root / "commitlog"):
        if start <= end < start + path.stat().st_size - len(record):
            with path.open("r+b") as file:
                file.seek(end - start)
                file.write(record[:300])
            return
