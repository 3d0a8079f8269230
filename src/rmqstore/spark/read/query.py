"""Batch query as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmqstore.spark.read.filters import NO_FILTERS, Filters
from rmqstore.spark.read.options import Selection
from rmqstore.spark.read.positions import Positions

__all__ = ["Query", "Way"]

Way = Literal["auto", "commitlog", "consumequeue", "index"]


@dataclass(frozen=True)
class Query:
    """Batch query; plain data."""

    selection: Selection
    begin: Positions | None = None  # start in queues
    until: Positions | None = None  # end in queues
    way: Way = "auto"  # access path
    filters: Filters = NO_FILTERS  # further conditions for rows

    @property
    def along_queues(self) -> bool:
        """Whether it reads along queues, as consumers do."""
        named = self.selection.queues is not None or self.way == "consumequeue"
        return named or self.begin is not None or self.until is not None
