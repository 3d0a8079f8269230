"""``CommitLog.records`` over more records than one call of the core gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore

COUNT = 2_500  # two full calls, and a part of one
FILE = 1 << 20


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("damaged", [[], [700], [1023, 1024], [2047, 2048, 2499]])
def test_each_good_record_is_there_once(tmp_path: Path, mode: str, damaged: list[int]) -> None:
    record = rmqstore.encode_record("topic", b"body" * 20)
    with rmqstore.CommitLog(tmp_path / "log", file_size=FILE, mode="a") as log:
        offsets = log.append([record] * COUNT)
    with rmqstore.CommitLog(tmp_path / "log", file_size=FILE, mode=mode) as log:
        assert log.max_offset == offsets[-1] + len(record)  # the end is known before the damage
        with (tmp_path / "log" / f"{0:020d}").open("r+b") as file:
            for number in damaged:
                file.seek(offsets[number] + 90)
                file.write(b"XX")
        good = [(at, len(record)) for n, at in enumerate(offsets) if n not in damaged]
        assert list(log.records()) == good
        assert list(log.records(offsets[1500], offsets[1510])) == [
            one for one in good if offsets[1500] <= one[0] < offsets[1510]
        ]


def changed(directory: Path, at: int, data: bytes) -> None:
    with (directory / f"{at // FILE * FILE:020d}").open("r+b") as file:
        file.seek(at % FILE)
        file.write(data)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("damaged", [[0], [700, 701], [5, 1023, 20_000], [6_000 + COUNT]])
def test_what_was_damaged_before_the_first_look(
    tmp_path: Path, damaged: list[int], zeros: bool
) -> None:
    """The end is that of the last good record, wherever a damage is; and it moves on."""
    record = rmqstore.encode_record("topic", b"body" * 20)
    directory = tmp_path / "log"
    with rmqstore.CommitLog(directory, file_size=FILE, mode="a") as log:
        offsets = log.append([record] * 10 * COUNT)
        assert offsets[-1] > FILE
        for number in damaged:
            for one in (number, number + 1):
                bad = bytes(len(record)) if zeros else b"XX"
                changed(directory, offsets[one] + (0 if zeros else 90), bad)
        with rmqstore.CommitLog(directory, file_size=FILE, mode="r") as reader:
            gone = {one for number in damaged for one in (number, number + 1)}
            good = [(at, len(record)) for n, at in enumerate(offsets) if n not in gone]
            assert list(reader.records()) == good
            assert reader.max_offset == offsets[-1] + len(record)
            good += [(at, len(record)) for at in log.append([record] * 3)]
            assert list(reader.records()) == good
            end = reader.max_offset
            changed(directory, end, record[:40])  # as of a record that is being copied
            assert list(reader.records()) == good
            assert reader.max_offset == end
            changed(directory, end, bytes(40))
            good += [(at, len(record)) for at in log.append([record])]
            assert list(reader.records()) == good
