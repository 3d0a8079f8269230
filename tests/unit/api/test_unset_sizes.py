"""Sizes of a configuration that nobody set: values of their fields, which the files decide."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import partial

import pytest

import rmqstore
from rmqstore import StoreConfig

SIZES = {
    "mapped_file_size_commit_log": 1 << 30,
    "mapped_file_size_consume_queue": 6_000_000,
    "mapped_file_size_consume_queue_ext": 48 << 20,
    "max_hash_slot_num": 5_000_000,
    "max_index_num": 20_000_000,
}
COPIES: dict[str, Callable[[StoreConfig], StoreConfig]] = {
    "replace": lambda config: config.replace(max_message_size=7).replace(max_message_size=4 << 20),
    "dataclasses": lambda config: dataclasses.replace(config, max_message_size=4 << 20),
    "pickle": lambda config: pickle.loads(pickle.dumps(config)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.fixture
def small(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        store.put("T", b"x", keys="k")
    return tmp_path / "store"


@pytest.mark.parametrize("name", SIZES)
def test_a_default_reads_as_its_number_and_is_not_the_number_set(name):
    unset, given = StoreConfig(), StoreConfig(**{name: SIZES[name]})
    assert getattr(unset, name) == getattr(given, name) == SIZES[name]
    assert unset != given
    assert repr(unset) != repr(given)
    assert f"{name}=DefaultSize({SIZES[name]})" in repr(unset)
    assert f"{name}={SIZES[name]}," in repr(given)
    assert f"{getattr(unset, name)}" == str(SIZES[name])
    assert StoreConfig() == unset
    assert hash(StoreConfig()) == hash(unset)
    assert given.replace(**{name: getattr(unset, name)}) == unset


@pytest.mark.parametrize("how", COPIES)
def test_copies_are_equal_and_open_the_same_way(small, tmp_path, how):
    conf = tmp_path / "broker.conf"
    conf.write_text("diskMaxUsedSpaceRatio=80\n")
    for config in (StoreConfig(), StoreConfig.from_file(conf)):
        copied = COPIES[how](config)
        assert copied == config
        assert repr(copied) == repr(config)
        for each in (config, copied):
            with rmqstore.open(small, "r+", config=each) as store:
                assert store.config.mapped_file_size_commit_log == 16 << 20
                assert store.config.mapped_file_size_consume_queue == 120_000
                assert store.config.max_index_num == 200_000
                assert "Default" not in repr(store.config)


def test_a_file_without_sizes_is_a_configuration_without(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerId=0\n")
    assert StoreConfig.from_file(conf) == StoreConfig(file_reserved_time=72)
    conf.write_text("mappedFileSizeCommitLog=1073741824\n")
    assert StoreConfig.from_file(conf) != StoreConfig(file_reserved_time=72)


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("mappedFileSizeCommitLog", 1 << 30, "mapped_file_size_commit_log"),
        ("mappedFileSizeConsumeQueue", 300_000, "mapped_file_size_consume_queue"),
    ],
)
def test_a_wrong_size_is_named_in_the_words_of_who_set_it(small, tmp_path, key, value, field):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{key}={value}\n")
    openings = [partial(rmqstore.open, small, mode) for mode in ("r+", "a")]
    for opening in (*openings, partial(rmqstore.serve, small)):
        given = StoreConfig(**{field: value})
        for config, named, other in [(conf, key, field), (given, field, key)]:
            with pytest.raises(rmqstore.IncompatibleStoreError) as raised:
                opening(config=config)
            assert f"{named} (" in str(raised.value)
            assert str(value) in str(raised.value)
            assert other not in str(raised.value)


def test_other_fields_leave_the_sizes_to_the_files(small):
    with rmqstore.open(small, "r+", config=StoreConfig(flush_disk_type="SYNC_FLUSH")) as store:
        assert store.config.flush_disk_type == "SYNC_FLUSH"
        assert store.config.mapped_file_size_commit_log == 16 << 20
    with pytest.raises(rmqstore.IncompatibleStoreError):
        rmqstore.open(small, "r+", config=StoreConfig(mapped_file_size_commit_log=1 << 30))
