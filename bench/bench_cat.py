"""cat: the command line writes 1 KiB messages of text into a file, as JSON lines and as CSV."""

import subprocess
import sys

import pytest

import workloads

COUNT = 200_000


def cat(store, output, into):
    """Run the command with its standard output in a file."""
    command = [sys.executable, "-m", "rmqstore", "cat", str(store), *output]
    with into.open("wb") as file:
        subprocess.run(command, stdout=file, check=True)


@pytest.mark.parametrize(
    "output",
    [["-o", "jsonl"], ["-o", "csv"], ["-f", r"%t %q %o %T %k %s\n"]],
    ids=["jsonl", "csv", "format"],
)
def bench_cat(measure, tmp_path, output):
    store = workloads.written_texts(tmp_path / "store", 1024, COUNT)
    measure(cat, COUNT, lambda: (store, output, tmp_path / "lines"))
