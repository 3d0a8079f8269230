"""Lag of the pipeline over time, from the metrics file that Prometheus would read.

The file of a dead job stays as it was: its lag stands still, and the age of its report grows. An
alert needs both.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PERIOD = 0.25  # seconds between two samples


@dataclass(frozen=True, slots=True)
class Sample:
    """Metrics at one moment.

    Attributes
    ----------
    at : float
        Seconds since the epoch.
    behind : dict of str to int
        Messages behind the head, by query, as last reported.
    reported : dict of str to float
        Time of that report.
    watermark : float
        Of the query ``totals``; 0 before its first batch.
    dropped : int
        Rows behind the watermark, since the job was started.
    """

    at: float
    behind: dict[str, int]
    reported: dict[str, float]
    watermark: float
    dropped: int


def sample(path: Path) -> Sample:
    """Read the metrics file; empty before a job's first batch."""
    values: Counter[tuple[str, str]] = Counter()
    text = path.read_text() if path.exists() else ""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            values[one.name.removeprefix("pipeline_"), one.labels.get("query", "")] += one.value

    def by_query(name: str) -> dict[str, float]:
        return {query: value for (each, query), value in values.items() if each == name}

    return Sample(
        time.time(),
        {query: int(messages) for query, messages in by_query("lag_messages").items()},
        by_query("report_timestamp_seconds"),
        values["watermark_timestamp_seconds", "totals"],
        int(values["dropped_rows_total", "totals"]),
    )


def draw(samples: Sequence[Sample], events: Sequence[tuple[float, str]], into: Path) -> None:
    """Draw the lag of each query and the age of its report, and the times of events."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    began = samples[0].at
    figure, (behind, age) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 7))
    for number, query in enumerate(sorted({name for one in samples for name in one.behind})):
        known = [one for one in samples if query in one.behind]
        at = [one.at - began for one in known]
        style = {"color": f"C{number}", "label": query, "drawstyle": "steps-post"}
        behind.plot(at, [one.behind[query] for one in known], **style)
        age.plot(at, [one.at - one.reported[query] for one in known], **style)
    for axis in (behind, age):
        for number, (when, _) in enumerate(events, 1):
            axis.axvline(when - began, color="red", linestyle="--", linewidth=0.8)
            axis.annotate(str(number), (when - began, 1), xycoords=("data", "axes fraction"))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    behind.set_ylabel("messages behind, as reported")
    age.set_ylabel("age of the report, seconds")
    age.set_xlabel("\n".join(f"{number}: {text}" for number, (_, text) in enumerate(events, 1)))
    behind.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(into, dpi=110)
