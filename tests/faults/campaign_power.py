"""Power cuts: any part of what was not synced is on the disk, and the rest is not."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import placed
from faults import invariants
from faults.framework import Case, Run, campaign
from faults.model import Model, Named, content_of, learn
from faults.power_image import Recording
from faults.power_writer import DELETED as DELETED_TOPICS
from faults.reopen import SLOW, check_reopened, put_more
from faults.victim import Victim

MOST_LINES = 1000  # that a writer says before it is cut off
ENDS = ["", "kill", "close"]  # of who opens a killed store again before the cut, if anybody does
SHIM = Path(__file__).parent / "power_shim.c"
DELETED = r"consumequeue/Gone[12]/"  # queues of topics that the writer deletes
STORE = Path("made", "for", "store")  # below the recorded directory: its parents are new as well


def build_shim(directory: Path) -> Path:
    library = directory / "power_shim.so"
    flags = ["-O1", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", library, SHIM, "-ldl"], check=True, timeout=60)
    return library


@dataclass(frozen=True)
class Setting:
    """What a run is like."""

    flush: str
    sizes: dict[str, Any]
    limits: str  # behind each prefix of names: longest body and number of queues
    fresh: bool  # the directory is made by the store itself, and its parents as well
    acks: int  # lines that are read before the cut
    deletes: bool  # and a topic is deleted right before it

    @classmethod
    def of(cls, case: Case, number: int) -> Setting:
        draw = case.draw
        sizes = {
            "mapped_file_size_commit_log": draw.choice([32 << 10, 64 << 10, 256 << 10]),
            "mapped_file_size_consume_queue": draw.choice([400, 400, 4000]),
            "max_hash_slot_num": 100,
            "max_index_num": 400,
        }
        if draw.random() < 0.7:
            sizes |= {
                "flush_interval_commit_log": draw.choice([5, 20, 100]),
                "flush_interval_consume_queue": draw.choice([10, 50]),
                "flush_consume_queue_thorough_interval": draw.choice([40, 500]),
                "flush_commit_log_thorough_interval": draw.choice([20, 200]),
                "flush_commit_log_least_pages": draw.choice([0, 4]),
            }
        return cls(
            flush=["ASYNC_FLUSH", "SYNC_FLUSH"][number % 2],
            sizes=sizes,
            fresh=draw.random() < 0.3,
            limits=f"~{draw.choice([300, 3000])}~{draw.choice([4, 16])}",
            acks=draw.choice([30, 120, 300]) + draw.randrange(50),
            deletes=number % 4 == 0,
        )

    @property
    def fields(self) -> dict[str, Any]:
        return {**self.sizes, "flush_disk_type": self.flush}


@campaign("power", cases=5000, slice=20, theirs=True, memory=True)
def power(run: Run) -> None:
    """Images of cut stores.

    Those of the real 4.9.3 are opened by itself and by ours, and some of ours by it.
    """
    library = build_shim(run.scratch)
    if run.wants("ours"):
        runs = run.number(100, 2)
        images = max(1, run.cases // runs // 2)  # of each of the two cuts of a run

        def work(case: Case, number: int) -> None:
            one_run(case, number, library, images)

        run.fork(work, range(runs), counts=False, seconds=1200)
    if run.wants("theirs"):
        stores = run.scratch / "theirs"
        images = run.number(20, 4)

        def of_theirs(case: Case, number: int) -> tuple[Model, str]:
            return one_run_of_theirs(case, number, library, stores / str(number), images)

        left = run.fork(
            of_theirs, range(run.number(10, 2)), column="theirs", counts=False, seconds=600
        )
        opened = {
            f"theirs-{number}-{image}": (stores / str(number) / str(image) / STORE, told)
            for number, told in enumerate(left)
            if told is not None
            for image in range(images)
        }
        run.fork(lambda case, name: ours_opens(case, *opened[name]), opened)
        they_open(run, library)


def they_open(run: Run, library: Path) -> None:
    """I6: some stores that ours recovered are opened by the real 4.9.3."""
    from faults import theirs

    def work(case: Case, name: str) -> None:
        keep = case.scratch / "kept"
        keep.mkdir()
        number = int(name.removeprefix("I6-"))
        kept = one_run(case, number, library, run.number(5, 2), keep)
        theirs.see_ours(
            case, [theirs.Recovered(root, *told, cut=True) for root, told in kept.items()]
        )

    names = [f"I6-{number}" for number in range(run.number(10, 2))]
    run.fork(work, names, counts=False, seconds=600)


def one_run(
    case: Case, number: int, library: Path, images: int, keep: Path | None = None
) -> dict[Path, tuple[str, Model]]:
    """Two power cuts; the second run begins with what the first left.

    The recovered stores are moved into ``keep``: how they flush and what is expected of them.
    """
    kept: dict[Path, tuple[str, Model]] = {}
    setting = Setting.of(case, number)
    top = case.scratch / "top"
    (top / STORE if not setting.fresh else top).mkdir(parents=True)
    model = Model(Named())
    for cut in range(2):
        end = ENDS[(number // 2 + cut) % len(ENDS)]  # a number is asynchronous, the next is not
        recording = write_and_cut(case, cut, end, setting, library, top, model)
        expected = durable(model, setting.flush)

        def work(
            inner: Case,
            image: str,
            recording: Recording = recording,
            expected: Model = expected,
            closed: bool = end == "close",
        ) -> tuple[Path, Model] | None:
            top = inner.scratch / "image"
            there = one_image(inner, top, recording, expected, setting, closed=closed)
            if keep is None or not there:
                return None
            top.rename(keep / image)
            return keep / image / STORE, expected

        found = case.fork(work, [f"{cut}.{image}" for image in range(images)], seconds=120)
        kept |= {told[0]: (setting.flush, told[1]) for told in found if told is not None}
        if cut == 0:
            top = case.scratch / "again"
            recording.image(case.draw, top, "strict")
            model = expected
    return kept


def durable(model: Model, flush: str) -> Model:
    """What a cut cannot take: all that is acknowledged, or all that was told to be flushed.

    With either, of what was under way a record may be gone and one behind it be there.
    """
    return replace(model, gaps=True) if flush == "SYNC_FLUSH" else model.flushed_part()


def one_run_of_theirs(
    case: Case, number: int, library: Path, to: Path, images: int
) -> tuple[Model, str]:
    """The real store loses power; what is expected of the images, and how it flushed."""
    from faults import theirs

    flush = ["ASYNC_FLUSH", "SYNC_FLUSH"][number % 2]
    top = case.scratch / "top"
    (top / STORE).mkdir(parents=True)
    model = Model(Named())
    recording = Recording.begin(top, case.scratch / "shadow")
    preloaded = recording.environment(library)
    os.environ.update(preloaded)
    theirs.write_and_kill(case, top / STORE, model, "t~2000~8", flush)
    for name in preloaded:
        del os.environ[name]
    recording.end()
    expected = durable(model, flush)
    checker = theirs.Checker()
    to.mkdir(parents=True)
    try:
        for image in range(images):
            # It never syncs a directory: what POSIX promises would leave nothing of it.
            recording.image(case.draw, to / str(image), "ext4")
            copied = invariants.copy(to / str(image), case.scratch / f"image{image}") / STORE
            case.count()
            checker.check(case, copied, copy.deepcopy(expected), flush, "after~2000~8")
    finally:
        checker.close()
    return expected, flush


def ours_opens(case: Case, root: Path, told: tuple[Model, str]) -> None:
    if not any((root / "commitlog").glob("*")):
        return
    model, flush = told
    sizes = rmqstore.StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_disk_type=flush,
    )
    again = case.draw.choice([sizes, None])
    check_reopened(case, root, model, config=again, more="after~2000~8")
    shutil.rmtree(root)


def write_and_cut(
    case: Case, cut: int, end: str, setting: Setting, library: Path, top: Path, model: Model
) -> Recording:
    recording = Recording.begin(top, case.scratch / f"shadow{cut}")
    prefix = f"p{cut}{setting.limits}"
    model.known.prefixes.add(prefix)
    seed, config = case.draw.getrandbits(32), json.dumps(setting.fields)
    victim = Victim.program(
        "faults.power_writer",
        lambda acks: [top / STORE, acks, seed, prefix, config],
        **recording.environment(library),
    )
    victim.wait_for_lines(setting.acks)
    deleted = victim.said_so_far().count(b"\ndeleted ")
    while setting.deletes and victim.lines < MOST_LINES:
        if victim.said_so_far().count(b"\ndeleted ") > deleted:
            break
        time.sleep(0.001)
    time.sleep(case.draw.uniform(0, 0.01))
    status, said = victim.kill()
    if status != -9:
        case.violation("error", f"the writer ended by itself: {status}, {bytes(said[-2000:])!r}")
    learn(model, said)
    if end:
        prefix = f"look{cut}{setting.limits}"
        model.known.prefixes.add(prefix)
        look(case, recording, library, [prefix, top / STORE, end, config], model)
    recording.end()
    case.note("acknowledged", len(model.acked))
    return recording


def look(
    case: Case, recording: Recording, library: Path, arguments: list[object], model: Model
) -> None:
    """The killed store is opened: what it shows is on the disk, as is all it says it flushed."""
    recording.catch_up()
    victim = Victim.program(
        "faults.power_looker",
        lambda acks: [acks, *arguments],
        **recording.environment(library),
    )
    victim.wait_for_lines(1 << 60)
    status, said = victim.kill()
    seen = Model(model.known)
    if status != -9 or "seen" not in learn(seen, said):
        case.violation("error", f"who looked ended by itself: {status}, {bytes(said[-2000:])!r}")
    for place, what in seen.acked.items():
        if place[0] not in DELETED_TOPICS:  # of which a deletion may have been under way
            model.acked.setdefault(place, what)
    model.flushed = max(model.flushed, seen.flushed)
    case.note("stores that were opened before the cut")


def put_after(store: Any, model: Model, draw: random.Random, prefix: str) -> None:
    """The store goes on, first with the topics that were deleted."""
    assert isinstance(model.known, Named)
    model.known.prefixes.add(prefix)
    for number in range(8 * len(DELETED_TOPICS)):
        topic = DELETED_TOPICS[number % 2]
        name = f"{prefix}.again{number}.{draw.getrandbits(32):x}@={topic}"
        m = placed(name)
        done = store.put(topic, m["body"], queue_id=m["queue_id"], tags=m["tags"], keys=m["keys"])
        place = topic, m["queue_id"], done.queue_offset
        model.acked[place] = content_of(name), done.physical_offset
    put_more(store, model, prefix, draw)


def one_image(
    case: Case, top: Path, recording: Recording, expected: Model, setting: Setting, *, closed: bool
) -> bool:
    """Whether there is a store in the image, which is now recovered and closed."""
    recording.image(case.draw, top, case.draw.choice(["strict", "strict", "ext4"]))
    root = top / STORE
    if not root.is_dir() or not any((root / "commitlog").glob("*")):
        if expected.acked:
            case.violation("I1", f"{len(expected.acked)} acknowledged, and there is no log")
        return False
    invariants.check_checkpoint(root, case.violation, DELETED_TOPICS)
    if closed:
        invariants.check_closed(root, case.violation, DELETED_TOPICS)
    config = case.draw.choice([None, rmqstore.StoreConfig(**setting.fields)])
    modes = case.draw.choice([("r", "r+"), ("r", "r+"), ("r+",)])
    check_reopened(
        case,
        root,
        expected,
        config=config,
        modes=modes,
        more=lambda *given: put_after(*given, "after" + setting.limits),
        gone=DELETED,
        slow=case.draw.random() < SLOW,
    )
    return True
