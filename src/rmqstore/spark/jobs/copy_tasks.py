"""Division of the pieces of a new log into tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmqstore.offline import Copied, LogPiece, LogSource, copy_pieces
from rmqstore.spark.jobs.tasks import runs

__all__ = ["CopyTask", "copy_tasks"]


@dataclass(frozen=True)
class CopyTask:
    """Writes pieces of the new log; has the arguments of ``copy_pieces``."""

    pieces: tuple[LogPiece, ...]
    sources: Mapping[int, LogSource]
    directory: str
    file_size: int
    store_timestamp: int

    def run(self) -> Copied:
        """Copy the records."""
        return copy_pieces(
            self.pieces, self.sources, self.directory, self.file_size, self.store_timestamp
        )


def copy_tasks(
    planned: Sequence[LogPiece],
    sources: Mapping[int, LogSource],
    directory: str,
    file_size: int,
    store_timestamp: int = -1,
) -> list[CopyTask]:
    """Divide pieces of :func:`rmqstore.offline.assign_positions` into tasks; ``directory`` exists.

    ``sources`` are by ``LogPiece.source``. ``store_timestamp``, in ms, is for all records; -1: each
    keeps its own.
    """
    tasks = []
    for run in runs(piece.size for piece in planned):
        mine = tuple(planned[run])
        wanted = {piece.source: sources[piece.source] for piece in mine}
        tasks.append(CopyTask(mine, wanted, directory, file_size, store_timestamp))
    return tasks
