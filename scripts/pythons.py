"""Build the wheel for each of several Pythons, and run its tests there: ``make pythons``.

The tests are those of cibuildwheel in pyproject.toml, without the long ones; a free-threaded Python
has no GIL meanwhile.  A package without a wheel for a Python is left out there.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "pythons"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DESCRIBE = """
import json, sys, sysconfig
print(json.dumps([sys.version.split()[0], bool(sysconfig.get_config_var("Py_GIL_DISABLED"))]))
"""


@dataclass
class Python:
    """One interpreter, and the outcome of its tests."""

    path: str
    version: str = ""
    free: bool = False
    left_out: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""

    @property
    def name(self) -> str:
        """Version, with a t where it is free-threaded."""
        return self.version + "t" * self.free


def found_pythons() -> list[str]:
    """Python 3.12 and newer: on the PATH, and of pyenv."""
    folders = [Path(folder) for folder in os.get_exec_path() if "shims" not in folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    places = [path for folder in folders for path in sorted(folder.glob("python3.*"))]
    places += sorted(pyenv.glob("3.*/bin/python3.*"))
    names = [path for path in places if re.fullmatch(r"python3\.(1[2-9]|[2-9]\d)t?", path.name)]
    return list({path.resolve(): str(path) for path in names}.values())


def described(path: str) -> Python:
    python = Python(path)
    try:
        done = subprocess.run([path, "-c", DESCRIBE], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        python.problem = f"missing: {error}"
    else:
        python.version, python.free = json.loads(done.stdout)
    return python


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def prepare(python: Python, home: Path) -> Path:
    """Make an environment with the wheel and its packages; its interpreter."""
    inside = home / "venv" / "bin" / "python"
    run("scripts/make_venv.sh", python.path, home / "venv")
    run("scripts/build_wheel.sh", inside, "release", ".", home / "wheel")
    pip = [inside, "-m", "pip", "install", "--quiet", "--prefer-binary"]
    run(*pip, *(home / "wheel").glob("*.whl"))
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["tool"]["cibuildwheel"]["test-extras"]
    # pyspark is Python alone, and only an sdist.
    for package in dict.fromkeys(line for extra in wanted for line in extras[extra]):
        command = [*map(str, pip), "--only-binary", ":all:", "--no-binary", "pyspark", package]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            python.left_out.append(re.split(r"[<>=\[;]", package)[0])
    return inside


def test(python: Python, arguments: list[str]) -> None:
    home = BUILD / python.name
    shutil.rmtree(home, ignore_errors=True)
    inside = prepare(python, home)
    if python.left_out:
        print(f"{python.name}: no wheel of {', '.join(python.left_out)}", flush=True)
    words = shlex.split(PROJECT["tool"]["cibuildwheel"]["test-command"])
    chosen = words[words.index("-m") + 1]
    report = home / "tests.xml"
    environment = {**os.environ, **({"PYTHON_GIL": "0"} if python.free else {})}
    environment.pop("PYTHONPATH", None)
    subprocess.run(
        [inside, "-m", "pytest", "-m", f"{chosen} and not long", f"--junitxml={report}"]
        + ["--continue-on-collection-errors"] * bool(python.left_out)
        + arguments,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    total = ET.parse(report).getroot().find("testsuite")
    assert total is not None
    python.counts = {
        key: int(total.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
    }
    python.seconds = float(total.get("time", 0))


def row(python: Python) -> str:
    if not python.counts:
        return f"{python.name or python.path:12}  {python.problem}"
    gil = "no" if python.free else "yes"
    bad = python.counts["failures"] + python.counts["errors"]
    passed = python.counts["tests"] - bad - python.counts["skipped"]
    line = f"{python.name:12}  {gil:3}  {passed:6}  {bad:6}  {python.seconds:7.0f}"
    return line + f"  without {', '.join(python.left_out)}" * bool(python.left_out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", default="", help="interpreters; default: all found, from 3.12")
    options, arguments = parser.parse_known_args()
    pythons = [described(path) for path in options.pythons.split() or found_pythons()]
    for python in pythons:
        if python.problem:
            continue
        print(f"{python.name}: {python.path}", flush=True)
        try:
            test(python, arguments or ["-q", "-n", "2", "--dist", "worksteal", "tests"])
        except (subprocess.CalledProcessError, OSError) as error:
            python.problem = f"failed: {error}"
    print(f"{'Python':12}  GIL  passed  failed  seconds")
    print(*map(row, pythons), sep="\n")
    good = [p for p in pythons if p.counts and not p.counts["failures"] + p.counts["errors"]]
    missing = [p for p in pythons if p.problem.startswith("missing")]
    return 0 if good and len(good) + len(missing) == len(pythons) else 1


if __name__ == "__main__":
    sys.exit(main())
