"""The load of docs/landing.md, in a process to be killed.

python landing_load.py <page> <function> <store> <table>
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.documents import blocks, run_python


def main() -> None:
    page, function, store, table = sys.argv[1:]
    names: dict[str, object] = {}
    for block in blocks(Path(page)):
        if block.language == "python" and "def load" in block.text:
            run_python(Path(page), block, names)
    print("begins", flush=True)
    names[function](store, table)  # type: ignore[operator]


if __name__ == "__main__":
    main()
