"""Check that the parts of the core use only what stands above them.

``_core.pyx`` includes its parts layer by layer, a folder each; the last layer, ``fuzz``, is in
builds with faults only, whose list of parts is a file of its own.  A function, a struct, a constant
or a class that a part names, be it called, the type of a field or an argument, must be defined in
the part itself or in one that is included before it.  So there is no way back up, and no circle of
parts that call each other.  Python's modules have floors, a table in ``docs/architecture.md``: a
module imports nothing from a floor above its own, for types neither, and modules do not import
each other in a circle.  What begins with an underscore is used by its own object alone.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
INCLUDE = re.compile(r'^include "_native/([\w/]+)\.pxi"', re.MULTILINE)
NOISE = re.compile(
    r'("""|\'\'\')(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL
)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
TYPE = re.compile(r"(?:cdef|ctypedef)\s+(?:packed\s+)?(?:struct|union|enum|class)\s+(\w+)")
ENUM = re.compile(r"^cdef enum[^\n]*:\n((?:[ \t]+[^\n]*\n|\n)+)", re.MULTILINE)

FLOORS = re.compile(r"^\| floor \|.*\n\|---.*\n((?:\|.*\n)+)", re.MULTILINE)
# Imports that rise: a user's callback takes it, and is typed so.
RISING = {("config/store_config.py", "rmqstore.services.transaction")}
BELOW = {"_core", "__version__"}  # all floors
PRIVATE_IN = ("cli", "consume", "serve", "services", "spark")  # folders
PUBLIC = {"_asdict", "_exit", "_replace"}  # of the standard library


class Use(NamedTuple):
    """Use of a name that a later part defines."""

    part: str
    line: int
    name: str
    defined: str


def parts(source: Path) -> dict[str, str]:
    """Return the text of each part without comments and strings, in the order of the includes."""
    found = {}
    lists = (source / "_core.pyx", source / "_builds" / "faults" / "fuzz.pxi")
    for name in INCLUDE.findall("".join(path.read_text() for path in lists)):
        text = (source / "_native" / f"{name}.pxi").read_text()
        found[name] = NOISE.sub(lambda m: "\n" * m.group().count("\n"), text)
    return found


def definitions(text: str) -> Iterator[str]:
    """Yield the names that a part defines at module level."""
    for line in re.findall(r"^(?:cdef|ctypedef|cpdef|def|class)\b[^\n]*", text, re.MULTILINE):
        kind = TYPE.match(line) or re.match(r"(?:cdef\s+)?class\s+(\w+)", line)
        if kind:
            yield kind[1]
        elif line.startswith("ctypedef"):
            yield from re.findall(r"\(\*(\w+)\)|(\w+)\s*$", line)[0]
        elif "(" in line.split("=")[0]:
            function = re.search(r"(\w+)\s*\(", line)
            if function:
                yield function[1]
        else:
            yield from re.findall(r"(\w+)(?:\[[^\]]*\])?\s*(?:,|$)", line.split("=")[0].rstrip())
    for members in ENUM.findall(text):
        yield from re.findall(r"^\s+(\w+)", members, re.MULTILINE)


def upward(source: Path) -> list[Use]:
    """Return uses of names that only a later part defines, once a part and name."""
    texts = parts(source)
    order = {part: place for place, part in enumerate(texts)}
    home: dict[str, str] = {}
    for part, text in texts.items():
        for name in definitions(text):
            home.setdefault(name, part)
    found: dict[tuple[str, str], Use] = {}
    for part, text in texts.items():
        fields = fields_of(text)
        for match in NAME.finditer(text):
            defined = home.get(match[0], part)
            if order[defined] > order[part] and match.start() not in fields:
                line = text.count("\n", 0, match.start()) + 1
                found.setdefault((part, match[0]), Use(part, line, match[0], defined))
    return list(found.values())


def fields_of(text: str) -> set[int]:
    """Return the positions of struct fields, whose names functions may have as well."""
    found = set()
    for block in re.finditer(r"^cdef struct \w+:\n((?:[ \t]+[^\n]*\n|\n)+)", text, re.MULTILINE):
        for field in re.finditer(r"(\w+)(?:\[[^\]]*\])*[ \t]*$", block[1], re.MULTILINE):
            found.add(block.start(1) + field.start(1))
    return found


def missing(source: Path) -> list[str]:
    """Return the parts in the folders that are not included, and folders met twice."""
    texts = parts(source)
    there = {
        str(path.relative_to(source / "_native").with_suffix(""))
        for path in (source / "_native").rglob("*.pxi")
    }
    problems = [f"{part}.pxi is not included" for part in sorted(there - texts.keys())]
    layers = [part.partition("/")[0] for part in texts]
    begun = [layer for at, layer in enumerate(layers) if at == 0 or layers[at - 1] != layer]
    problems += [f"{layer}/ stands in two places" for layer in set(begun) if begun.count(layer) > 1]
    return problems


def declared_above(source: Path) -> list[str]:
    """Return the declaration files that import from a layer above, or from each other in a circle.

    What stands in a ``.pxd`` is known to all parts, but a layer's own stands on the layers below.
    """
    order = list(dict.fromkeys(part.partition("/")[0] for part in parts(source)))
    imports = {}
    for path in sorted((source / "_native").glob("*/*.pxd")):
        name = str(path.relative_to(source / "_native").with_suffix(""))
        found = re.findall(r"^from rmqstore\._native\.(\w+)\.(\w+) cimport", path.read_text(), re.M)
        imports[name] = [f"{layer}/{leaf}" for layer, leaf in found]
    problems = []
    for name, used in imports.items():
        layer = order.index(name.partition("/")[0])
        problems += [
            f"{name}.pxd: {other}.pxd is of a layer above"
            for other in used
            if order.index(other.partition("/")[0]) > layer
        ]
        seen, waiting = set(), list(used)
        while waiting:
            other = waiting.pop()
            if other not in seen:
                seen.add(other)
                waiting += imports.get(other, [])
        if name in seen:
            problems.append(f"{name}.pxd imports itself over others")
    return problems


def floors() -> dict[str, int]:
    """Return the floor of each folder and module of the package, the lowest first."""
    table = FLOORS.search((ROOT / "docs" / "architecture.md").read_text())
    assert table, "docs/architecture.md has no table of floors"
    return {
        name: number
        for number, row in enumerate(table[1].splitlines())
        for name in re.findall(r"`(\w+)`", row)
    }


def floor_of(name: str, floor: dict[str, int]) -> int:
    """Return the floor of a name that is imported: of the package's own ones, that of jobs."""
    used = name.partition(".")[2].partition(".")[0]
    return -1 if used in BELOW else floor.get(used, floor["offline"])


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the package or the names below it that a statement imports."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level:
        names = ["rmqstore.relative"]
    elif node.module == "rmqstore":
        names = [f"rmqstore.{alias.name}" for alias in node.names]
    else:
        names = [node.module or ""]
    return [name for name in names if f"{name}.".startswith("rmqstore.")]


def rising(source: Path) -> list[str]:
    """Return imports of modules from floors above their own, and what has no floor."""
    floor = floors()
    problems = []
    for path in sorted(source.rglob("*.py")):
        own = path.relative_to(source)
        if own.name in ("__init__.py", "__main__.py") and own.parent == Path():
            continue  # the package itself stands on all of them
        top = own.parts[0].removesuffix(".py")
        if top not in floor:
            problems.append(f"{own}: {top} has no floor in docs/architecture.md")
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            problems += [
                f"{own}:{node.lineno}: {name} is of a floor above"
                for name in imported(node)
                if (str(own), name) not in RISING and floor_of(name, floor) > floor[top]
            ]
    return problems


def modules(source: Path) -> dict[str, Path]:
    """Return the path of each module of the package but the package itself, by its name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(("rmqstore", *path.relative_to(source).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = path
    found.pop("rmqstore", None)
    return found


def modules_imported(path: Path, known: Iterable[str]) -> set[str]:
    """Return the modules that one imports, anywhere and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(inner if inner & set(known) else {node.module or ""})
    return found & set(known)


def reached(name: str, uses: dict[str, set[str]]) -> set[str]:
    """Return the modules that one imports, itself or over others."""
    seen: set[str] = set()
    waiting = list(uses[name])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting += uses[other]
    return seen


def circles(source: Path) -> list[str]:
    """Return the circles of modules that import each other, a line for each module in one."""
    known = modules(source)
    uses = {name: modules_imported(path, known) - {name} for name, path in known.items()}
    for own, name in RISING:
        importer = "rmqstore." + own.removesuffix(".py").replace("/", ".")
        uses.get(importer, set()).discard(name)
    every = {name: reached(name, uses) for name in known}
    return [
        f"{name} imports itself over "
        + ", ".join(sorted(other for other in found if name in every.get(other, ())))
        for name, found in every.items()
        if name in found
    ]


def private_names(source: Path) -> list[str]:
    """Return uses of names with an underscore that are no own ones of the object."""
    problems = []
    for folder in PRIVATE_IN:
        for path in sorted((source / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            problems += [
                f"{path.relative_to(source)}:{node.lineno}: {ast.unparse(node)} is private"
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
                and node.attr not in PUBLIC
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ]
    return problems


def main() -> int:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "rmqstore"
    problems = missing(source) + declared_above(source)
    problems += [
        f"{use.part}.pxi:{use.line}: {use.name} is defined below, in {use.defined}.pxi"
        for use in upward(source)
    ]
    problems += rising(source) + circles(source) + private_names(source)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_layers: {len(parts(source))} parts, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
