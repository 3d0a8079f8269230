"""Write docs/api.md from the docstrings of the public names.

    python scripts/make_api_page.py           # write it
    python scripts/make_api_page.py --check   # exit 1 where it is not up to date

It documents the rmqstore that this Python imports: run it with the build of this tree.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
MODULES = (
    "rmqstore",
    "rmqstore.traces",
    "rmqstore.replies",
    "rmqstore.filters",
    "rmqstore.metrics",
    "rmqstore.offline",
    "rmqstore.spark",
    "rmqstore.testing",
)
INTERNAL = {"core"}  # of a store: for the project's own modules
WIDTH = 100

HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
LISTS = {"Parameters", "Attributes", "Other Attributes", "Returns", "Yields", "Raises", "Warns"}
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def modules() -> Iterator[ModuleType]:
    """Import the public modules that this tree has."""
    for name in MODULES:
        if importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)


def prose(text: str) -> str:
    """Turn roles and double backticks of a docstring into Markdown."""
    return ROLE.sub(r"`\1`", text).replace("``", "`").strip()


def paragraphs(text: str) -> str:
    """Join the lines of each paragraph; code and lists stay as they are."""
    found: list[str] = []
    code: list[str] = []  # what is indented behind a line that ends with "::"
    for block in [*re.split(r"\n\s*\n", text.strip()), ""]:
        if code and block.startswith("    "):
            code.append(block)
            continue
        if len(code) > 1:
            found.append("```python\n" + textwrap.dedent("\n\n".join(code[1:])) + "\n```")
        code = [""] if block.endswith("::") else []
        if block.lstrip().startswith(">>>"):
            found.append(f"```pycon\n{textwrap.dedent(block)}\n```")
        elif re.match(r"\s*[-*|] ", block):
            found.append(prose(block))
        elif block:
            joined = prose(" ".join(line.strip() for line in block.splitlines()))
            found.append(joined.removesuffix(":") if code else joined)
    return "\n\n".join(found)


def entries(text: str) -> str:
    """Turn the ``name : type`` entries of a section into a list."""
    lines: list[str] = []
    fresh = False  # no description of the last entry yet
    for line in text.strip("\n").splitlines():
        if line.startswith(" "):
            lines[-1] += (": " if fresh else " ") + line.strip()
            fresh = False
        elif line.endswith(":"):  # a sentence above the entries
            lines += [line, ""]
        elif line.strip():
            name, colon, kind = line.partition(" : ")
            lines.append(f"- `{name}`" + (f" ({kind})" if colon else ""))
            fresh = True
    return "\n".join(prose(line) for line in lines)


def rendered(docstring: str) -> str:
    """Return a NumPy docstring as Markdown."""
    parts = HEADING.split(docstring)
    text = [paragraphs(parts[0])]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        shown = entries(body) if heading in LISTS else paragraphs(body)
        text.append(f"*{heading}*\n\n{shown}")
    return "\n\n".join(text)


def documented(name: str, value: Any) -> str:
    """Return the docstring of a public name; it must have one."""
    docstring = inspect.getdoc(value)
    if not docstring:
        raise SystemExit(f"make_api_page: {name} has no docstring")
    return rendered(docstring)


def signature(name: str, value: Any) -> str:
    """Return the call of a function or method in lines that are not too long."""
    shape = inspect.signature(value)
    bare = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in shape.parameters.values()
        if one.name not in {"self", "cls"}
    ]
    text = str(shape.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    text = re.sub(r"<[\w.]+\.(\w+) object at 0x\w+>", r"\1", text)
    lines = textwrap.wrap(
        name + text, WIDTH, subsequent_indent=" " * (len(name) + 1), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "```python\n" + "\n".join(lines) + "\n```"


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class and its base classes of ours.

    Not the interface of another package's class: it is described there.
    """
    seen: dict[str, Any] = {}
    theirs: set[str] = set()
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("rmqstore"):
            seen |= {name: value for name, value in vars(base).items() if name[0] != "_"}
        else:
            theirs |= vars(base).keys()
    yield from ((name, value) for name, value in seen.items() if name not in theirs | INTERNAL)


def class_text(name: str, kind: type) -> str:
    """Return a class with its methods and properties."""
    text = [f"### {name}"]
    if issubclass(kind, BaseException):
        bases = [base.__name__ for base in kind.__bases__]
        text.append("Extends " + ", ".join(f"`{base}`" for base in bases) + ".")
    attributes = inspect.getdoc(kind) or ""
    if "\nParameters\n" in attributes:
        text.append(signature(name, kind))
    text.append(documented(name, kind))
    if issubclass(kind, enum.Enum):
        text.append("\n".join(f"- `{one.name}` = {one.value}" for one in kind))
    for member, value in own_members(kind):
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(value, enum.Enum):
            continue
        if inspect.isdatadescriptor(value):
            if not re.search(rf"^(\w+, )*{member}(, \w+)* :", attributes, re.MULTILINE):
                text.append(f"#### {name}.{member}\n\n{documented(f'{name}.{member}', value)}")
        elif callable(plain):
            text += [
                f"#### {name}.{member}",
                signature(f"{name}.{member}", plain),
                documented(f"{name}.{member}", plain),
            ]
    return "\n\n".join(text)


def page() -> str:
    """Return the whole page."""
    text = [
        "# API",
        "Made from the docstrings by `scripts/make_api_page.py`; edit these.",
        "Points in time are integers in milliseconds since the epoch; where an argument takes one,"
        " an aware\n`datetime` and an ISO-8601 string with a zone are taken too. Timeouts are"
        " seconds, sizes and offsets are\nbytes; a queue offset counts the messages of one queue."
        " [glossary.md](glossary.md) has the words.",
    ]
    for module in modules():
        text += [f"## {module.__name__}", documented(module.__name__, module)]
        names: list[str] = module.__all__
        for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
            value = getattr(module, name)
            if isinstance(value, (int, str)):
                text.append(f"### {name}\n\n`{value!r}`")
            elif inspect.isclass(value):
                text.append(class_text(name, value))
            else:
                call = f"{module.__name__}.{name}"
                text.append(f"### {name}")
                if inspect.isroutine(value):  # a fixture of pytest is none
                    text.append(signature(call, value))
                text.append(documented(call, inspect.unwrap(value)))
    return "\n\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    text = page()
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not up to date: python scripts/make_api_page.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
