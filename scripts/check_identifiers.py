"""Check the wheels of cibuildwheel: CPython 3.11 to 3.14 on both machines, no more."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("cp311", "cp312", "cp313", "cp314")
MACHINES = ("x86_64", "aarch64")


def main() -> int:
    tool = str(Path(sys.executable).with_name("cibuildwheel"))
    command = [tool, "--platform", "linux", "--archs", ",".join(MACHINES)]
    done = subprocess.run(
        [*command, "--print-build-identifiers", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = {f"{v}-manylinux_{m}" for v in VERSIONS for m in MACHINES}
    found = set(done.stdout.split())
    if done.returncode or found != expected:
        print(done.stderr, f"expected {sorted(expected)}", f"found {sorted(found)}", sep="\n")
        return 1
    print("check_identifiers:", *sorted(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
