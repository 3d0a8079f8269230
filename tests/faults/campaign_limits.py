"""Random limits, lowered and raised between openings, against random services."""

from __future__ import annotations

import logging

from faults.framework import Case, Run, campaign
from support import limited_services
from support.limited_services import ENDS, KINDS, ROOM, drive

STEPS = 80


@campaign("limits", cases=1000, slice=8, memory=True)
def limits(run: Run) -> None:
    """What was acknowledged is in its topic once, whatever the limits were when it was moved."""
    if run.wants("ours"):
        run.fork(one_drive, range(run.cases))


def one_drive(case: Case, number: int) -> None:
    logging.disable(logging.WARNING)
    draw = case.draw
    limited_services.PATIENCE = 20
    steps = [
        (
            draw.choice(KINDS if draw.random() < 0.5 else KINDS + ENDS),
            draw.randrange(42), draw.randint(0, ROOM), draw.randrange(42),
        )
        for _ in range(draw.randrange(5, STEPS))
    ]  # fmt: skip
    for wrong in drive(case.scratch / "s", steps):
        case.violation("I1", wrong)
