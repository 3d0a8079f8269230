"""Check the rules that no other tool reads from the sources.

ASCII only, no file over 500 lines (the stub may be longer: it lists one whole extension), no text
of others in a log or a terminal that ``rmqstore.base.foreign`` has not made printable, no size or
form of a file on disk in Python but those of ``rmqstore.base.layout``, every Cython
``nogil`` function with an error specification, and cython-lint over everything: ``.pxi`` parts as
they are (pycodestyle) and again as copies named ``.pyx``, as only those get its checks of the
syntax tree.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cython_functions import functions

ROOT = Path(__file__).parent.parent
MAX_LINES = 500
FOLDERS = ("src", "tests", "bench", "scripts", "examples", "interop")
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".sh", ".java"}
CYTHON = {".pyx", ".pxd", ".pxi"}
PACKAGE = ROOT / "src/rmqstore"
LOGGING = {PACKAGE / "base/warn.py", PACKAGE / "cli/log_lines.py"}  # lines made, and written
SAY, HELP = PACKAGE / "cli/failures.py", PACKAGE / "cli/__init__.py"
OWN_WORDS = {SAY, HELP, PACKAGE / "cli/completion.py"}
LOG_CALL = re.compile(
    r"log_(?:info|warning)"
    r"|(?:.*\.)?_?log(?:ger)?\.(?:debug|info|warn|warning|error|exception|critical|log)",
    re.IGNORECASE,
)
PRINTS = {"click.echo", "click.secho", "print"}
STREAMS = re.compile(r"sys\.std(?:out|err)\.write|traceback\.print_\w+|logging\..*")
PRINTABLE = {"foreign", "json_line", "printable"}

LAYOUT = PACKAGE / "base/layout.py"
OTHER_FORMS = (PACKAGE / "serve/wire", PACKAGE / "serve/network")  # frames, TLS
LIMITS = {f"{one}" for bits in (31, 63) for one in (1 << bits, (1 << bits) - 1)}
LIMITS |= {"1 << 31", "1 << 63", "2 ** 31", "2 ** 63"}
FORM = re.compile(r">[xbBhHiIqQ0-9]*[bBhHiIqQ][xbBhHiIqQ0-9]*")


def source_files() -> list[Path]:
    """Return the files to check."""
    found = [ROOT / "setup.py"]
    for folder in FOLDERS:
        found += (p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES and p.is_file())
    generated = ROOT / "src/rmqstore/_core.c"
    return sorted(p for p in found if "target" not in p.parts and p != generated)


def text_problems(path: Path) -> list[str]:
    """Return the problems of one file, a line each."""
    problems = []
    name = path.relative_to(ROOT)
    content = path.read_bytes()
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            problems.append(f"{name}:{number}: not ASCII: {line.decode(errors='replace').strip()}")
    if len(lines) - 1 > MAX_LINES and path.suffix in CYTHON | {".py"}:
        problems.append(f"{name}: {len(lines) - 1} lines; at most {MAX_LINES}")
    if path.suffix in CYTHON:
        for function in functions(content.decode()):
            tail = function.tail.split()
            if "nogil" in tail and not {"noexcept", "except"} & set(tail):
                problems.append(
                    f"{name}:{function.line}: {function.name} is nogil without noexcept or except"
                )
    return problems


def foreign_text_problems(path: Path) -> list[str]:
    """Return places where foreign text may reach a log or a terminal as it is."""
    name = path.relative_to(ROOT)
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        line = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [getattr(node, "module", None), *(one.name for one in node.names)]
            if "logging" in {str(one).partition(".")[0] for one in modules} and path not in LOGGING:
                found.append(f"{line}: imports logging: base/warn.py makes arguments printable")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            texts = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "text")]
            if LOG_CALL.fullmatch(called) and not all(isinstance(t, ast.Constant) for t in texts):
                found.append(f"{line}: {called}: its text must be a constant, with arguments")
            if called in PRINTS and path not in OWN_WORDS:
                if any(one.arg in {"err", "file"} for one in node.keywords):
                    found.append(f"{line}: {called} to standard error: rmqstore.cli.failures.say")
                elif not all(map(is_printable, node.args)):
                    found.append(f"{line}: {called} of what may be foreign: say(), or printable()")
            if STREAMS.fullmatch(called) and path not in LOGGING:
                found.append(
                    f"{line}: {called}: say() in the command line, else rmqstore.base.warn"
                )
    return found


def layout_problems(path: Path) -> list[str]:
    """Return sizes and forms of files on disk, and limits of Java's integers, that stand apart."""
    if path == LAYOUT or any(folder in path.parents for folder in OTHER_FORMS):
        return []
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Call):
            apart = ".from_bytes(" in text or ".to_bytes(" in text
            apart = apart and "'little'" not in text
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod):
            apart = "20" in {ast.unparse(node.left), ast.unparse(node.right)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            apart = FORM.fullmatch(node.value) is not None
        else:
            apart = text in LIMITS
        if apart:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}: rmqstore.base.layout")
    return found


def is_printable(text: ast.expr) -> bool:
    """Whether a text is a constant, or made printable."""
    called = (ast.unparse(one.func) for one in ast.walk(text) if isinstance(one, ast.Call))
    return isinstance(text, ast.Constant) or not PRINTABLE.isdisjoint(called)


def lint_problems() -> list[str]:
    """Return cython-lint's findings for the sources and the copies of the parts."""
    tools = Path(sys.executable).parent
    tool = str(tools / "cython-lint")
    # It runs pycodestyle by name.
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    limit = ["--max-line-length", "100"]
    runs = [[tool, *limit, "src"]]
    with tempfile.TemporaryDirectory() as scratch:
        for part in (ROOT / "src").rglob("*.pxi"):
            shutil.copy(part, Path(scratch, part.stem + "_pxi.pyx"))
        # A part uses what the parts above it import and what the assembler imports for all.
        copies = [tool, *limit, "--no-pycodestyle", scratch]
        if any(Path(scratch).iterdir()):
            runs.append(copies)
        problems = []
        for command in runs:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            problems += (done.stdout + done.stderr).replace(scratch + "/", "").splitlines()
            if done.returncode and not problems:
                problems.append(f"{' '.join(command)}: exit code {done.returncode}")
    return problems


def main() -> int:
    files = source_files()
    problems = [problem for path in files for problem in text_problems(path)]
    for path in files:
        if path.suffix == ".py" and PACKAGE in path.parents:
            problems += foreign_text_problems(path) + layout_problems(path)
    problems += lint_problems()
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_sources: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
