"""What a machine lacks for a build is named in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
# setup.py as pip runs it, without the two packages that pip installs for it.
RUN = """
import importlib, platform, runpy, sys, sysconfig, types
for name in ("Cython", "Cython.Compiler", "Cython.Compiler.Options", "Cython.Build", "setuptools"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["Cython.Compiler"].Options = sys.modules["Cython.Compiler.Options"]
sys.modules["Cython.Build"].cythonize = lambda *extensions, **options: []
sys.modules["setuptools"].Extension = lambda *arguments, **options: None
sys.modules["setuptools"].setup = lambda **options: print("set up")
{changes}
runpy.run_path("setup.py", run_name="__main__")
"""
HEADERS = "sysconfig.get_path = lambda name: {!r}"


def set_up(changes: str, headers: Path, path: Path) -> tuple[int, list[str]]:
    code = RUN.format(changes=f"{HEADERS.format(str(headers))}\n{changes}")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TOP, env={"PATH": str(path), "CC": "some-cc -pipe"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    (tmp_path / "Python.h").touch()
    return tmp_path


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "some-cc").symlink_to("/bin/true")
    return folder


def test_a_machine_with_all(headers: Path, compiler: Path) -> None:
    assert set_up("", headers, compiler) == (0, ["set up"])


def test_no_compiler(headers: Path, tmp_path: Path) -> None:
    code, (line,) = set_up("", headers, tmp_path)
    assert code == 1
    assert line.startswith("rmqstore needs a C compiler: there is no some-cc ")


def test_no_headers(compiler: Path, tmp_path: Path) -> None:
    code, (line,) = set_up("", tmp_path, compiler)
    assert code == 1
    assert line.startswith(f"rmqstore needs Python's headers: there is no {tmp_path}/Python.h ")


@pytest.mark.parametrize(
    "changes",
    [
        "sys.platform = 'darwin'",
        "sys.platform = 'win32'",
        "platform.libc_ver = lambda: ('', '')",  # musl
    ],
)
def test_another_system(headers: Path, compiler: Path, changes: str) -> None:
    name = "platform.platform = lambda: 'Other-1.2'"
    code, (line,) = set_up(f"{changes}\n{name}", headers, compiler)
    assert (code, line) == (1, "rmqstore needs Linux with glibc: this is Other-1.2")


@pytest.mark.parametrize(("version", "found"), [("Python 3.10.13", "Python 3.10.13"), ("", None)])
def test_an_old_or_missing_python(tmp_path: Path, version: str, found: str | None) -> None:
    python = tmp_path / "python"
    if found:
        python.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo {version}\n")
        python.chmod(0o755)
    done = subprocess.run(
        [TOP / "scripts/make_venv.sh", python, tmp_path / "venv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Python 3.11 or newer is needed: {python} is {found or 'missing'}; ")
    assert not (tmp_path / "venv").exists()
