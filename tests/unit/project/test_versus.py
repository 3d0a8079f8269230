"""``make versus``: unsteady results have no ratio, pages agree, and both sides run."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from versus import __main__ as versus
from versus import opening, pages, reading, rounds, start, writing
from versus.rounds import Round, measured, minor_faults, timed
from versus.rows import STEADY, Goal, Row, compared

pytestmark = pytest.mark.pure

SMALL = ["--rounds", "1", "--messages", "2000", "--entries", "1000"]


def row(ours: list[float], theirs: list[float], goal: float = 2) -> Row:
    return Row(
        "put, 1 KiB",
        Goal(goal, goal),
        ours=[Round(one * 10, one * 10, 10, faults=1) for one in ours],
        theirs=[Round(one * 10, one * 20, 10, quiet=False) for one in theirs],
        limits=[50, 70],
    )


def test_a_ratio_is_of_medians_and_of_bests() -> None:
    one = compared([100, 110, 130], [300, 330, 350], 2.5)
    assert one["ratio"] == 3
    assert one["bests"] == 3
    assert one["least"] == pytest.approx(350 / 130)
    assert one["greatest"] == 3
    assert pages.verdict(one) == "reached"
    assert pages.verdict(one | {"goal": 3.1}) == "MISSED"
    assert pages.verdict(one | {"goal": None}) == ""


@pytest.mark.parametrize(("greatest", "steady"), [(449, True), (451, False)])
def test_rounds_that_differ_too_much_have_no_ratio(greatest: float, steady: bool) -> None:
    one = compared([100, 100, 100], [300, 310, greatest], 2)
    assert (one["ratio"] is not None, one["bests"] is not None) == (steady, steady)
    assert pages.verdict(one) == ("reached" if steady else "unsteady")


def test_the_table_says_what_is_counted_missed_and_busy() -> None:
    figures = [row([100, 100], [300, 310]).figures(), row([100], [300], 4).figures()]
    clock, cpu = (pages.table(figures, measure).splitlines() for measure in pages.MEASURES)
    cells = "| put, 1 KiB | 100 | 305 | 3.05 | 3.00 | 3.00 to 3.10 | 2 | reached |"
    assert clock[2] == f"{cells} 100.0 | 60 | 2 of 2 |"
    assert "| 4 | MISSED |" in clock[3]
    assert cpu[2] == "| put, 1 KiB | 100 | 610 | 6.10 | 6.00 | 6.00 to 6.20 | 2 | reached |"
    assert len({line.count("|") for line in clock}) == 1


def test_an_unsteady_ratio_is_nowhere_quoted() -> None:
    figures = row([100, 100], [300, 900]).figures()
    assert "| unsteady |" in pages.table([figures], "clock")
    assert pages.short([figures]).endswith("| put, 1 KiB | 100 | 600 | unsteady |")


def test_a_line_without_the_processors_time_has_no_line_of_it() -> None:
    one = Row("process start", Goal(14), ours=[Round(5, None, 1)], theirs=[Round(9, None, 1)])
    assert one.figures()["cpu"] is None
    assert len(pages.table([one.figures()], "cpu").splitlines()) == 2


def test_tables_go_between_the_markers() -> None:
    page = f"a\n{pages.BEGIN.format('clock')}\nold\n{pages.END}\nb\n"
    once = pages.replaced(page, {"clock": "new"})
    assert pages.between(once, "clock")[1].strip() == "new"
    assert pages.replaced(once, {"clock": "new"}) == once
    assert (once[0], once[-2]) == ("a", "b")
    with pytest.raises(AssertionError, match="no <!-- versus: cpu -->"):
        pages.replaced(page, {"cpu": "new"})


def cells(page: Path, name: str) -> dict[str, list[str]]:
    """Cells behind the name of each line of a page's table."""
    lines = pages.between(page.read_text(), name)[1].strip().splitlines()[2:]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in split}


def test_the_readme_agrees_with_the_page() -> None:
    page, readme = cells(pages.PERFORMANCE, "clock"), cells(pages.README, "short")
    assert len(readme) > 10
    for name, (ours, theirs, ratio) in readme.items():
        assert page[name][:2] == [ours, theirs]
        assert ratio == (page[name][2] or "unsteady")


def test_no_ratio_of_the_page_is_unsteady() -> None:
    for line in cells(pages.PERFORMANCE, "clock").values():
        least, greatest = map(float, line[4].split(" to "))
        assert (line[2] == "") == (line[6] == "unsteady")
        if line[2]:
            assert greatest - 0.005 <= STEADY * (least + 0.005)  # as they were before rounding


def test_every_line_of_the_readme_is_measured() -> None:
    goals = reading.GOALS | writing.GOALS | opening.GOALS | start.GOALS
    assert [name for name in pages.IN_README if name not in goals] == []
    assert all(f"| {name} |" in workloads_page() for name in ("`query`", "`scan`", "`dispatch`"))


def workloads_page() -> str:
    return (pages.PROJECT / "bench/workloads.md").read_text()


def test_a_round_is_the_last_of_its_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PATIENCE", 0)
    did: list[str] = []
    monkeypatch.setattr(rounds, "heat", lambda _size: did.append("heat"))
    monkeypatch.setattr(rounds, "busy", lambda: 0.5)

    def work() -> list[Round]:
        did.append("work")
        return [Round(len(did), None, 1)]

    (done,) = measured(work, prepare=lambda: did.append("prepare"))
    assert did == ["prepare", "work", "prepare", "heat", "work"]
    assert done == Round(5, None, 1, quiet=False)


def test_the_machine_is_watched() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            np.ones(100_000).sum()

    spinner = threading.Thread(target=spin)
    spinner.start()
    try:
        seen = [rounds.busy() for _ in range(3)]
    finally:
        stop.set()
        spinner.join()
    assert all(0 < one <= 1 for one in seen)


def test_faults_are_of_the_thread_that_touches_pages() -> None:
    memory = np.empty(64 << 20, np.uint8)  # fresh from the system: not yet there
    before = minor_faults()
    memory[::4096] = 1
    assert minor_faults() > before
    rounds.heat(1 << 20)


def test_the_processor_is_timed_until_all_is_settled() -> None:
    def spin() -> None:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass

    done = timed(lambda: 3, spin)
    assert done.count == 3
    assert done.cpu_ns >= 50_000_000


@pytest.mark.interop
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["put, 128 B", "query, decoded", "scan, six", "broker's killed", "index file: put", "process"],
)
def test_both_sides_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "versus.json"
    monkeypatch.setenv("RMQSTORE_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["versus", *SMALL, "--only", name, "--json", str(figures)])
    assert versus.main() in {0, 1}
    shown = capsys.readouterr().out
    assert name in shown
    assert "busy rounds" in shown
    assert list(tmp_path.iterdir()) == [figures]
