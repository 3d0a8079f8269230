"""The plot of ``make versus``: each workload's ratio by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


def draw(rows: list[dict[str, Any]], into: Path) -> None:
    """Draw ratios of medians, goals, and the least and the greatest ratio of a round.

    Rounds that differ too much are a grey line without a ratio.
    """
    mpl.rcParams["svg.hashsalt"] = "rmqstore"  # equal figures, equal file
    figure = Figure(figsize=(8, 1 + 0.3 * len(rows)), layout="tight")
    axis = figure.subplots()
    for at, row in enumerate(reversed(rows)):
        clock = row["clock"]
        ratio = clock["ratio"]
        color = "0.6" if ratio is None else "tab:green" if ratio >= 1 else "tab:red"
        axis.plot([clock["least"], clock["greatest"]], [at, at], color=color, alpha=0.5)
        axis.plot(clock["goal"], at, "|", color="black")
        if ratio is not None:
            axis.plot(ratio, at, "o", color=color)
    axis.set_yticks(range(len(rows)), [row["name"] for row in reversed(rows)])
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel(
        "theirs / ours: right of 1, rmqstore is faster; | is the goal, grey is unsteady"
    )
    figure.savefig(into, metadata={"Date": None})
