"""consumerFilter.json and its Bloom filter: loaded as a broker does, registered, written back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqstore.brokerfiles.bloom import BloomFilter, murmur3_128
from rmqstore.brokerfiles.consumerfilters import ConsumerFilterTable
from rmqstore.errors import StoreCorruptError

pytestmark = pytest.mark.pure

CONFIG = Path(__file__).parents[2] / "data" / "config"
NOW = 1_800_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(CONFIG / "broker", tmp_path / "config")
    return tmp_path


def test_bits_of_a_broker() -> None:
    bloom = BloomFilter()
    assert (bloom.positions_each, bloom.bits) == (3, 112)
    assert bloom.positions("sql-group", "payments") == [72, 9, 59]


def test_murmur_of_known_texts() -> None:
    """Published values of MurmurHash3_x64_128 with seed 0."""
    assert murmur3_128(b"") == (0, 0)
    assert murmur3_128(b"hello") == (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)
    assert murmur3_128(b"hello, world") == (0x342FAC623A5EBC8E, 0x4CDCBC079642414D)


def test_reads_and_writes_a_broker_s(root: Path) -> None:
    path = root / "config" / "consumerFilter.json"
    before = path.read_bytes()
    table = ConsumerFilterTable.load(root, now=NOW)
    (one,) = table
    assert (one.consumer_group, one.topic, one.dead) == ("sql-group", "payments", True)
    assert one.expression == "amount > 500 AND region = 'eu'"
    assert one.belongs_to(BloomFilter())
    table.save(now=one.dead_time)
    assert path.read_bytes() == before
    table.save(now=one.dead_time + 24 * 3_600_000)  # dead for a day
    assert json.loads(path.read_text()) == {"filterDataByTopic": {}}


def test_bits_of_another_filter_discard_all(root: Path) -> None:
    assert len(ConsumerFilterTable.load(root, BloomFilter(20, 64), now=NOW)) == 0


def test_who_was_there_is_dead_when_it_is_loaded(tmp_path: Path) -> None:
    table = ConsumerFilterTable(tmp_path)
    assert table.register("g", "T", "a > 1", client_version=5, now=NOW)
    table.save(now=NOW)
    for later, dead in ((NOW + 10_000, NOW), (NOW + 60_000, NOW + 30_000)):
        one = ConsumerFilterTable.load(tmp_path, now=later).get("T", "g")
        assert one is not None
        assert (one.dead_time, one.born_time, one.client_version) == (dead, NOW, 5)


def test_register_as_a_broker_does(tmp_path: Path) -> None:
    table = ConsumerFilterTable(tmp_path)
    assert table.register("g", "T", "a > 1", client_version=5, now=NOW)
    assert not table.register("g", "T", "a > 2", client_version=4, now=NOW + 1)  # older
    assert not table.register("g", "T", "a > 1", client_version=5, now=NOW + 1)
    table.unregister("g", now=NOW + 2)
    one = table.get("T", "g")
    assert one is not None
    assert one.dead
    assert table.register("g", "T", "a > 1", client_version=5, now=NOW + 3)  # again there
    one = table.get("T", "g")
    assert one is not None
    assert (one.dead, one.born_time) == (False, NOW)
    assert table.register("g", "T", "a > 1", client_version=6, now=NOW + 4)  # the same
    one = table.get("T", "g")
    assert one is not None
    assert (one.born_time, one.client_version) == (NOW, 6)
    assert table.register("g", "T", "a > 3", client_version=7, now=NOW + 5)  # another: begins anew
    one = table.get("T", "g")
    assert one is not None
    assert (one.born_time, one.expression) == (NOW + 5, "a > 3")
    assert len(table) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"filterDataByTopic":[]}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":[]}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":7}}}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":[-1]}}}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bornTime":"x"}}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"expression":5}}}}}',
    ],
)
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "consumerFilter.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StoreCorruptError, match="consumerFilter"):
        ConsumerFilterTable.load(tmp_path, now=NOW)
    path.with_suffix(".json.bak").write_text('{"filterDataByTopic":{}}')
    assert len(ConsumerFilterTable.load(tmp_path, now=NOW)) == 0
