"""What is read of the log before the queues of a closed store are shown, mode "r"."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rmqstore
from support import oracle, scan_model

BODY = b"x" * 1000
COUNT = 4000
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def closed_store(root: Path, records: list[bytes]) -> int:
    """A store as a broker closed it, without our watermark; the bytes that its log has."""
    scan_model.write_store(root, records, CONFIG)
    page = bytearray((root / "checkpoint").read_bytes())
    page[2048:] = bytes(len(page) - 2048)
    (root / "checkpoint").write_bytes(page)
    return sum(len(record) for record in records)


def records(queued: int, transactions: int) -> list[bytes]:
    """Messages of three queues, every so many of them followed by one that was prepared."""
    made = []
    for number in range(queued):
        made.append(oracle.encode_record("t", BODY, queue_id=number % 3, queue_offset=number // 3))
        if number % transactions == 0:
            made.append(oracle.encode_record("t", BODY, sys_flag=oracle.TRANSACTION_PREPARED))
            made.append(oracle.encode_record("t", b"", sys_flag=oracle.TRANSACTION_ROLLBACK))
    return made


def shown(root: Path) -> dict[int, list[int]]:
    with rmqstore.open(root, config=CONFIG) as store:
        return {
            number: [message.queue_offset for message in queue]
            for number, queue in store["t"].items()
        }


@pytest.mark.parametrize("transactions", [1, 50])
def test_records_without_a_place_in_a_queue(tmp_path: Path, transactions: int) -> None:
    """Only they are read, and not what the queues have."""
    size = closed_store(tmp_path, records(COUNT, transactions))
    before = bytes_read()
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        bounds = [(queue.min_offset, queue.max_offset) for queue in store["t"].values()]
        read = bytes_read() - before
    assert bounds == [(0, (COUNT + 2 - number) // 3) for number in range(3)]
    assert read < size * (1.5 if transactions == 1 else 0.7)  # walks read it twice and more


@pytest.mark.parametrize("lost", ["units", "file", "queue"])
def test_a_missing_unit_is_derived_from_the_log(tmp_path: Path, lost: str) -> None:
    """Where a record between the units has a place in a queue the log has its say."""
    closed_store(tmp_path, records(COUNT, 50))
    expected = shown(tmp_path)
    queue = tmp_path / "consumequeue" / "t" / "1"
    if lost == "units":
        with max(queue.iterdir()).open("r+b") as file:
            file.seek(100)
            file.write(bytes(60))
    elif lost == "file":
        max(queue.iterdir()).unlink()
    else:
        shutil.rmtree(queue)
    assert shown(tmp_path) == expected
