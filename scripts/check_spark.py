"""Check that Spark's part stands on the public interface, and that its packages are in order.

Nothing under ``rmqstore/spark`` uses ``rmqstore._core``, a store's ``core``, or a name of another
module that begins with an underscore.  A package of it imports itself and those that stand before
it: ``common``, then ``read`` and ``stream``, ``sink``, ``jobs``; no module imports another one in
a circle.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SPARK = "rmqstore.spark"
# Package or module, and which others it may import.
MAY_IMPORT = {
    "common": (),
    "read": ("common",),
    "stream": ("common", "read"),
    "sink": ("common",),
    "jobs": ("common",),
    "datasource": ("common", "read", "stream", "sink"),
    "": ("common", "datasource", "stream", "sink", "jobs"),
}
BY_NAME = ("getattr", "setattr", "hasattr", "delattr")


class Problem(NamedTuple):
    """A violation in a module."""

    path: Path
    line: int
    text: str


def is_private(name: str) -> bool:
    """Whether it begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")


def module_of(path: Path, source: Path) -> str:
    """Return the name by which a file is imported."""
    parts = ("rmqstore", *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """Return the package of a module in Spark's part; empty for the part's own."""
    return module.removeprefix(SPARK).lstrip(".").partition(".")[0]


def imports(tree: ast.AST, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the imports of a module, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            for name in node.names:
                whole = f"{home}.{name.name}"
                yield node.lineno, whole if whole in modules or node.level else home
                if is_private(name.name):
                    yield node.lineno, whole


def is_own(node: ast.Attribute) -> bool:
    """Whether it is an attribute of a method's own object or class."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def defined(tree: ast.AST) -> set[str]:
    """Return the names defined by a module: at any level, and as attributes of its classes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            found.add(node.attr)
    return found


def private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield private attributes of others, and inherited ones; also in texts."""
    own = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (is_private(node.attr) or node.attr == "core"):
            if not is_own(node) or node.attr not in own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in BY_NAME or called in ("attrgetter", "methodcaller"):
                for value in node.args:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        for name in filter(is_private, value.value.split(".")):
                            yield node.lineno, name


def problems(source: Path) -> Iterator[Problem]:
    """Yield the violations below a folder that stands for ``rmqstore``."""
    files = sorted((source / "spark").rglob("*.py"))
    modules = {module_of(path, source): path for path in files}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(), str(path))
        package = package_of(module)
        if package not in MAY_IMPORT:
            yield Problem(path, 1, f"{package} is no package that check_spark knows")
            continue
        for line, name in private_uses(tree):
            yield Problem(path, line, f"{name} is not public")
        graph[module] = set()
        for line, name in imports(tree, set(modules)):
            if any(is_private(part) for part in name.split(".")):
                yield Problem(path, line, f"{name} is not public")
            elif name.startswith("."):
                yield Problem(path, line, f"{name} is relative: say rmqstore.spark")
            elif name.startswith(f"{SPARK}."):
                graph[module].add(name)
                other = package_of(name)
                if other not in (package, *MAY_IMPORT[package]):
                    yield Problem(path, line, f"{package or 'spark'} may not import {other}")
    for module in circles(graph):
        yield Problem(modules[module], 1, "it imports itself by way of others")


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules in import cycles."""
    found = []
    for start, imported in graph.items():
        seen: set[str] = set()
        next_ones = list(imported)
        while next_ones:
            module = next_ones.pop()
            if module not in seen:
                seen.add(module)
                next_ones += graph.get(module, ())
        if start in seen:
            found.append(start)
    return found


def main() -> int:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "rmqstore"
    found = list(problems(source))
    for one in found:
        print(f"{one.path.relative_to(source)}:{one.line}: {one.text}")
    count = len(list((source / "spark").rglob("*.py")))
    print(f"check_spark: {count} modules, {len(found)} problems")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
