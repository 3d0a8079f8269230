"""Index entries that are there twice, as after a kill or in a copy: no alarm, nothing to mend."""

import shutil
import struct

import pytest

from rmqstore import offline
from rmqstore.toolbox import rebuild, repair, verify
from support import repairs

SLOTS = 500


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root, count=600)
    return root


def enter(root, entry):
    """Enter a key again as a broker does, in the newest file."""
    path = sorted((root / "index").iterdir())[-1]
    with path.open("r+b") as file:
        data = bytearray(file.read())
        (number,) = struct.unpack_from(">i", data, 36)
        slot = 40 + 4 * (struct.unpack_from(">i", entry)[0] % SLOTS)
        before = data[slot : slot + 4]
        at = 40 + 4 * SLOTS + 20 * number
        data[at : at + 20] = entry[:16] + before
        struct.pack_into(">i", data, slot, number)
        struct.pack_into(">i", data, 36, number + 1)
        file.seek(0)
        file.write(data)


def last_entries(root, count):
    data = sorted((root / "index").iterdir())[-1].read_bytes()
    (number,) = struct.unpack_from(">i", data, 36)
    at = 40 + 4 * SLOTS + 20 * number
    return [data[at - 20 * back : at - 20 * back + 20] for back in range(count, 0, -1)]


@pytest.mark.parametrize("count", [1, 2])
def test_the_entries_of_the_last_record_twice(whole, tmp_path, count):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    for entry in last_entries(root, count):
        enter(root, entry)
    report = verify(root, full=True)
    [one] = report.problems
    assert (one.kind, one.severity) == ("index-duplicate", "warn")
    assert one.message.startswith(f"{count} entr")
    assert "harmless" in one.message
    assert report.clean
    assert verify(root).clean
    assert offline.broker_start(root).broker == "starts"
    before = repairs.tree(root)
    assert repair(root, apply=True).actions == ()
    assert all(one.same for one in rebuild(root, apply=True))
    assert repairs.tree(root) == before


def test_an_entry_of_another_record_is_still_found(whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    [entry] = last_entries(root, 1)
    (key_hash,) = struct.unpack_from(">i", entry)
    enter(root, struct.pack(">i", key_hash + SLOTS) + entry[4:])
    report = verify(root, full=True)
    assert "index-extra" in [one.kind for one in report.problems]
    assert not report.clean
    assert [one.action for one in repair(root).actions][:1] == ["rebuild-index"]


@pytest.mark.parametrize("count", [4, 20, 398])
def test_where_offsets_go_back_the_index_is_rebuilt(whole, tmp_path, count):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    for entry in last_entries(root, count):  # of several records: no search can use the file
        enter(root, entry)
    assert not verify(root, full=True).clean
    assert "rebuild-index" in [one.action for one in repair(root, apply=True).actions]
    assert verify(root, full=True).clean
    assert repair(root).actions == ()


@pytest.mark.parametrize("sys_flag", [0x0C, 0x8E])
def test_entries_of_a_record_that_no_broker_enters(whole, tmp_path, sys_flag):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    (offset,) = struct.unpack_from(">q", (root / repairs.queue_file(0)).read_bytes(), 20 * 50)
    flag = offset % repairs.LOG + 36
    repairs.patch(repairs.log(offset // repairs.LOG), flag, struct.pack(">i", sys_flag))(root)
    report = verify(root, full=True)
    assert "index-extra" in [one.kind for one in report.problems]
    assert not report.clean
