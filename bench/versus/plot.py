"""Draw the figures of ``make versus``: ``plot.py build/versus.json docs/versus.svg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


def draw(rows: list[dict[str, Any]], into: Path) -> None:
    """Draw each workload's ratio of medians, and the least and the greatest ratio of a round."""
    mpl.rcParams["svg.hashsalt"] = "rmqstore"  # equal figures, equal file
    figure = Figure(figsize=(8, 1 + 0.3 * len(rows)), layout="tight")
    axis = figure.subplots()
    for at, row in enumerate(reversed(rows)):
        color = "tab:green" if row["ratio"] >= 1 else "tab:red"
        axis.plot([row["least"], row["greatest"]], [at, at], color=color, alpha=0.5)
        axis.plot(row["ratio"], at, "o", color=color)
    axis.set_yticks(range(len(rows)), [row["name"] for row in reversed(rows)])
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("theirs / ours: right of 1, rmqstore is faster")
    figure.savefig(into, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
