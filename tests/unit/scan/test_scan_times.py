"""Ranges of store times inside a log file: blocks without a record in the range are not read."""

from __future__ import annotations

import shutil
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

import pytest

import rmqstore
from rmqstore import StoreCorruptError

FILE = 4 << 20
BLOCK = FILE // 64
CONFIG = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=FILE)
FIRST = 1_700_000_000_000
COUNT = 3000
ASKED: list[dict[str, Any]] = [{}, {"topic": "t"}, {"topic": "t", "queue_id": 0}]


def write(root: Path, times: list[int]) -> list[int]:
    """A log of one message a time, of about 1,100 bytes; its offsets."""
    log = rmqstore.CommitLog(root / "commitlog", file_size=FILE, mode="a")
    places = []
    for n, time in enumerate(times):
        record = rmqstore.encode_record("t", b"x" * 1000, queue_offset=n, store_timestamp=time)
        places += log.append([record])
    log.close()
    rmqstore.open(root, "r+", config=CONFIG).close()  # makes the queues
    return places


def offsets(scan: rmqstore.Scan) -> list[int]:
    return [message.queue_offset for message in scan]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("asked", ASKED, ids=["log", "queues", "queue"])
def test_only_blocks_of_the_range(
    tmp_path: Path, asked: dict[str, Any], mode: Literal["r", "r+"]
) -> None:
    places = write(tmp_path, [FIRST + n for n in range(COUNT)])
    with rmqstore.open(tmp_path, mode, config=CONFIG) as store:
        for low, high in [(2900, COUNT), (1000, 1010), (0, 5), (COUNT, COUNT + 5), (500, 900)]:
            scan = store.scan(**asked, since=FIRST + low, until=FIRST + high)
            before = store.stats()["scanned_records"]
            assert offsets(scan) == list(range(low, min(high, COUNT)))
            read = store.stats()["scanned_records"] - before
            assert read <= min(high, COUNT) - low + 2 * BLOCK // 1000 + 2
            start, stop = scan.narrowed(0, 1 << 62)
            if low < COUNT:
                assert places[low] - BLOCK - 1200 <= start <= places[low]
                assert places[min(high, COUNT) - 1] < stop


@pytest.mark.parametrize("asked", ASKED, ids=["log", "queues", "queue"])
def test_a_clock_that_went_back(tmp_path: Path, asked: dict[str, Any]) -> None:
    """The time of each message decides, wherever the message is."""
    times = [FIRST + n for n in range(COUNT)]
    times[1500:1600] = [time - 1400 for time in times[1500:1600]]
    times[10] += 2000
    write(tmp_path, times)
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        for since in (0, 100, 150, 1450, 1550, 1999, 2010, 2011, 2900, 3001):
            for length in (1, 70, 1000, 4000):
                low, high = FIRST + since, FIRST + since + length
                wanted = [n for n, time in enumerate(times) if low <= time < high]
                assert offsets(store.scan(**asked, since=low, until=high)) == wanted


def test_damage_is_not_skipped(tmp_path: Path) -> None:
    """A damaged record may have been stored in the range: its block is read."""
    places = write(tmp_path, [FIRST + n for n in range(COUNT)])
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(places[1000] + 4)
        file.write(b"????")
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        for times, wanted in [
            ({"since": FIRST + 2000}, range(2000, COUNT)),
            ({"until": FIRST + 500}, range(500)),
        ]:
            scan = store.scan(**times)
            with pytest.raises(StoreCorruptError) as error:
                offsets(scan)
            assert error.value.offset == places[1000]
            assert offsets(scan.replace(on_corruption="skip")) == list(wanted)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_log_that_grows(tmp_path: Path, mode: Literal["r", "r+"]) -> None:
    """Blocks are added as the log grows, and each search sees what was stored before it."""
    with rmqstore.open(tmp_path, "a", config=CONFIG) as writer:
        reader = writer if mode == "r+" else rmqstore.open(tmp_path, config=CONFIG)
        times: list[int] = []
        for _ in range(6):
            put = writer.put_many("t", [b"x" * 1000] * 200, queue_id=0)
            writer.clock.advance(1)
            times += [writer.at(int(at)).store_timestamp for at in put.physical_offset]
            assert writer.scan("t", 0).count() == len(times)  # waits until the queue has them
            for since in (times[0], times[-1], times[-1] + 1, times[len(times) // 2]):
                wanted = [n for n, time in enumerate(times) if time >= since]
                assert offsets(reader.scan(since=since)) == wanted
                assert offsets(reader.scan("t", 0, since=since)) == wanted
        if mode == "r":
            reader.close()


@pytest.mark.parametrize("asked", ASKED, ids=["log", "queues", "queue"])
def test_times_at_the_ends_of_the_range(tmp_path: Path, asked: dict[str, Any]) -> None:
    """A range without an end has the greatest time too, and one without a beginning the least."""
    times = [FIRST + n for n in range(COUNT)]
    times[:500] = [-(1 << 63)] * 500
    times[2500:] = [(1 << 63) - 1] * 500
    write(tmp_path, times)
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        assert offsets(store.scan(**asked, since=FIRST)) == list(range(500, COUNT))
        assert offsets(store.scan(**asked, until=FIRST)) == list(range(500))


@pytest.mark.parametrize("asked", ASKED[:2], ids=["log", "queues"])
def test_a_log_that_was_cut_and_appended_to(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Blocks that an open reader walked are another's records, as after a broker's recovery."""
    places = write(tmp_path, [FIRST + n for n in range(1500)])
    with rmqstore.open(tmp_path, config=CONFIG) as reader:
        assert offsets(reader.scan(**asked, since=FIRST + 1400)) == list(range(1400, 1500))
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(places[700])
            file.write(bytes(FILE - places[700]))
        shutil.rmtree(tmp_path / "consumequeue")
        (tmp_path / "checkpoint").unlink()
        rmqstore.open(tmp_path, "r+", config=CONFIG).close()
        log = rmqstore.CommitLog(tmp_path / "commitlog", file_size=FILE, mode="a")
        for n in range(700, 1600):
            time = FIRST + 100_000 + n
            log.append(
                [rmqstore.encode_record("t", b"x" * 1000, queue_offset=n, store_timestamp=time)]
            )
        log.close()
        rmqstore.open(tmp_path, "r+", config=CONFIG).close()
        deadline = monotonic() + 60
        while reader.scan(**asked).count() < 1600 and monotonic() < deadline:
            sleep(0.05)
        assert offsets(reader.scan(**asked, since=FIRST + 100_000)) == list(range(700, 1600))
        assert offsets(reader.scan(**asked, until=FIRST + 100_000)) == list(range(700))
