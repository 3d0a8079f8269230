"""An opening that fails leaves every file as it was, whatever fails and how far it has come."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from crash.checks import output_of
from rmqstore.consume.progress import GroupProgress
from rmqstore.directory import lock_owner
from rmqstore.serve.network.work import Work
from rmqstore.services import schedule
from rmqstore.services.retention import Retention
from support import oracle_store
from support.forked_child import in_child

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)
SEED = int(os.environ.get("RMQSTORE_SEED", "24"))
Tree = dict[str, tuple[int, int, int, str]]


def fill(root: Path, *, close: bool) -> None:
    store = rmqstore.open(root, "a", config=CONFIG)
    store.create_topic("orders", 2)
    for number in range(600):
        store.put("orders", b"o%d-" % number * 20, queue_id=number % 2, keys=f"k{number}")
    for number in range(20):
        store.put("orders", b"late %d" % number, queue_id=0, delay_level=18)
        store.begin("orders", b"half %d" % number, queue_id=1)
    store.create_group("G")
    with store.consumer("orders", group="G") as orders:
        next(iter(orders))
        orders.commit(sync=True)
    store.flush()
    if close:
        store.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("stores")
    fill(top / "closed", close=True)
    assert in_child(lambda: fill(top / "killed", close=False)) == "None"
    assert (top / "killed" / "abort").exists()
    return {name: top / name for name in ("closed", "killed")}


@pytest.fixture(params=["closed", "killed"])
def root(request: pytest.FixtureRequest, stores: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(stores[request.param], tmp_path / "store")
    return tmp_path / "store"


def tree(root: Path) -> Tree:
    """Names, modes, sizes, times and bytes of files; of directories not the times."""
    found = oracle_store.snapshot(root)
    return {
        name: one if (root / name).is_file() else (*one[:2], 0, one[3])
        for name, one in found.items()
    }


def without_times(found: Tree) -> dict[str, tuple[int, int, str]]:
    return {name: (mode, size, digest) for name, (mode, size, _, digest) in found.items()}


OPENERS: dict[str, Callable[[Path], object]] = {
    "r+": lambda root: rmqstore.open(root, "r+", config=CONFIG),
    "a": lambda root: rmqstore.open(root, "a"),
    "full": lambda root: rmqstore.open(root, "r+", verify="full", on_corruption="fill"),
    "serve": lambda root: rmqstore.serve(root, verify="full", on_corruption="fill"),
}
TORN = [
    "config/topics.json",
    "config/consumerOffset.json",
    "config/subscriptionGroup.json",
    "config/delayOffset.json",
    "rmqstore-deleted.json",
]


@pytest.mark.parametrize("name", TORN)
@pytest.mark.parametrize("opener", OPENERS)
def test_a_torn_file_is_refused_before_any_change(root: Path, name: str, opener: str):
    for torn in (root / name, root / f"{name}.bak"):
        torn.write_bytes(b'{"offsetTable":{')
    before = tree(root)
    with pytest.raises(rmqstore.StoreCorruptError) as caught:
        OPENERS[opener](root)
    assert Path(caught.value.path).name.startswith(Path(name).name)
    assert tree(root) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_without_a_lock_file_none_is_left(root: Path, opener: str):
    (root / "lock").unlink()
    (root / "config" / "topics.json").write_bytes(b"{")
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    before = tree(root)
    with pytest.raises(rmqstore.StoreCorruptError):
        OPENERS[opener](root)
    assert tree(root) == before


@pytest.mark.parametrize("lock", [b"", b"lo", b"lock"])
def test_a_log_that_is_refused(root: Path, lock: bytes):
    (root / "lock").write_bytes(lock)
    file = sorted((root / "commitlog").iterdir())[0]
    with file.open("r+b") as opened:
        opened.seek(3000)
        opened.write(b"\xff" * 700)
    before = tree(root)
    with pytest.raises(rmqstore.StoreCorruptError, match="on_corruption='fill'"):
        rmqstore.open(root, "r+", verify="full")
    (root / "commitlog" / "foreign").touch()
    with pytest.raises(rmqstore.IncompatibleStoreError):
        rmqstore.open(root, "r+", on_corruption="fill")
    (root / "commitlog" / "foreign").unlink()
    assert tree(root) == before


# A start that fails behind the recovery


def at_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "every", failing)


def at_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retention, "start", failing)


def at_the_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "find_delivered", failing)


def at_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule.Schedule, "begin", failing)


def at_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.store.size_notes", failing)


def failing(*_: object, **__: object) -> None:
    raise OSError(5, "is made to fail")


FAILURES = [at_retention, at_the_delays, at_their_thread, at_the_sizes]


@pytest.mark.parametrize(
    ("fail", "opener"),
    [*((fail, opener) for fail in FAILURES for opener in OPENERS), (at_the_gateway, "serve")],
)
def test_a_start_that_fails_behind_the_recovery(
    root: Path, monkeypatch: pytest.MonkeyPatch, fail: Callable[..., None], opener: str
):
    was_closed = not (root / "abort").exists()
    before = tree(root)
    with monkeypatch.context() as patched:
        fail(patched)
        with pytest.raises(OSError, match="is made to fail"):
            OPENERS[opener](root)
    after = tree(root)
    assert lock_owner.lock_owner(root) is None
    # Pages ahead of the log's end are touched, and stay zeros.
    assert without_times(after) == without_times(before)
    assert after["checkpoint"] == before["checkpoint"]
    assert (root / "abort").exists() is not was_closed
    with rmqstore.open(root, "r") as store:
        assert store.recovery.clean is was_closed
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.clean is was_closed
        assert store["orders"][0].max_offset == 300
        assert len(store.delayed()) == 20
        assert len(store.in_doubt()) == 20
        assert store.offsets["orders", "G"] == {0: 1}


def test_what_was_acknowledged_meanwhile_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that puts before another one fails: the store counts as killed."""
    real = schedule.Schedule.begin

    def puts_and_fails(service: schedule.Schedule) -> None:
        real(service)
        service._core.put_stored("orders", 0, b"meanwhile", "")
        failing()

    with monkeypatch.context() as patched:
        patched.setattr(schedule.Schedule, "begin", puts_and_fails)
        with pytest.raises(OSError, match="is made to fail"):
            rmqstore.open(root, "r+")
    assert (root / "abort").exists()
    with rmqstore.open(root, "r+") as store:
        assert not store.recovery.clean
        assert store["orders"][0][-1].body == b"meanwhile"


def test_services_write_nothing_when_their_start_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[object] = []
    monkeypatch.setattr(GroupProgress, "save", saved.append)
    monkeypatch.setattr(schedule.Schedule, "save", saved.append)
    at_their_thread(monkeypatch)
    with pytest.raises(OSError, match="is made to fail"):
        rmqstore.open(root, "r+")
    assert saved == []


# Random damage, waiting services, and every way of opening


def zeroed(file: Path, rng: random.Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        at = rng.randrange(max(1, size))
        opened.seek(at)
        opened.write(bytes(min(rng.choice([20, 500, 4096, 70000]), size - at)))


def flipped(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)


def cut(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size + 1))


def emptied(file: Path, rng: random.Random) -> None:
    file.write_bytes(b"")


def taken(file: Path, rng: random.Random) -> None:
    file.unlink()


@pytest.mark.parametrize("number", range(24))
def test_random_damage(root: Path, number: int):
    """Opened or refused; refused, nothing is changed, and opened, it lists what is there."""
    rng = random.Random(f"{SEED}-{number}-{(root / 'abort').exists()}")
    for _ in range(rng.choice([1, 1, 2, 3])):
        files = sorted(one for one in root.rglob("*") if one.is_file() and one.name != "abort")
        rng.choice([zeroed, zeroed, flipped, cut, emptied, taken])(rng.choice(files), rng)
    arguments = {
        "on_corruption": rng.choice(["raise", "fill"]),
        "verify": rng.choice(["tail", "full"]),
        "config": rng.choice([None, CONFIG]),
    }
    serving = rng.random() < 0.3
    before = tree(root)
    refused: Exception | None = None
    with contextlib.ExitStack() as opened:
        try:
            if serving:
                store = opened.enter_context(rmqstore.serve(root, **arguments)).store
            else:
                store = opened.enter_context(rmqstore.open(root, "r+", **arguments))
        except (rmqstore.StoreError, OSError) as error:
            refused = error
        else:
            store.delayed()
            store.in_doubt()
            store.topics  # noqa: B018 - is made anew by each look
            assert store.put("orders", b"goes on", queue_id=0)
    if refused is not None:
        after = tree(root)
        changed = [one for one in sorted({*before, *after}) if before.get(one) != after.get(one)]
        assert changed == [], (SEED, arguments, serving, refused)


FULL_DISK = """
    import resource, signal, sys, rmqstore
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        rmqstore.open(sys.argv[1], sys.argv[2])
    except OSError as error:
        print(error)
"""


@pytest.mark.parametrize("lock", ["missing", "empty", "whole"])
def test_nothing_can_be_written(stores: dict[str, Path], tmp_path: Path, lock: str):
    """Not the text of `lock`, say, which a copy of a store may lack."""
    root = tmp_path / "store"
    shutil.copytree(stores["closed"], root)
    if lock == "missing":
        (root / "lock").unlink()
    elif lock == "empty":
        (root / "lock").write_bytes(b"")
    before = without_times(tree(root))
    for mode in ("r+", "a"):
        assert output_of(FULL_DISK, root, mode) or lock == "whole"
        if lock != "whole":
            assert without_times(tree(root)) == before
    with rmqstore.open(root, "r") as store:
        assert store.recovery.clean == (lock != "whole")
