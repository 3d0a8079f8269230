"""Power cuts: any part of what was not synced is on the disk, and the rest is not."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqstore
from faults.framework import Case, Run, campaign
from faults.model import Model, Named, learn
from faults.power_image import Recording
from faults.reopen import check_reopened
from faults.victim import Victim

SHIM = Path(__file__).parent / "power_shim.c"
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
    seconds: float

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
            seconds=draw.choice([0.1, 0.5, 1.0]) * draw.uniform(0.3, 1.5),
        )

    @property
    def fields(self) -> dict[str, Any]:
        return {**self.sizes, "flush_disk_type": self.flush}


@campaign("power", cases=5000, slice=20)
def power(run: Run) -> None:
    library = build_shim(run.scratch)
    runs = run.number(100, 2)
    images = max(1, run.cases // runs // 2)  # of each of the two cuts of a run

    def work(case: Case, number: int) -> None:
        one_run(case, number, library, images)

    run.fork(work, range(runs), counts=False, seconds=1200)


def one_run(case: Case, number: int, library: Path, images: int) -> None:
    """Two power cuts; the second run begins with what the first left."""
    setting = Setting.of(case, number)
    top = case.scratch / "top"
    (top / STORE if not setting.fresh else top).mkdir(parents=True)
    model = Model(Named())
    for cut in range(2):
        recording = write_and_cut(case, cut, setting, library, top, model)
        expected = model if setting.flush == "SYNC_FLUSH" else model.durable()

        def work(
            inner: Case, image: int, recording: Recording = recording, expected: Model = expected
        ) -> None:
            one_image(inner, recording, expected, setting)

        case.fork(work, [f"{cut}.{image}" for image in range(images)], seconds=120)
        if cut == 0:
            top = case.scratch / "again"
            recording.image(case.draw, top, "strict")
            model = expected


def write_and_cut(
    case: Case, cut: int, setting: Setting, library: Path, top: Path, model: Model
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
    victim.open.wait()
    time.sleep(setting.seconds)
    status, said = victim.kill()
    if status != -9:
        case.violation("error", f"the writer ended by itself: {status}, {bytes(said[-2000:])!r}")
    learn(model, said)
    recording.end()
    case.note("acknowledged", len(model.acked))
    return recording


def one_image(case: Case, recording: Recording, expected: Model, setting: Setting) -> None:
    top = case.scratch / "image"
    recording.image(case.draw, top, case.draw.choice(["strict", "strict", "ext4"]))
    root = top / STORE
    if not root.is_dir() or not any((root / "commitlog").glob("*")):
        if expected.acked:
            case.violation("I1", f"{len(expected.acked)} acknowledged, and there is no log")
        return
    config = case.draw.choice([None, rmqstore.StoreConfig(**setting.fields)])
    modes = case.draw.choice([("r", "r+"), ("r", "r+"), ("r+",)])
    check_reopened(case, root, expected, config=config, modes=modes, more="after" + setting.limits)
