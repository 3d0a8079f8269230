"""The log of a closed store ends before what its queues, index or checkpoint name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import StoreCorruptError
from rmqstore.cli import main
from support import damaged_store

HARMS = ("missing", "empty", "short", "zeros")
COUNT = damaged_store.COUNT


def last_log(root: Path) -> Path:
    """The last file in use."""
    return max(one for one in (root / "commitlog").iterdir() if any(one.read_bytes()))


def harm(root: Path, how: str) -> Path:
    path = last_log(root)
    if how == "missing":
        path.unlink()
    elif how == "zeros":
        path.write_bytes(bytes(damaged_store.LOG_SIZE))
    else:
        os.truncate(path, 0 if how == "empty" else 2000)
    return path


def is_between_others(path: Path) -> bool:
    """Whether a log file is missing before another: a reader names it itself."""
    return not path.exists() and max(path.parent.iterdir()) > path


def records_before(root: Path) -> int:
    return sum(
        one.physical_offset < int(last_log(root).name) for one in damaged_store.records(root)
    )


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(root)): one.read_bytes()
        for one in root.rglob("*")
        if one.is_file() and one.name != "lock"
    }


@pytest.fixture(params=[0, 2], ids=["none ahead", "two ahead"])
def closed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A closed store, with files behind the last in use as a broker makes them."""
    root = damaged_store.make(tmp_path / "store")
    stop = int(last_log(root).name) + damaged_store.LOG_SIZE
    for number in range(request.param):
        path = root / "commitlog" / f"{stop + number * damaged_store.LOG_SIZE:020d}"
        path.write_bytes(bytes(damaged_store.LOG_SIZE))
    return root


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("how", HARMS)
def test_reading_tells_and_shows_the_rest(closed: Path, how: str, *, configured: bool) -> None:
    kept = records_before(closed)
    path = harm(closed, how)
    with rmqstore.open(closed, config=damaged_store.CONFIG if configured else None) as store:
        if is_between_others(path):
            assert any(path.name in name for name in store.recovery.damaged_files)
        else:
            lost = store.recovery.ranges[-1]
            assert (lost.kind, lost.named) == ("damaged", False)
            assert lost.start >= int(path.name) or how == "short"
            assert f"the log ends at {lost.start}" in lost.reason
        assert sum(len(queue) for queue in store["Topic1"].values()) >= kept
    done = CliRunner().invoke(main, ["info", str(closed)])
    assert done.exit_code == 4
    assert "the log ends at" in done.stderr or is_between_others(path)
    for verb in (["cat"], ["find", "-k", "k0"]):
        done = CliRunner().invoke(main, [verb[0], str(closed), *verb[1:]])
        assert done.exit_code == 4
        assert done.stdout.count("\n") >= (kept if verb == ["cat"] else 1)


@pytest.mark.parametrize("mode", ["r+", "a"])
@pytest.mark.parametrize("how", HARMS)
def test_writing_is_refused_and_changes_nothing(closed: Path, how: str, mode: str) -> None:
    path = harm(closed, how)
    before = contents(closed)
    with pytest.raises(StoreCorruptError, match=r"the log ends at \d+, but .* names \d+") as caught:
        rmqstore.open(closed, mode)  # type: ignore[arg-type]
    assert caught.value.path == str(path)
    assert "put it back, or accept the loss with on_corruption='fill'" in str(caught.value)
    assert contents(closed) == before


@pytest.mark.parametrize("how", HARMS)
def test_fill_gives_no_lost_offset_away(closed: Path, how: str) -> None:
    kept = records_before(closed)
    harm(closed, how)
    ends = {0: COUNT // 2, 1: COUNT // 2}
    with rmqstore.open(closed, "r+", on_corruption="fill") as store:
        assert any(one.kind == "filled" for one in store.recovery.ranges)
    for turn in range(3):  # also over a close, and where nobody put anything
        with rmqstore.open(closed, "r+") as store:
            assert not store.recovery.ranges
            if turn == 0:
                continue
            for queue_id, end in ends.items():
                put = store.put("Topic1", b"new", queue_id=queue_id, keys="new")
                assert put.queue_offset == end + turn - 1
    for mode in ("r", "r+"):
        with rmqstore.open(closed, mode) as store:  # type: ignore[arg-type]
            total = store.scan("Topic1").count()
            assert total >= kept + 4
            for queue_id in ends:
                offsets, at = [], 0
                while (result := store.get("Topic1", queue_id, at, 10)).next_offset > at:
                    offsets += [one.queue_offset for one in result]
                    at = result.next_offset
                along = [one.queue_offset for one in store.scan("Topic1", queue_id)]
                assert offsets == along
                assert offsets[-2:] == [COUNT // 2, COUNT // 2 + 1]
            assert len(store.query("Topic1", "new")) == 4
            group = store.consumer("Topic1", group="g", start="first")
            assert sum(1 for _ in group) == total


def test_lost_offsets_stay_lost_when_the_queues_are_made_anew(closed: Path) -> None:
    harm(closed, "missing")
    with rmqstore.open(closed, "r+", on_corruption="fill") as store:
        first = store.put("Topic1", b"new", queue_id=0).queue_offset
    shutil.rmtree(closed / "consumequeue")
    with rmqstore.open(closed, "r+") as store:
        assert store["Topic1"][0][first].body == b"new"
        assert store.put("Topic1", b"next", queue_id=0).queue_offset == first + 1


@pytest.mark.parametrize("witness", ["consumequeue", "index", "checkpoint"])
def test_each_of_them_is_a_witness(closed: Path, witness: str) -> None:
    path = harm(closed, "missing")
    for name in {"consumequeue", "index"} - {witness}:
        shutil.rmtree(closed / name)
    if witness != "checkpoint":
        (closed / "checkpoint").unlink()
    with rmqstore.open(closed) as store:
        assert is_between_others(path) or witness in store.recovery.ranges[-1].reason
    with pytest.raises(StoreCorruptError, match=f"but {witness}"):
        rmqstore.open(closed, "r+")


@pytest.mark.parametrize("witness", ["consumequeue", "index"])
def test_a_log_and_a_checkpoint_may_both_be_older_copies(closed: Path, witness: str) -> None:
    older = closed.with_name("older")
    shutil.copytree(closed, older)
    with rmqstore.open(closed, "r+") as store:
        put = store.put("Topic1", b"newer", queue_id=0, keys="newer")
    for name in {"commitlog", "checkpoint", "consumequeue", "index"} - {witness}:
        path = closed / name
        if path.is_dir():
            shutil.rmtree(path)
            shutil.copytree(older / name, path)
        else:
            shutil.copy2(older / name, path)
    with rmqstore.open(closed) as store:
        lost = store.recovery.ranges[-1]
        assert lost.kind == "damaged"
        assert lost.start <= put.physical_offset < lost.stop
        assert f"but {witness}" in lost.reason
        assert store.scan("Topic1").count() == COUNT
    before = contents(closed)
    with pytest.raises(StoreCorruptError, match=f"but {witness}"):
        rmqstore.open(closed, "r+")
    assert contents(closed) == before
    with rmqstore.open(closed, "r+", on_corruption="fill") as store:
        assert store.recovery.ranges[-1].kind == "filled"
    with rmqstore.open(closed, "r+") as store:
        given = store.put("Topic1", b"again", queue_id=0)
        assert given.physical_offset > put.physical_offset


@pytest.mark.parametrize("noted", [True, False])
def test_a_damaged_last_unit_is_no_witness(closed: Path, *, noted: bool) -> None:
    """The log has the message that it stands for."""
    if not noted:
        (closed / "checkpoint").unlink()
    path = max((closed / "consumequeue" / "Topic1" / "0").iterdir())
    with path.open("r+b") as file:
        data = file.read()
        used = max(at for at in range(0, len(data), 20) if any(data[at : at + 20]))
        file.seek(used + 4)
        file.write(bytes([data[used + 4] ^ 1]))  # the physical offset: 16 MiB further
    with rmqstore.open(closed) as store:
        assert not store.recovery.ranges
    with rmqstore.open(closed, "r+") as store:
        assert sum(len(queue) for queue in store["Topic1"].values()) == COUNT


def test_a_killed_store_may_end_anywhere(closed: Path) -> None:
    damaged_store.killed(closed)
    path = harm(closed, "missing")
    with rmqstore.open(closed) as store:
        assert not store.recovery.ranges
    accepted = is_between_others(path)
    if accepted:  # the only witness
        before = contents(closed)
        with pytest.raises(rmqstore.IncompatibleStoreError, match="one is missing"):
            rmqstore.open(closed, "r+")
        assert contents(closed) == before
    with rmqstore.open(closed, "r+", on_corruption="fill" if accepted else "raise") as store:
        assert store.recovery.log_end <= int(path.name)


def test_delivered_messages_are_not_delivered_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = damaged_store.CONFIG.replace(message_delay_level="1s 1h")
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(3):
            store.put("Topic1", b"early %d" % number, queue_id=0, delay_level=1)
        consumer = store.consumer("Topic1", group="g")
        for _ in zip(range(3), consumer.follow(), strict=False):
            pass
        for number in range(80):
            store.put("Topic1", bytes(500), queue_id=0, delay_level=2 if number % 8 == 0 else 0)
    harm(root, "missing")
    with rmqstore.open(root, "r+", config=config, on_corruption="fill") as store:
        waiting = [one.message.queue_offset for one in store.delayed()]
        assert [m.body for m in store.scan("Topic1") if m.body.startswith(b"early")] == [
            b"early 0",
            b"early 1",
            b"early 2",
        ]
        put = store.put("Topic1", b"later", queue_id=0, delay_level=2)
        assert put.queue_offset >= 10
        assert len(store.delayed()) == len(waiting) + 1
