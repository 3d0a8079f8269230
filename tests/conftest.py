"""Hypothesis profiles, and the stores that a real broker left behind."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import archives

for _name, _examples in {"sanitizer": 8, "dev": 25, "ci": 200, "nightly": 5000}.items():
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

DATA = Path(__file__).parent / "data"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long all cases of a parametrized test but the first and the last."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("long"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for each in cases.values():
        for item in each[1:-1]:
            item.add_marker(pytest.mark.long)


@dataclass(frozen=True)
class DumpRow:
    """One unit of one queue and its record, as the broker itself read them back."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    record_topic: str
    record_queue_id: int
    record_queue_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    msg_id: str
    born_address: str
    body_crc: int
    body_sha1: bytes  # of the body as stored
    properties: str  # "{name=value, name=value}", sorted by name

    @classmethod
    def parse(cls, line: str) -> DumpRow:
        column = line.split("\t")
        return cls(
            column[0],
            *(int(text) for text in column[1:6]),
            column[6],
            *(int(text) for text in column[7:12]),
            column[12],
            column[13],
            int(column[14]),
            base64.b64decode(column[15], validate=True),
            column[16],
        )


@dataclass(frozen=True)
class SentRow:
    """One send, as the client saw it; "null" is ``None``."""

    kind: str
    topic: str
    queue_id: int
    queue_offset: int
    uniq_key: str | None
    msg_id: str | None
    tags: str | None
    keys: str | None
    status: str
    body: str  # base64, or lenN above 256 bytes

    @classmethod
    def parse(cls, line: str) -> SentRow:
        kind, topic, queue_id, queue_offset, *rest, status, body = line.split("\t")
        texts = (None if text == "null" else text for text in rest)
        return cls(kind, topic, int(queue_id), int(queue_offset), *texts, status, body)


def property_text(properties: dict[str, str]) -> str:
    """Properties as the dump shows them: Java's ``TreeMap.toString``."""
    names = sorted(properties, key=lambda name: name.encode("utf-16-be"))
    return "{" + ", ".join(f"{name}={properties[name]}" for name in names) + "}"


@dataclass(frozen=True)
class BrokerStore:
    """A store that a real 4.9.3 broker left: do not write to it, ``broker_copy`` makes a copy."""

    name: str
    root: Path
    dump: list[DumpRow]
    sent: list[SentRow]


@dataclass(frozen=True)
class FiveRow:
    """One message of the 5.3.3 store, as its own store read it back."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    compression: str  # "none", "LZ4", "ZSTD", "ZLIB"
    key: str
    body_sha1: bytes  # of the body before compression

    @classmethod
    def parse(cls, line: str) -> FiveRow:
        column = line.split("\t")
        numbers = (int(text) for text in column[1:5])
        return cls(column[0], *numbers, *column[5:7], base64.b64decode(column[7], validate=True))


@dataclass(frozen=True)
class FiveStore:
    """A store that a real 5.3.3 left: not to be written to."""

    root: Path
    dump: list[FiveRow]


def _unpack(name: str, target: Path) -> Path:
    archives.unpack(DATA / "stores" / f"{name}.tar.xz", target)
    return target / name


def _rows(path: Path, parse: Callable[[str], object]) -> list:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [parse(line) for line in lines if line]


@pytest.fixture
def undelivered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores opened for writing leave what is delayed as it is: for who compares every byte."""
    from rmqstore.services.schedule import Schedule
    from support.undelivered import undelivered

    monkeypatch.setattr(Schedule, "_correct_times", lambda *arguments: None)
    with undelivered():
        yield


@pytest.fixture(scope="session")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], BrokerStore]:
    """Return a function that unpacks a broker's store once a session, holes as holes."""
    unpacked: dict[str, BrokerStore] = {}

    def unpack(name: str) -> BrokerStore:
        if name not in unpacked:
            top = _unpack(name, tmp_path_factory.mktemp("stores"))
            unpacked[name] = BrokerStore(
                name,
                top / "store",
                _rows(top / "dump.tsv", DumpRow.parse),
                _rows(top / "sent.tsv", SentRow.parse),
            )
        return unpacked[name]

    return unpack


@pytest.fixture(scope="session")
def five_store(tmp_path_factory: pytest.TempPathFactory) -> FiveStore:
    """The store of a real 5.3.3, unpacked once a session."""
    top = _unpack("five", tmp_path_factory.mktemp("stores"))
    return FiveStore(top / "store", _rows(top / "dump.tsv", FiveRow.parse))


@pytest.fixture(scope="session")
def broker_copy(broker_store: Callable[[str], BrokerStore]) -> Callable[[str, Path], BrokerStore]:
    """Return a function that copies a broker's store into a directory, to be written to."""

    def copy(name: str, tmp_path: Path) -> BrokerStore:
        store = broker_store(name)
        target = tmp_path / name
        if shutil.which("cp"):
            subprocess.run(["cp", "-a", "--sparse=always", store.root, target], check=True)
        else:
            shutil.copytree(store.root, target)
        return BrokerStore(name, target, store.dump, store.sent)

    return copy
