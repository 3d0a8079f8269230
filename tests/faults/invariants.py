"""I1 to I8: what must hold of a store after whatever happened to it.

I1  Every acknowledged message is readable by topic, queue and queue offset, byte for byte.
I2  Nothing is readable that was never sent, and nothing twice.
I3  Queue offsets are contiguous, and each unit points to the record that names its place.
I4  Every key of every readable message is found, and every hit has the topic and the key.
I5  Opening it a second time changes nothing.
I6  The real 4.9.3 opens the same bytes and shows the same.
I7  No file of log or queues is unlinked or becomes shorter.
I8  The flushed position is never below one that was told.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import rmqstore
from faults.model import Content, Model, Place
from support import oracle_store

Tell = Callable[[str, str], None]  # kind of violation, text
EXAMPLES = 3
# Opening refuses by these; anything else that it raises is a defect.
REFUSALS = (rmqstore.StoreError, OSError)


@dataclass
class Seen:
    """What a store showed."""

    messages: dict[Place, Any] = field(default_factory=dict)
    lost: list[Place] = field(default_factory=list)  # acknowledged, and not there as they were
    gaps: list[Place] = field(default_factory=list)  # first of the places that were passed over
    unread: list[tuple[str, int, str]] = field(default_factory=list)  # queues that raised


def check(
    store: Any, model: Model, tell: Tell, *, where: str = "", losses: bool = True, each_key: int = 1
) -> Seen:
    """Look at an open store; without ``losses`` what is lost is only returned.

    Every ``each_key``-th key is asked for; 0: none.
    """
    seen = Seen()
    _read_queues(store, model, seen, tell, where)
    judge(seen, model, tell, where=where, losses=losses)
    if each_key:
        _check_keys(store, seen, tell, where, each_key)
    if store.mode != "r" and store.stats()["flushed_position"] < model.flushed:
        flushed = store.stats()["flushed_position"]
        tell("I8", f"{where}: flushed up to {flushed}, once told {model.flushed}")
    return seen


def judge(seen: Seen, model: Model, tell: Tell, *, where: str, losses: bool = True) -> None:
    """What was seen of a store, against what is expected."""
    contents = {place: Content.of(message) for place, message in seen.messages.items()}
    _check_sent(seen, contents, model, tell, where)
    if seen.gaps and not model.gaps:
        tell("I3", f"{where}: {len(seen.gaps)} gaps: {seen.gaps[:EXAMPLES]}")
    for place, (content, physical_offset) in model.acked.items():
        message = seen.messages.get(place)
        if (
            message is None
            or contents[place] != content
            or physical_offset not in {-1, message.physical_offset}
        ):
            seen.lost.append(place)
    if seen.lost and losses:
        examples = [(place, _short(seen.messages.get(place))) for place in seen.lost[:EXAMPLES]]
        tell("I1", f"{where}: {len(seen.lost)} of {len(model.acked)} lost: {examples}")


def _short(message: Any) -> str:
    return "nothing" if message is None else f"{message.keys} at {message.physical_offset}"


def _read_queues(store: Any, model: Model, seen: Seen, tell: Tell, where: str) -> None:
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            at, high = queue.min_offset, queue.max_offset
            while at < high:
                try:
                    got = store.get(name, queue_id, at, high - at)
                except REFUSALS as error:
                    # Reading alone, a place whose record a power cut took is met where it is read.
                    if model.gaps and store.mode == "r":
                        seen.gaps.append((name, queue_id, at))
                        at += 1
                        continue
                    seen.unread.append((name, queue_id, str(error)))
                    tell("I3", f"{where}: {name}/{queue_id} at {at} of {high}: {error!r}")
                    break
                for message in got.messages:
                    if message.queue_offset > at:
                        seen.gaps.append((name, queue_id, at))
                    elif message.queue_offset < at:
                        tell("I3", f"{where}: {name}/{queue_id} at {at} shows {message!r}")
                    at = max(at, message.queue_offset)
                    seen.messages[name, queue_id, at] = message
                    at += 1
                if not got.messages:
                    if got.next_offset <= at:
                        tell("I3", f"{where}: {name}/{queue_id} stops at {at} of {high}: {got!r}")
                        break
                    seen.gaps.append((name, queue_id, at))
                    at = got.next_offset


def _check_sent(
    seen: Seen, contents: dict[Place, Content], model: Model, tell: Tell, where: str
) -> None:
    places: dict[object, Place] = {}
    for place, message in seen.messages.items():
        sent = model.known.sent(message)
        if sent is None:
            tell("I2", f"{where}: never sent: {place} {message!r}")
        elif contents[place] != sent:
            tell("I2", f"{where}: {place} is not what was sent as {sent}: {message!r}")
        elif sent in model.dead:
            tell("I2", f"{where}: {place} was deleted with its topic: {message!r}")
        first = places.setdefault(model.known.identity(message), place)
        if first != place:
            tell("I2", f"{where}: {message.keys} is there twice, at {first} and {place}")


def _check_keys(store: Any, seen: Seen, tell: Tell, where: str, each: int) -> None:
    """Ask for one key after the other, or, of most stores, for all keys of a topic at once."""
    expected: dict[str, dict[str, set[int]]] = {}
    for message in seen.messages.values():
        of_topic = expected.setdefault(message.topic, {})
        for key in {*message.keys, *([message.uniq_key] if message.uniq_key else [])}:
            of_topic.setdefault(key, set()).add(message.physical_offset)
    count = sum(map(len, expected.values()))
    missing: list[tuple[str, str, list[int]]] = []
    for topic, offsets in expected.items():
        # Not the same ones at each look, and of each topic one at least.
        first = len(offsets) % min(each, len(offsets))
        asked = list(islice(offsets, first, None, each))
        try:
            if count % 4:
                found = store.query_many(topic, asked)
            else:
                found = [store.query(topic, key) for key in asked]
        except REFUSALS as error:
            tell("I4", f"{where}: query of {topic}: {error!r}")
            return
        for key, hits in zip(asked, found, strict=True):
            _check_hits(topic, key, hits, offsets[key], missing, tell, where)
    if missing:
        tell("I4", f"{where}: {len(missing)} of {count} keys: {missing[:EXAMPLES]}")


def _check_hits(
    topic: str,
    key: str,
    hits: list[Any],
    expected: set[int],
    missing: list[tuple[str, str, list[int]]],
    tell: Tell,
    where: str,
) -> None:
    found = [hit.physical_offset for hit in hits]
    for hit in hits:
        if hit.topic != topic or (key not in hit.keys and key != hit.uniq_key):
            tell("I4", f"{where}: query of {topic} {key} gives {hit!r}")
    if len(found) != len(set(found)):
        tell("I4", f"{where}: query of {topic} {key} gives one twice: {found}")
    if not expected <= set(found):
        missing.append((topic, key, sorted(expected - set(found))))


# ---- files


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of every file below root, but for the lock; not the times."""
    top = len(os.fspath(root)) + 1
    paths = [f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names]
    return {
        path[top:]: (Path(path).stat().st_size, oracle_store.digest(path))
        for path in paths
        if path[top:] != "lock"
    }


def sizes(root: Path) -> dict[str, int]:
    """Sizes of the files of log and queues."""
    return {
        str(path.relative_to(root)): path.stat().st_size
        for folder in ("commitlog", "consumequeue")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and re.fullmatch(r"[0-9]{20}", path.name)
    }


def check_files(before: dict[str, int], root: Path, tell: Tell, *, gone: str = "") -> None:
    """I7 against the sizes of before; ``gone`` is a pattern of names that may be gone."""
    after = sizes(root)
    for name, size in before.items():
        if gone and re.search(gone, name):
            continue
        if name not in after:
            tell("I7", f"{name} of {size} bytes is gone")
        elif after[name] < size:
            tell("I7", f"{name} had {size} bytes and has {after[name]}")


def check_erased(store: Any, root: Path, tell: Tell, *, where: str) -> None:
    """Nothing lies behind the log's end, where it would come back after the next crash."""
    end = store.stats()["wrote_position"]
    for start, path in oracle_store.log_files(root / "commitlog"):
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for first, stop in oracle_store.extents(file.fileno(), size):
                at = max(first, end - start)
                if at < stop and any(os.pread(file.fileno(), stop - at, at)):
                    tell("I2", f"{where}: bytes behind the log's end {end} in {path.name}")


def check_checkpoint(root: Path, tell: Tell, deleted: Container[str]) -> None:
    """What the checkpoint of a store that nobody closed says to be in the queues is there.

    A broker takes its word for it; our own recovery asks the queues themselves.
    """
    try:
        _, logics, _ = oracle_store.read_checkpoint(root)
        records = list(oracle_store.walk_log(root / "commitlog"))
        queues = oracle_store.read_queues(root)
    except (oracle_store.OracleError, OSError):
        return
    known = {unit[0] for units in queues.values() for unit in units}
    missing = [
        (record.topic, record.queue_id, record.queue_offset)
        for record in records
        if record.is_queued and record.topic not in deleted
        if record.store_timestamp < logics and record.physical_offset not in known
    ]
    if missing:
        some = missing[:EXAMPLES]
        tell("I6", f"{len(missing)} that the checkpoint vouches for are in no queue: {some}")


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def check_closed(
    root: Path, tell: Tell, deleted: Container[str] = (), *, slot_num: int | None = None
) -> None:
    """Check the files of a closed store with the slow codec: I3 and I4 by other eyes."""
    if not oracle_store.is_clean(root):
        tell("I5", "closed, and abort is there")
    try:
        oracle_store.check_store(root, slot_num=slot_num, deleted=deleted)
    except (AssertionError, oracle_store.OracleError, ValueError, OSError) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        tell("I3", f"the slow codec: {error!r} at {place.line}")


def copy_file(source: Path, to: Path) -> None:
    """Copy one file with its holes."""
    with source.open("rb") as file, to.open("wb") as out:
        size = os.fstat(file.fileno()).st_size
        for start, stop in oracle_store.extents(file.fileno(), size):
            while start < stop:
                start += os.copy_file_range(file.fileno(), out.fileno(), stop - start, start, start)
        out.truncate(size)


def copy(source: Path, to: Path) -> Path:
    """Copy a store with the holes of its files."""
    to.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        target = to / path.relative_to(source)
        if path.is_dir():
            target.mkdir()
        else:
            copy_file(path, target)
    return to
