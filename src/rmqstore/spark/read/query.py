"""What a batch query asks for; plain data."""

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
    """What is to be read; plain data.

    Attributes
    ----------
    selection : Selection
    begin, until : Positions, or None
        Where queues are read from, and up to.
    way : {"auto", "commitlog", "consumequeue", "index"}
        Along what.
    filters : Filters
        What the rows must pass as well.
    """

    selection: Selection
    begin: Positions | None = None
    until: Positions | None = None
    way: Way = "auto"
    filters: Filters = NO_FILTERS

    @property
    def along_queues(self) -> bool:
        """Whether what consumers would get is asked for."""
        named = self.selection.queues is not None or self.way == "consumequeue"
        return named or self.begin is not None or self.until is not None
