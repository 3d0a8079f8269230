"""A release has no more than users need."""

from __future__ import annotations

from rmqstore import _core


def test_a_release_has_no_fuzzer() -> None:
    fuzzer = {name for name in dir(_core) if name.startswith("_fuzz")}
    assert fuzzer == ({"_fuzz", "_fuzz_input"} if _core.FAULTS else set())
