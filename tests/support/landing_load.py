"""The load of docs/landing.md, in a process to be killed.

python landing_load.py <page> <function> <store> <table>
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from support.documents import blocks, run_python


class Table:
    """A connection that reports its commits."""

    def __init__(self, path: str) -> None:
        self._connection = connect(path)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        print("committed", flush=True)


connect, duckdb.connect = duckdb.connect, Table


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
