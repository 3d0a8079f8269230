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
