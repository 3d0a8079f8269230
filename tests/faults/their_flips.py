"""The same damage to closed stores that the real 4.9.3 then opens."""

from __future__ import annotations

import contextlib
import shutil

from faults import tiny
from faults.damage import Damage
from faults.framework import Case
from faults.make_tiny import SIZES
from faults.tiny import Image
from interop.driver import Driver, DriverError

PATIENCE = 8  # seconds of one answer


class TheirTrials:
    """Damages looked at by one process of the real store after the other; it may die of one."""

    def __init__(self, case: Case, image: Image) -> None:
        self.case = case
        self.image = image
        self.root = case.scratch / "store"
        self.driver: Driver | None = None

    def run(self, damage: Damage) -> None:
        files = damage.apply(self.image.files)
        if files is None:
            return
        self.case.count()
        shutil.rmtree(self.root, ignore_errors=True)
        tiny.write_files(self.root, files, self.image.directories)
        try:
            self._open(damage)
        except (DriverError, AssertionError) as error:
            kind = "hung" if "timeout" in str(error) or "in time" in str(error) else "died"
            self.case.violation(kind, f"{damage}: {str(error).splitlines()[0]}")
            self._restart()
        gone = {name for name in files if not (self.root / name).exists()} - {"abort"}
        if gone := {name for name in gone if not name.startswith("index/")}:
            self.case.violation("I7", f"{damage}: files are gone: {sorted(gone)}")

    def _open(self, damage: Damage) -> None:
        if self.driver is None:
            self.driver = Driver()
        opened = self.driver.open(self.root, SIZES, timeout=PATIENCE)
        if not opened["load"] or not opened["start"]:
            self.case.violation("refused", f"{damage}: {opened}")
            self._restart()
            return
        good = set()
        for unit in self.driver.dump(body=True):
            place = unit.topic, unit.queue_id, unit.queue_offset
            expected = self.image.messages.get(place)
            if unit.record is None or expected is None:
                continue
            if (unit.physical_offset, unit.record["body"]) == (expected[3], expected[5]):
                good.add(place)
        self.driver.shutdown()
        hits = damage.hits(self.image)
        allowed = damage.units(self.image) | {
            place
            for place, (start, stop) in self.image.spans.items()
            if any(start < last and first < stop for first, last in hits)
        }
        if lost := self.image.messages.keys() - good - allowed:
            self.case.violation("I1", f"{damage}: lost beside what is hit: {sorted(lost)}")

    def _restart(self) -> None:
        if self.driver is not None:
            with contextlib.suppress(DriverError, OSError):
                self.driver.close()
        self.driver = None

    def close(self) -> None:
        self._restart()
