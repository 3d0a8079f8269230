"""The order of the locks is asserted where the core is built for debugging."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

LOCKS = Path(__file__).parents[3] / "src/rmqstore/_native/base/locks.pxd"

MAIN = """
int main(int count, char **ranks)
{
    static rmq_lock locks[LOCKS];
    for (int i = 1; i < count; i++) {
        int rank = atoi(ranks[i]);
        lock_init(&locks[rank], rank);
        lock_take(&locks[rank]);
    }
    puts("taken");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that takes the locks of the ranks that it is given, one after the other."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler, which building the core needs as well"
    (text,) = re.findall(
        r'cdef extern from \*:\n    """\n(.*?)    """', LOCKS.read_text(), re.DOTALL
    )
    into = tmp_path_factory.mktemp("locks")
    (into / "locks.c").write_text(dedent(text).replace("\\\\n", "\\n") + MAIN)
    made = into / "locks"
    flags = ["-std=gnu11", "-pthread", "-DRMQSTORE_DEBUG=1"]
    subprocess.run([compiler, *flags, "-o", made, into / "locks.c"], check=True)
    return made


def take(program: Path, *ranks: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, ranks)], capture_output=True, text=True, check=False, timeout=60
    )


def test_locks_in_their_order(program: Path) -> None:
    done = take(program, 0, 3, 8, 19)
    assert (done.returncode, done.stdout) == (0, "taken\n")


@pytest.mark.parametrize("ranks", [(8, 3), (0, 9, 8), (5, 5)], ids=str)
def test_another_order_aborts(program: Path, ranks: tuple[int, ...]) -> None:
    done = take(program, *ranks)
    assert done.returncode == -6
    assert done.stderr == f"lock order: {ranks[-1]} taken while holding {ranks[-2]}\n"


def test_each_lock_of_the_core_has_a_rank_of_the_table() -> None:
    """And is made by lock_init alone, so that no mutex is left out."""
    ranks = set(re.findall(r"^ +(LOCK_\w+),", LOCKS.read_text(), re.MULTILINE))
    parts = [path.read_text() for path in LOCKS.parent.parent.rglob("*.pxi")]
    assert not any("pthread_mutex_init" in text for text in parts)
    used = {rank for text in parts for rank in re.findall(r"\bLOCK_\w+", text)}
    assert used - {"LOCK_SH", "LOCK_EX", "LOCK_NB", "LOCK_UN"} <= ranks
    assert ranks <= used, ranks - used
