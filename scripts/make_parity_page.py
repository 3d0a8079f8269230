"""Write docs/parity.md: each method and each setting of 4.9.3's store, and what becomes of it here.

With ``--check`` nothing is written: the exit code is 1 if the page is not up to date.  The rows
are in ``parity_rows.py`` and in ``rmqstore.config``; the counts of comparisons in
``tests/interop/counts.json``, which ``make parity`` writes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from parity_rows import FIELDS, INTERFACE, SETTINGS, Method
from rmqstore.config.fields import Spec, specs_of
from rmqstore.config.reasons import MEANINGLESS, REFUSED
from rmqstore.config.store_config import StoreConfig

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/parity.md"
COUNTS = ROOT / "tests/interop/counts.json"

HEAD = """# Beside 4.9.3's store, method by method

What becomes here of each method of RocketMQ 4.9.3's `MessageStore` and of each setting of its
`MessageStoreConfig`: it works, as a test shows; it is refused; or it has no meaning, for the reason
given. The numbers are comparisons with the real store, in one run of `make parity`, which writes
this page anew.
"""


def fields() -> dict[str, Spec]:
    """Return the settings of 4.9.3's store, in its order."""
    return {name: spec for name, spec in specs_of(StoreConfig).items() if not spec.ours}


def tests_of_field(name: str) -> tuple[str, ...]:
    """Return the tests of a setting in effect."""
    return FIELDS.get(name, (f"{SETTINGS}test_{name}",))


def shown(tests: tuple[str, ...], counts: dict[str, int]) -> tuple[str, str]:
    """Return cells: the tests, and their comparisons with the real store."""
    names = ", ".join(
        f"[{test.partition('::')[2]}](../{test.partition('::')[0]})" for test in tests
    )
    count = sum(counts.get(test, 0) for test in tests)
    return names, f"{count:,}" if count else ""


def method_row(method: Method, counts: dict[str, int]) -> str:
    name = f"`{method.name}({', '.join(method.arguments.split(',')) if method.arguments else ''})`"
    if method.because:
        return f"| {name} | no meaning: {method.because} | | |"
    tests, count = shown(method.tests, counts)
    return f"| {name} | {method.does} | {tests} | {count} |"


def field_row(name: str, spec: Spec, counts: dict[str, int]) -> str:
    tests, count = shown(tests_of_field(name), counts)
    return f"| `{spec.java}` | works: `{name}` | {tests} | {count} |"


def page() -> str:
    """Return the whole page."""
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    settings = fields()
    working = sum(not method.because for method in INTERFACE)
    explained = {key: f"no meaning: {reason}" for key, (_, reason) in MEANINGLESS.items()} | {
        key: f"refused with `ValueError`: {reason}" for key, (_, reason) in REFUSED.items()
    }
    lines = [
        HEAD,
        f"## The {len(INTERFACE)} methods of `MessageStore`",
        "",
        f"{working} work, {len(INTERFACE) - working} have no meaning.",
        "",
        "| method | here | test | compared |",
        "|---|---|---|--:|",
        *(method_row(method, counts) for method in INTERFACE),
        "",
        f"## The {len(settings) + len(explained)} settings of `MessageStoreConfig`",
        "",
        f"{len(settings)} work, {len(REFUSED)} is refused, {len(MEANINGLESS)} have no meaning.",
        "",
        "| setting | here | test | compared |",
        "|---|---|---|--:|",
        *(field_row(name, spec, counts) for name, spec in settings.items()),
        *(f"| `{key}` | {reason} | | |" for key, reason in explained.items()),
    ]
    return "\n".join(lines) + "\n"


def problems() -> list[str]:
    """Return the problems of the rows: missing tests, settings that are none."""
    found = []
    wanted = {test for method in INTERFACE for test in method.tests}
    for name in fields():
        wanted.update(tests_of_field(name))
    for test in sorted(wanted):
        path, _, function = test.partition("::")
        file = ROOT / path
        if not file.is_file() or f"def {function}(" not in file.read_text():
            found.append(f"{test}: there is no such test")
    known = {one.name for one in dataclasses.fields(StoreConfig)}
    found += [f"{name} is no setting" for name in FIELDS if name not in known]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    for problem in problems():
        print(problem, file=sys.stderr)
    text = page()
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not up to date: make parity", file=sys.stderr)
        return 1
    return 1 if problems() else 0


if __name__ == "__main__":
    sys.exit(main())
