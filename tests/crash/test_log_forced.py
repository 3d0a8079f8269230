"""The log of a killed owner is forced to the disk before any of it is served."""

from __future__ import annotations

import errno
import os
import shutil
import threading

import pytest

import rmqstore
from rmqstore import _core
from support.damaged_store import CONFIG, bodies, killed, make, read

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

FIRST_SYNCS = 20  # of a recovery: `abort`, the directories, then the log's files


@pytest.fixture
def root(tmp_path):
    if not _core.FAULTS:
        pytest.fail("no kill points in this build: build it with RMQSTORE_BUILD=faults")
    return killed(make(tmp_path / "store"))


def test_opening_waits_for_the_log(root, monkeypatch):
    """Queues and index are complete, and the log's second file is not on the disk."""
    expected = read(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    held, go_on = os.pipe()
    os.write(go_on, b"x")
    monkeypatch.setenv("RMQ_HOLD_AT", f"recover-in-force:{held}")
    opened = []
    opener = threading.Thread(
        target=lambda: opened.append(rmqstore.open(root, "r+", config=CONFIG))
    )
    opener.start()
    opener.join(1)
    assert opener.is_alive()
    assert opened == []
    monkeypatch.delenv("RMQ_HOLD_AT")
    os.close(go_on)  # the read that waits has its end
    opener.join()
    os.close(held)
    with opened[0] as store:
        assert bodies(store) == expected
        assert store.recovery.units_written == len(expected)


def test_a_log_that_cannot_be_forced_is_not_served(root, tmp_path, monkeypatch):
    expected = read(root)
    told = []
    for number in range(1, FIRST_SYNCS):
        again = tmp_path / str(number)
        shutil.copytree(root, again)
        passed = _core.fault_counts()[0]  # they go on in this process
        monkeypatch.setenv("RMQ_FAIL_AT", f"sync:{passed + number}:{errno.EIO}")
        try:
            store = rmqstore.open(again, "r+", config=CONFIG)
        except (OSError, rmqstore.StoreError) as error:
            told.append(str(error))
        else:
            with pytest.raises(rmqstore.StoreFailedError):
                store.close()
        monkeypatch.delenv("RMQ_FAIL_AT")
        assert (again / "abort").exists()
        with rmqstore.open(again, "r+", config=CONFIG) as store:
            assert bodies(store) == expected
    assert sum("cannot be forced to the disk" in text for text in told) > 3
