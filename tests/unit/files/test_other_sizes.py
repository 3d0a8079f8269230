"""A configuration with other sizes than the files: refused to write, and read by the files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore import IncompatibleStoreError, StoreConfig
from support import oracle_store

SIZES = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 400,
    "mapped_file_size_consume_queue_ext": 4096,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
KEYS = {
    "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
    "mapped_file_size_consume_queue_ext": "mappedFileSizeConsumeQueueExt",
    "max_hash_slot_num": "maxHashSlotNum",
    "max_index_num": "maxIndexNum",
}
OTHERS = [
    ("mapped_file_size_commit_log", 4096),
    ("mapped_file_size_commit_log", 16384),
    ("mapped_file_size_consume_queue", 200),
    ("mapped_file_size_consume_queue", 300_000),
    ("mapped_file_size_consume_queue_ext", 8192),
    ("max_hash_slot_num", 20),
    ("max_index_num", 50),
    ("max_index_num", 30),
]


def make(root: Path, count: int, **more: int) -> Path:
    config = StoreConfig(enable_consume_queue_ext=True, **(SIZES | more))
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(count):
            store.put("T", b"x" * 50, queue_id=number % 2, keys=f"k{number}", tags="A")
    return root


@pytest.fixture(scope="module", params=[5, 120])
def made(request, tmp_path_factory):
    """One file of each kind, or several."""
    return make(tmp_path_factory.mktemp("made") / "store", request.param), request.param


@pytest.fixture
def root(made, tmp_path):
    return Path(shutil.copytree(made[0], tmp_path / "store"))


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize(("field", "value"), OTHERS)
@pytest.mark.parametrize("mode", ["r+", "a"])
def test_writing_names_both_sizes_and_the_key(root, tmp_path, mode, field, value):
    before = contents(root)
    sizes = {"enable_consume_queue_ext": True, **{field: value}}
    if field.startswith("max_"):
        sizes = {"max_hash_slot_num": 10, "max_index_num": 40} | sizes
    with pytest.raises(IncompatibleStoreError, match=field) as refused:
        rmqstore.open(root, mode, config=StoreConfig(**sizes))
    text = str(refused.value)
    if field.startswith("mapped"):
        assert f"({SIZES[field]}, not {value})" in text
    conf = tmp_path / "broker.conf"
    lines = [f"{KEYS.get(name, 'enableConsumeQueueExt')}={one}" for name, one in sizes.items()]
    conf.write_text("\n".join(lines).replace("True", "true"))
    with pytest.raises(IncompatibleStoreError, match=KEYS[field]) as refused:
        rmqstore.open(root, mode, config=conf)
    assert "_" not in str(refused.value).partition(": ")[2]
    assert contents(root) == before


@pytest.mark.parametrize(("field", "value"), OTHERS)
def test_reading_goes_by_the_files_and_says_so(root, made, field, value, caplog):
    sizes = {"enable_consume_queue_ext": True, **{field: value}}
    if field.startswith("max_"):
        sizes = {"max_hash_slot_num": 10, "max_index_num": 40} | sizes
    with rmqstore.open(root, config=StoreConfig(**sizes)) as store:
        assert sum(len(queue) for queue in store["T"].values()) == made[1]
        assert len(store.query("T", "k3", index_only=True)) == 1
        [note] = [one for one in store.recovery.notes if field in one]
    assert str(value) in note
    assert str(SIZES[field]) in note
    assert note in caplog.text


def test_sizes_that_nobody_set(root, made):
    with rmqstore.open(root, "r+", config=StoreConfig(enable_consume_queue_ext=True)) as store:
        assert {name: getattr(store.config, name) for name in SIZES} == SIZES
        assert store.recovery.notes == ()
        store.put("T", b"more", queue_id=0, tags="A", keys="more")
    lengths = {path.stat().st_size for path in root.glob("consumequeue_ext/*/*/*")}
    assert lengths == {4096}


def test_the_real_brokers_own_layout(broker_copy, tmp_path):
    root = broker_copy("broker-clean", tmp_path).root
    before = oracle_store.snapshot(root)
    for name, value in (("mappedFileSizeConsumeQueue", 300_000), ("maxIndexNum", 5000)):
        conf = tmp_path / "broker.conf"
        conf.write_text(f"{name}={value}\nmaxHashSlotNum=1000\n")
        with pytest.raises(IncompatibleStoreError, match=name):
            rmqstore.open(root, "r+", config=conf)
    assert {k: v[3] for k, v in oracle_store.snapshot(root).items() if k != "lock"} == {
        k: v[3] for k, v in before.items() if k != "lock"
    }


def test_sizes_that_no_file_shows_are_said(root, made):
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "consumequeue_ext")
    with rmqstore.open(root, "r+") as store:
        taken = [one for one in store.recovery.notes if "mapped_file_size_consume_queue" in one]
        assert store.config.mapped_file_size_consume_queue == 6_000_000
    assert len(taken) == 1


@pytest.mark.parametrize("seed", range(12))
def test_a_configuration_drawn_against_the_files(tmp_path, seed):
    """Refused, and nothing changed; or the files keep their size, and that is in force."""
    draw = random.Random(seed)
    pick = {
        "mapped_file_size_commit_log": [4096, 8192, 16384],
        "mapped_file_size_consume_queue": [200, 400, 800],
        "mapped_file_size_consume_queue_ext": [4096, 8192],
        "max_hash_slot_num": [10, 20],
        "max_index_num": [40, 80],
    }
    real = {name: draw.choice(values) for name, values in pick.items()}
    root = make(tmp_path / "store", draw.choice([3, 5, 40, 80, 120]), **real)
    for _ in range(6):
        asked = {name: draw.choice(values) for name, values in pick.items() if draw.random() < 0.5}
        before = contents(root)
        config = StoreConfig(enable_consume_queue_ext=True, **asked)
        try:
            with rmqstore.open(root, "r+", config=config) as store:
                assert {name: getattr(store.config, name) for name in real} == real, asked
        except IncompatibleStoreError:
            assert any(real[name] != value for name, value in asked.items()) or (
                ("max_hash_slot_num" in asked) != ("max_index_num" in asked)
            )
            assert contents(root) == before
    for name, size in (("commitlog", "commit_log"), ("consumequeue", "consume_queue")):
        lengths = {path.stat().st_size for path in root.glob(f"{name}/**/*") if path.is_file()}
        assert lengths == {real[f"mapped_file_size_{size}"]}
