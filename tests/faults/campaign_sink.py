"""Commits of the Spark sink that die at any step, other writers, and the same batch again."""

from __future__ import annotations

from importlib.util import find_spec

from faults.framework import Case, Run, campaign


@campaign("sink", cases=300, slice=10, memory=True)
def sink(run: Run) -> None:
    if find_spec("pyspark") is None:
        run.not_run("no pyspark")
        return
    run.fork(one_schedule, range(run.cases))


def one_schedule(case: Case, number: int) -> None:
    from support.sink_schedule import Schedule

    try:
        Schedule(case.scratch, case.draw.getrandbits(32)).run()
    except AssertionError as error:
        case.violation("I2", f"rows that are missing, or there twice: {error}")
