"""The same full disks under the real 4.9.3."""

from __future__ import annotations

import time
from pathlib import Path

from faults import theirs
from faults.campaign_disk import ERRORS, LIMIT, RESUME, Disk, disk_under
from faults.framework import Case
from faults.model import Model, Named
from interop.driver import Driver, DriverError

PREFIX = "d~3000~8"  # bodies of up to 3,000 bytes, in 8 queues
PATIENCE = 10  # seconds of one answer


class Filler:
    """Puts through the driver, four at a time, until they are refused."""

    def __init__(self, case: Case, driver: Driver, model: Model) -> None:
        self.case = case
        self.driver = driver
        self.model = model
        self.number = 0

    def put(self) -> bool:
        """Whether all of them were acknowledged."""
        names = [f"{PREFIX}.{self.number + i}" for i in range(4)]
        self.number += 4
        puts = self.driver.append([theirs.message(name) for name in names], wait=False)
        theirs.learn_puts(self.model, names, puts)
        return all(put.status == "PUT_OK" for put in puts)

    def until_full(self) -> None:
        refused = 0
        until = time.monotonic() + LIMIT / 2
        while refused < ERRORS and time.monotonic() < until:
            refused += not self.put()
        self.case.note("refused while the disk was full", refused)

    def until_resumed(self) -> None:
        until = time.monotonic() + RESUME
        while not self.put():
            if time.monotonic() > until:
                self.case.violation("hung", f"space is free for {RESUME} s")
                return
            time.sleep(0.02)


def one_disk(case: Case, item: str) -> None:
    """It fills the disk, goes on with space free if it still lives, and is opened again."""
    part, kind, _ = item.split("-")
    root = case.scratch / "store"
    flush = case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    model = Model(Named({PREFIX}))
    with disk_under(case, kind, part, root) as disk:
        if disk is None:
            return
        fill(case, disk, root, flush, model, f"{part} on {kind}, {flush}")
        checker = theirs.Checker()
        try:
            checker.check(case, root, model, flush)
        finally:
            checker.close()


def fill(case: Case, disk: Disk, root: Path, flush: str, model: Model, name: str) -> None:
    freed = False
    with Driver() as driver:
        try:
            opened = driver.open(root, theirs.config(flush), timeout=PATIENCE)
            assert opened["start"], driver.log()
            filler = Filler(case, driver, model)
            filler.until_full()
            disk.free()
            freed = True
            filler.until_resumed()
            theirs.look(driver, model, case.violation, f"{name}, before it is closed")
            if not driver.shutdown():
                case.violation("I5", f"{name}: shut down, and abort is there")
        except DriverError as error:
            kind = "hung" if "time" in str(error) else "died"
            case.violation(kind, f"{name}: {str(error)[:500]}")
    if not freed:
        disk.free()
