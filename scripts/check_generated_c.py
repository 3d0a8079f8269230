"""Build the extension anew and check the C that Cython makes: ``nogil`` must mean no Python.

Cython refuses most of it, but takes the GIL by itself where a function's error specification makes
it look for an exception ("performance hint"), and for unraisable errors.  So: no hint, no warning
of Cython or the C compiler, and no call into Python in the C body of any ``noexcept nogil``
function.  Every such function must be found in the C, or be one that nothing calls.

Cython also drops the error of an ``isinstance`` with a tuple of a builtin and another class.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cython_functions import Function, functions

ROOT = Path(__file__).parent.parent
# Arithmetic helpers and annotations of Cython's: they touch no object.
HARMLESS = re.compile(r"__Pyx_(div|mod|pow|sub|add|mul|abs|BitCount|UNUSED|long_cast|fits)\w*$")
CALL = re.compile(r"\b(_?Py[A-Z_]\w*|__Pyx\w+|__Pyx_\w+)\s*\(")
STATE = re.compile(r"\b(PyGILState_Ensure|__Pyx_PyGILState_Ensure|__Pyx_WriteUnraisable)\b")


def build(scratch: Path) -> tuple[str, str]:
    """Build a copy in ``scratch``; return the tools' output and the generated C."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, scratch)
    skip = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", scratch / "src", ignore=skip)
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "lib"],
        cwd=scratch,
        env={**os.environ, "CI": "true", "RMQSTORE_BUILD": "release"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nthe build failed")
    generated = scratch / "build/cython-release/src/rmqstore/_core.c"
    return done.stdout, generated.read_text(encoding="utf-8")


def c_bodies(generated: str) -> dict[str, str]:
    """Return the body of every C function of a ``cdef`` function, comments and strings blanked."""
    text = re.sub(r"/\*.*?\*/", " ", generated, flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    head = re.compile(
        r"^(?:static|CYTHON_INLINE)[^;{}=]*?\b(__pyx_f_\w+)\([^;{}]*\)\s*\{\n", re.MULTILINE
    )
    bodies = {}
    for match in head.finditer(text):
        end = text.find("\n}", match.end())
        bodies[match.group(1)] = text[match.end() : end]
    return bodies


def c_suffix(function: Function) -> str:
    """Return the end of the C name of a ``cdef`` function."""
    if function.owner:
        return f"_{len(function.owner)}{function.owner}_{function.name}"
    return f"_{function.name}"


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        said, generated = build(Path(scratch))
    problems = [
        line for line in said.splitlines() if re.search(r"performance hint|warning", line, re.I)
    ]
    problems += [
        f"isinstance without a check for its error: {line.strip()}"
        for line in generated.splitlines()
        if "PyObject_IsInstance(" in line and "__PYX_ERR" not in line
    ]
    bodies = c_bodies(generated)
    checked, unused = 0, []
    core = ROOT / "src/rmqstore/_native"
    sources = [path for path in sorted(core.rglob("*.px[di]")) if path.parent.name != "fuzz"]
    for path in [ROOT / "src/rmqstore/_core.pyx", *sources]:
        for function in functions(path.read_text(encoding="utf-8")):
            if not {"noexcept", "nogil"} <= set(function.tail.split()):
                continue
            where = f"{path.relative_to(ROOT)}:{function.line}: {function.name}"
            names = [n for n in bodies if re.search(rf"\d+\w*{c_suffix(function)}$", n)]
            names = [n for n in names if _is_exactly(n, function)]
            if not names:
                unused.append(where)
            for name in names:
                checked += 1
                calls = {c for c in CALL.findall(bodies[name]) if not HARMLESS.match(c)}
                calls |= set(STATE.findall(bodies[name]))
                problems += [f"{where} calls {call}" for call in sorted(calls)]
    print(*problems, sep="\n", end="\n" if problems else "")
    for where in unused:
        print(f"{where}: not in the C, so nothing calls it")
    print(f"check_generated_c: {checked} nogil functions, {len(problems)} problems")
    if not checked:
        print("no nogil function was found: the check does not understand the generated C")
    return 1 if problems or not checked else 0


def _is_exactly(name: str, function: Function) -> bool:
    """Whether a C name is this function's and not one with the same end."""
    rest = name.removeprefix("__pyx_f_")
    parts = []
    while True:  # packages and classes: a length, then as many characters, then "_"
        match = re.match(r"(\d+)(\w)", rest)
        if not match or len(rest) <= len(match.group(1)) + int(match.group(1)):
            break
        start = len(match.group(1))
        end = start + int(match.group(1))
        parts.append(rest[start:end])
        rest = rest[end:].removeprefix("_")
    return rest == function.name and (not function.owner or parts[-1:] == [function.owner])


if __name__ == "__main__":
    sys.exit(main())
