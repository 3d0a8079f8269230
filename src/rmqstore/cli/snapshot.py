"""``snapshot``: a copy of a store that opens clean."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rmqstore.cli.common import corruption_option, open_store, output_option, store_command
from rmqstore.cli.failures import UNREADABLE, USAGE, CliError
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.writers import writer_for
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths

__all__ = ["snapshot"]

_COLUMNS = (Column("path", "path", least=24), Column("bytes", "bytes"), Column("until", "number"))


@store_command(
    "DIRECTORY",
    examples=(
        "snapshot STORE /backup/store",
        "snapshot STORE /backup/store -c broker.conf",
    ),
)
@corruption_option
@output_option
def snapshot(
    *,
    store: str,
    config: str | None,
    directory: str,
    on_corruption: Literal["raise", "skip"],
    output: str | None,
) -> None:
    """Copy a store into DIRECTORY, which is made; the copy opens clean, here and in a broker.

    The store may be in use meanwhile, by a broker or a program: the copy has what had come into
    the log when it began. UNTIL is the physical offset behind the last record. Until the copy is
    complete its name is DIRECTORY.unfinished.  With --on-corruption skip the copy of a damaged log
    has fillers in place of its damage, whose bytes are in the copy's rmqstore-quarantine.
    """
    with (
        open_store(store, "r", config) as opened,
        Progress("copying", "bytes") as progress,
    ):

        def progressed(done: int, total: int) -> None:
            progress.done, progress.total = done, total

        try:
            made = opened.snapshots.make(directory, progressed, fill=on_corruption == "skip")
        except ValueError as error:  # an unsuitable DIRECTORY
            raise CliError(str(error), USAGE) from None
        except StoreCorruptError as error:
            fills = on_corruption != "skip" and paths.CONFIG not in Path(error.path).parts
            hint = "; --on-corruption skip fills the damage" if fills else ""
            raise CliError(f"{error}{hint}", UNREADABLE) from None
    with writer_for(output, _COLUMNS) as writer:
        writer.row({"path": made.path, "bytes": made.bytes, "until": made.until})
