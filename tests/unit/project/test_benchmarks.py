"""Each public call that reads or writes has a benchmark in each of its modes, or a reason."""

from __future__ import annotations

import enum
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import covered
import rmqstore
from covered import COVERED, NOT_MEASURED, READING, Covered, reads, writes

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]

# What every class has, or pickling and `with` ask for: nothing that reads or writes.
PLAIN = {
    *("__init__", "__repr__", "__enter__", "__exit__", "__new__", "__eq__", "__hash__"),
    *("__reduce__", "__reduce_ex__", "__reduce_cython__", "__setstate_cython__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__ne__", "__pyx_vtable__"),
    *("__setstate__", "__getstate__", "__copy__", "__deepcopy__", "__dir__", "__del__"),
    *("__buffer__", "__release_buffer__"),  # from 3.12 on
}
# Calls that write, and those of no opened file: one mode, or none.
WITHOUT_MODES = re.compile(
    r"[a-z]\w*(?<!open)$|\w+\.(a?put\w*|append|flush|wait_durable|create_\w+|delete_\w+|commit|retry)$"
)


def public_calls() -> dict[str, bool]:
    """Name of each public function, method and property; whether it is a property."""
    found = {}
    for name in rmqstore.__all__:
        value = getattr(rmqstore, name)
        if not inspect.isclass(value):
            found[name] = False
        elif not issubclass(value, BaseException | enum.Enum):
            found |= {f"{name}.{member}": kind for member, kind in members(value)}
    return found


def members(kind: type) -> Iterator[tuple[str, bool]]:
    """Yield the members that a class and those of ours that it extends have."""
    for base in kind.__mro__:
        if not base.__module__.startswith("rmqstore"):
            continue
        for name, value in vars(base).items():
            special = name.startswith("__") and name.endswith("__") and name not in PLAIN
            if (special or not name.startswith("_")) and callable(value):
                yield name, False
            elif not name.startswith("_") and (
                inspect.isdatadescriptor(value) or isinstance(value, classmethod | staticmethod)
            ):
                yield name, inspect.isdatadescriptor(value)


def benchmarks() -> dict[str, list[str]]:
    """Function of each benchmark that pytest finds, with its parameters."""
    command = [sys.executable, "-m", "pytest", "bench", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=TOP, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for name, parameters in re.findall(r"::(\w+)(?:\[(.+)\])?$", done.stdout, re.MULTILINE):
        found.setdefault(name, []).append(parameters)
    return found


def excused(name: str, *, is_property: bool) -> bool:
    owner = name.partition(".")[0]
    return bool({name, owner} & NOT_MEASURED.keys()) or (
        is_property and f"{owner}.*" in NOT_MEASURED
    )


def problems(found: dict[str, list[str]]) -> list[str]:
    """What the tables lack, or name without need."""
    calls = public_calls()
    said = []
    for name, is_property in calls.items():
        if name not in COVERED and not excused(name, is_property=is_property):
            said.append(f"{name} has neither a benchmark nor a reason")
        if name in COVERED and name in NOT_MEASURED:
            said.append(f"{name} has a benchmark and a reason to have none")
    owners = {name.partition(".")[0] for name in calls}
    for name in COVERED.keys() | NOT_MEASURED.keys():
        if name.removesuffix(".*") not in calls.keys() | owners:
            said.append(f"{name} is not public")
    for name, (functions, modes) in COVERED.items():
        if not functions:
            said.append(f"{name} names no benchmark")
        if not WITHOUT_MODES.match(name) and name != "Message.detach" and modes != READING:
            said.append(f"{name} reads, and is not measured in {READING}")
        for function in functions:
            have = {part for one in found.get(function, ()) for part in one.split("-")}
            if function not in found:
                said.append(f"{name}: there is no {function}")
            elif not have >= set(modes):
                said.append(f"{name}: {function} does not run in {modes}")
    return said


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    if not (TOP / "bench").exists():
        pytest.skip("no benchmarks in this tree")
    return benchmarks()


def test_every_public_call_is_measured(found: dict[str, list[str]]) -> None:
    assert len(public_calls()) > 100
    assert problems(found) == []


def test_every_reason_is_one() -> None:
    assert all(len(reason) > 10 for reason in NOT_MEASURED.values())


def test_every_benchmark_is_described(found: dict[str, list[str]]) -> None:
    page = (TOP / "bench/workloads.md").read_text()
    assert [name for name in found if not re.search(rf"`{name}\b", page)] == []


@pytest.mark.parametrize(
    ("name", "entry", "problem"),
    [
        ("MessageStore.get", None, "MessageStore.get has neither a benchmark nor a reason"),
        ("Queue.__reversed__", None, "Queue.__reversed__ has neither a benchmark nor a reason"),
        ("Scan.count", reads("bench_none"), "Scan.count: there is no bench_none"),
        ("open", writes("bench_open"), f"open reads, and is not measured in {READING}"),
        ("Queue.units", reads("bench_get"), f"Queue.units: bench_get does not run in {READING}"),
        ("crc32", writes(), "crc32 names no benchmark"),
        ("Queue.gone", writes("bench_get"), "Queue.gone is not public"),
    ],
)
def test_what_is_wrong_is_found(
    found: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    entry: Covered | None,
    problem: str,
) -> None:
    if entry is None:
        monkeypatch.delitem(covered.COVERED, name)
    else:
        monkeypatch.setitem(covered.COVERED, name, entry)
    assert problem in problems(found)


def test_a_property_without_a_reason_is_found(
    found: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(covered.NOT_MEASURED, "Message.*")
    assert "Message.body has neither a benchmark nor a reason" in problems(found)
