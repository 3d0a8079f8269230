"""Exactly once, whoever dies: processes killed at each step of a commit, and what comes after."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import rmqstore
from rmqstore.spark.sink import append
from rmqstore.spark.sink.ledger import Intent, Ledger
from rmqstore.spark.sink.staging import StagedFileError
from support import sink_driver
from support.sink_driver import Crash, killed, settings
from support.sink_schedule import COMMIT, Schedule, parted, put_foreign, stored

pytestmark = [pytest.mark.spark, pytest.mark.crash]


@pytest.mark.parametrize("crash", COMMIT, ids=repr)
def test_a_batch_that_died_is_there_once(tmp_path: Path, crash: Crash) -> None:
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(14)]
    sink_driver.write_stream(options, "q", 0, parted(["first"], 1, 0))
    put_foreign(tmp_path, options, "before")
    assert killed(crash, lambda: sink_driver.write_stream(options, "q", 1, parted(texts, 3, 1)))
    put_foreign(tmp_path, options, "between")
    sink_driver.write_stream(options, "q", 1, parted(texts, 2, 2))
    sink_driver.write_stream(options, "q", 2, parted(["last"], 1, 0))
    found = stored(tmp_path)
    assert Counter(found) == Counter([*texts, "first", "before", "between", "last"])
    assert Ledger(tmp_path / "store").staged_jobs() == []
    assert Ledger(tmp_path / "store").intent() is None


@pytest.mark.parametrize("crash", COMMIT, ids=repr)
def test_a_job_that_died_is_there_whole_or_not_at_all(tmp_path: Path, crash: Crash) -> None:
    """The intent is the point: what has begun is completed by the next write, of whomever."""
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(14)]
    assert killed(crash, lambda: sink_driver.write_batch(options, parted(texts, 3, 1)))
    begun = (crash.owner, crash.name, crash.when) != (Ledger, "begin", "before") and not (
        crash.name == "flush" and crash.count == 1
    )
    sink_driver.write_stream(options, "q", 0, parted(["next"], 1, 0))
    assert Counter(stored(tmp_path)) == Counter([*(texts if begun else ()), "next"])
    assert Ledger(tmp_path / "store").intent() is None


@pytest.mark.parametrize("crash", COMMIT[-11:], ids=repr)
def test_an_overwrite_that_died(tmp_path: Path, crash: Crash) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    sink_driver.write_batch(options, parted(["old"], 1, 0))
    texts = [f"row {i}" for i in range(14)]

    def work() -> None:
        sink_driver.write_stream(options, "q", 0, parted(texts, 3, 1), True)

    killed(crash, work)
    found = stored(tmp_path)
    assert found == ["old"] or Counter(found) == Counter(texts)
    sink_driver.write_stream(options, "q", 0, parted(texts, 2, 2), True)
    assert Counter(stored(tmp_path)) == Counter(texts)
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store"}


@pytest.mark.parametrize(
    "crash",
    [Crash(Ledger, "begin", "after", 1), Crash(rmqstore.MessageStore, "put_table", "within", 2)],
    ids=repr,
)
def test_staged_files_of_an_intent_are_needed(tmp_path: Path, crash: Crash) -> None:
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(14)]
    assert killed(crash, lambda: sink_driver.write_stream(options, "q", 0, parted(texts, 3, 1)))
    staged = sorted(tmp_path.rglob("*.arrow"))
    good = staged[-1].read_bytes()
    before = stored(tmp_path)
    for change in (
        lambda: staged[-1].write_bytes(good.replace(b"row", b"roW", 1)),
        staged[-1].unlink,
    ):
        change()
        error = "batch 0 of the query q has begun and is not complete: .*(has the sum|is missing)"
        with pytest.raises(rmqstore.StoreError, match=error) as raised:
            sink_driver.write_stream(options, "q", 0, parted(texts, 2, 2))
        assert isinstance(raised.value.__cause__, StagedFileError)
        assert stored(tmp_path) == before
    staged[-1].write_bytes(good)
    sink_driver.write_stream(options, "q", 0, parted(texts, 2, 2))
    assert Counter(stored(tmp_path)) == Counter(texts)


@pytest.mark.parametrize("step", COMMIT, ids=repr)
def test_a_row_that_is_stored_twice_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Crash
) -> None:
    """With a defect, the last stored row once more after a crash, the tests here would fail."""
    real = append._rows_in_log
    again = []

    def one_less(store: rmqstore.MessageStore, intent: Intent) -> int:
        again.append(real(store, intent) > 0)
        return real(store, intent) - again[-1]

    monkeypatch.setattr(append, "_rows_in_log", one_less)
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(14)]
    assert killed(step, lambda: sink_driver.write_stream(options, "q", 0, parted(texts, 3, 1)))
    sink_driver.write_stream(options, "q", 0, parted(texts, 2, 2))
    if any(again):
        with pytest.raises(AssertionError):
            stored(tmp_path)
    else:
        assert Counter(stored(tmp_path)) == Counter(texts)


def test_a_log_whose_rows_are_not_the_first_ones(tmp_path: Path) -> None:
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(14)]
    crash = Crash(Ledger, "begin", "after", 1)
    assert killed(crash, lambda: sink_driver.write_stream(options, "q", 0, parted(texts, 1, 1)))
    intent = Ledger(tmp_path / "store").intent()
    assert intent is not None
    key = f"{intent.job.prefix}80000000{5:08X}"
    with rmqstore.open(tmp_path / "store", "a", config=options["config"]) as store:
        store.put("orders", b"row 5?", uniq_key=key)
    wanted = r"has 1 rows of batch 0 .* that of row 6; .*remove .*intent\.json: writes go on then"
    with pytest.raises(rmqstore.StoreCorruptError, match=wanted):
        sink_driver.write_stream(options, "q", 0, parted(texts, 1, 1))


@pytest.mark.parametrize("size", [20_000, 100])
def test_rows_that_retention_took_count_as_put(tmp_path: Path, size: int) -> None:
    options = settings(tmp_path)
    texts = [str(i) * size for i in range(4)]  # 3 in the first put and in the first file, and 1
    crash = Crash(rmqstore.MessageStore, "put_table", "after", 2)
    assert killed(crash, lambda: sink_driver.write_stream(options, "q", 0, parted(texts, 1, 1)))
    for i in range(2):
        put_foreign(tmp_path, options, f"foreign {i}" + " " * 40_000)
    first = min((tmp_path / "store" / "commitlog").iterdir())
    assert first.name == "0" * 20
    first.unlink()
    if size == 100:  # none is left that would tell
        with pytest.raises(rmqstore.StoreCorruptError, match=r"which of the 4 rows .*intent\.json"):
            sink_driver.write_stream(options, "q", 0, parted(texts, 2, 2))
        Ledger(tmp_path / "store").intent_path.unlink()
    sink_driver.write_stream(options, "q", 1, parted(["next"], 1, 1))
    last = parted(texts, 1, 1)[0][3]["body"].decode()
    left = ["f", "n"] if size == 100 else ["f", "f", "n", last[0]]
    assert Counter(text[0] for text in stored(tmp_path)) == Counter(left)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_random_schedules(tmp_path: Path, block: int) -> None:
    for seed in range(block * 5, block * 5 + 5):
        root = tmp_path / str(seed)
        root.mkdir()
        try:
            Schedule(root, seed).run()
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise
