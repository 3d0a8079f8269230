"""Syncs that fail, each in turn; then the pages that never reached the disk are thrown away.

The workload runs under ``power_shim.c``, which keeps what was synced with success: that is what
the disk has.  The page cache has more, and counts the pages of the failed sync as clean.
"""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import rmqstore
from crash.checks import environment
from faults import invariants, reopen, small_work
from faults.campaign_calls import (
    IMAGES,
    LIMIT,
    Plan,
    check_after,
    check_told,
    described,
    plan_of,
    plans_of,
)
from faults.campaign_power import build_shim
from faults.framework import Case, Run, campaign
from faults.model import Model, messages_of
from faults.power_image import Recording

ERRNOS = (errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EMFILE)
SHIM: list[Path] = []


@campaign("syncs", cases=500, slice=30, needs_faults=True)
def syncs(run: Run) -> None:
    """The n-th sync fails: nothing is acknowledged from then on, and nothing lost of before.

    Nor is anything served that the disk never got.
    """
    run.not_run("no place in Java where a sync could be made to fail", "theirs")
    if not run.wants("ours"):
        return
    SHIM[:] = [build_shim(run.scratch)]
    plans = plans_of(run, {"sync": ERRNOS, "os.fsync": ERRNOS[:2]})
    run.fork(one_sync, plans, seconds=4 * LIMIT)


def program(recording: Recording, *arguments: object) -> tuple[int, str]:
    """Its exit status, and what it printed; if it died, how."""
    done = subprocess.run(
        [sys.executable, "-m", "faults.sync_worker", *map(str, arguments)],
        env=environment(**recording.environment(SHIM[0])),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr if done.returncode else done.stdout


def one_sync(case: Case, item: str) -> None:
    plan = plan_of(item)
    variant, call, *_ = plan
    top = case.scratch / "top"
    root = top / "store"
    image = IMAGES.get(variant.state)
    small_work.begin(root, image)
    model = small_work.model_of(image)
    there = max((stop for _, stop in image.spans.values()), default=0) if image else 0
    files = invariants.sizes(root)
    recording = Recording.begin(top, case.scratch / "shadow")
    status, said = program(recording, "work", root, case.scratch / "told", item)
    name = described(plan)

    def tell(kind: str, text: str) -> None:
        case.violation(kind, f"{name}: {text}")

    if status:
        tell("hung" if status == -signal.SIGALRM else "died", f"exit status {status}: {said}")
        return
    if said.split()[1] == "0":
        case.note("planned calls that were not reached")
    told = small_work.learn(model, case.scratch / "told")
    check_told(told, call, tell)
    expected = replace(model, acked=dict(model.acked), flushed=max(model.flushed, there))
    if variant.flush != "SYNC_FLUSH":
        expected = expected.flushed_part()
    expected.gaps = True
    check_thrown(case, recording, plan, expected, tell)
    if case.draw.random() < 0.5:
        check_served(case, recording, root, item, tell)
    check_after(case, root, variant, model, tell, files)


def thrown_away(case: Case, recording: Recording, name: str) -> Path:
    """The store as the disk has it."""
    recording.end()
    to = case.scratch / name
    recording.synced(to, case.draw.choice(["strict", "ext4"]))
    return to / "store"


def check_thrown(case: Case, recording: Recording, plan: Plan, model: Model, tell: Any) -> None:
    """After the failed sync the machine goes down, and what it had not synced is gone."""
    variant = plan[0]
    root = thrown_away(case, recording, "thrown")

    def told(kind: str, text: str) -> None:
        tell(kind, f"what was synced alone: {text}")

    if not (root / "commitlog").is_dir() or not any((root / "commitlog").iterdir()):
        if model.acked:
            told("I1", f"{len(model.acked)} were acknowledged, and there is no log")
        return
    small_work.check_reopened(reopen.Telling(case, told), root, variant, model)


def check_served(case: Case, recording: Recording, root: Path, item: str, tell: Any) -> None:
    """What the store shows when it is opened again is on the disk: it may go down right then."""
    out = case.scratch / "served"
    status, said = program(recording, "serve", root, out, item)
    if status not in {0, -signal.SIGKILL}:
        kind = "hung" if status == -signal.SIGALRM else "died"
        tell(kind, f"reopening ended with {status}: {said}")
    served = [line.split() for line in out.read_text().splitlines()] if out.exists() else []
    again = thrown_away(case, recording, "served-and-thrown")
    if not served:
        return
    case.note("messages that were served before the machine went down", len(served))
    there = set()
    try:
        with rmqstore.open(again, "r+", config=plan_of(item)[0].config()) as store:
            for topic, queue_id, messages in messages_of(store):
                there |= {
                    (topic, queue_id, message.queue_offset, message.raw_body.hex())
                    for message in messages
                }
    except invariants.REFUSALS as error:
        tell("refused", f"after serving {len(served)} messages: {error!r}")
        return
    lost = [
        (topic, int(queue_id), int(offset))
        for topic, queue_id, offset, *body in served
        if (topic, int(queue_id), int(offset), "".join(body)) not in there
    ]
    if lost:
        tell("I1", f"{len(lost)} of {len(served)} were served and never on the disk: {lost[:3]}")
