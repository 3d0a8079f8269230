"""The comparison of instruction counts: what is more, what is missing, what is not compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instructions import __main__ as instructions
from instructions import counting

pytestmark = pytest.mark.pure

KNOWN = {"put": 1000.0, "get[r]": 500.0}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """What the count finds; the file has ``KNOWN`` for this machine."""
    found = dict(KNOWN)
    monkeypatch.setattr(counting, "count", lambda: found)
    monkeypatch.setattr(instructions, "COUNTS", tmp_path / "counts.json")
    monkeypatch.setattr("sys.argv", ["instructions"])
    instructions.COUNTS.write_text(json.dumps({counting.key(): KNOWN}))
    return found


def test_the_same_passes(counted: dict[str, float]) -> None:
    counted["put"] = 1029.0
    assert instructions.main() == 0


@pytest.mark.parametrize(
    ("name", "now", "said"),
    [
        ("put", 1031.0, "put: 3.1% more"),
        ("put", None, "put: was not counted"),
        ("query[r]", 1.0, "query[r]: is not in counts.json"),
    ],
)
def test_what_is_wrong_fails(
    counted: dict[str, float],
    capsys: pytest.CaptureFixture[str],
    name: str,
    now: float | None,
    said: str,
) -> None:
    if now is None:
        del counted[name]
    else:
        counted[name] = now
    assert instructions.main() == 1
    assert said in capsys.readouterr().err


def test_fewer_is_named_and_passes(
    counted: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    counted["put"] = 900.0
    assert instructions.main() == 0
    assert "put: 10.0% fewer" in capsys.readouterr().err


def test_another_machine_is_not_compared(
    counted: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(counting, "key", lambda: "another one")
    counted["put"] = 9e9
    assert instructions.main() == 0
    assert "NOT COMPARED" in capsys.readouterr().out


def test_update_writes_and_keeps_those_of_others(
    counted: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "key", lambda: "another one")
    monkeypatch.setattr("sys.argv", ["instructions", "--update"])
    counted["put"] = 2000.0
    assert instructions.main() == 0
    written = json.loads(instructions.COUNTS.read_text())
    assert written["another one"]["put"] == 2000.0
    assert KNOWN in written.values()


def test_the_file_has_each_call_for_each_machine() -> None:
    path = Path(instructions.__file__).with_name("counts.json")
    calls = [set(counts) for counts in json.loads(path.read_text()).values()]
    assert calls
    assert all(names == calls[0] for names in calls)
    assert {"put", "put_many", "dispatch", "recovery", "get[r]", "query[r+]"} <= calls[0]


def test_a_count_is_the_difference_of_two(tmp_path: Path) -> None:
    found: dict[str, dict[int, list[int]]] = {}
    for times, total in ((100, 5_000), (300, 9_000), (300, 9_000), (300, 77_000)):
        file = tmp_path / f"{times}-{total}"
        file.write_text(f"desc: Trigger: Client Request: put={times}\n\nsummary: {total}\n")
        counting._read(file, found)
    assert {name: counting._each(name, counted) for name, counted in found.items()} == {"put": 20}


def test_what_is_too_much_once_is_counted_again(
    counted: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter([KNOWN | {"put": 1100.0}, KNOWN])
    monkeypatch.setattr(counting, "count", lambda: next(rounds))
    assert instructions.main() == 0
    assert next(rounds, None) is None
