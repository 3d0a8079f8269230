"""Build the one extension, ``rmqstore._core``; all metadata is in ``pyproject.toml``.

``RMQSTORE_BUILD`` chooses how: ``release`` (default), ``faults`` (with kill points and failure
injection, quickly compiled), ``debug``, ``asan``, ``tsan`` or ``coverage``.  Every mode but
``release`` is compiled anew and takes Cython's warnings as errors; with ``CI`` set, ``release``
does so as well.
"""

import os
import platform
import shlex
import shutil
import sys
import sysconfig
from glob import glob

import Cython.Compiler.Options as CythonOptions
from Cython.Build import cythonize
from setuptools import Extension, setup

COMMON = ["-std=gnu11", "-pthread", "-fvisibility=hidden"]
FAULTS = ["-DRMQSTORE_FAULTS=1"]
DEBUG = [*FAULTS, "-DRMQSTORE_DEBUG=1", "-UNDEBUG", "-fno-omit-frame-pointer"]
GCOV = ["--coverage"]
ASAN = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TSAN = ["-fsanitize=thread"]

# mode: (compiler arguments, linker arguments)
MODES = {
    "release": (["-O3", "-g1"], []),
    "faults": (["-O1", "-g1", *FAULTS], []),
    "debug": (["-O0", "-g3", *DEBUG], []),
    "asan": (["-O1", "-g", *DEBUG, *ASAN], ASAN),
    "tsan": (["-O1", "-g", *DEBUG, *TSAN], TSAN),
    "coverage": (["-O1", "-g1", *FAULTS, *GCOV, "-fprofile-update=atomic"], GCOV),
}


def missing() -> str:
    """Return what this machine lacks for a build, in one line; empty if nothing."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return f"Linux with glibc: this is {platform.platform()}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if not shutil.which(compiler):
        return f"a C compiler: there is no {compiler} (Debian: apt install gcc; or set CC)"
    headers = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(headers, "Python.h")):
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        return f"Python's headers: there is no {headers}/Python.h (Debian: apt install {name})"
    return ""


if lacking := missing():
    raise SystemExit(f"rmqstore needs {lacking}")
mode = os.environ.get("RMQSTORE_BUILD") or "release"
if mode not in MODES:
    raise SystemExit(f"RMQSTORE_BUILD is {mode!r}; it may be one of {', '.join(MODES)}")
strict = mode != "release" or bool(os.environ.get("CI"))
compile_args, link_args = MODES[mode]

core = Extension(
    "rmqstore._core",
    sources=["src/rmqstore/_core.pyx"],
    # Besides rebuilding when a part changes, this is what puts the parts into the sdist.
    depends=[
        "src/rmqstore/_core.pyx",
        *sorted(glob("src/rmqstore/_*/**/*.px[di]", recursive=True)),
    ],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=[*COMMON, *(["-Wall", "-Wextra"] if strict else []), *compile_args],
    extra_link_args=["-pthread", *link_args],
)

CythonOptions.warning_errors = strict
setup(
    ext_modules=cythonize(
        [core],
        # The last one has the fuzz.pxi that _core.pyx includes.
        include_path=[
            "src",
            "src/rmqstore",
            f"src/rmqstore/_builds/{'release' if mode == 'release' else 'faults'}",
        ],
        build_dir=f"build/cython-{mode}",
        emit_linenums=mode == "coverage",  # gcov then counts lines of the parts
        # cythonize compares file times only and would take another mode's C for its own.
        force=mode != "release",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "auto_pickle": False,
            "autotestdict": False,
            "binding": True,  # signatures that inspect and stubtest can read
            "embedsignature": False,
            # Not before tests/threads and tests/unit pass on 3.14t; docs/development.md.
            "freethreading_compatible": False,
            "warn.unused": True,
        },
    )
)
