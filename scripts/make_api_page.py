"""Write the pages of docs/api/ from the docstrings of the public names.

    python scripts/make_api_page.py           # write it
    python scripts/make_api_page.py --check   # exit 1 where one is not up to date

It documents the rmqstore that this Python imports: run it with the build of this tree.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

from api_subjects import CONSTANTS, SUBJECTS

PAGES = Path(__file__).parent.parent / "docs" / "api"
STORE = "MessageStore"  # its methods are on the pages of their subjects
INTERNAL = {"core"}  # of a store: for the project's own modules
WIDTH = 100
INDEX_HEAD = """# API

Generated from the docstrings by `scripts/make_api_page.py`; edit the docstrings, not these pages.

Points in time are integers in milliseconds since the epoch; where an argument takes one, an aware
`datetime` and an ISO-8601 string with a zone are taken too. Timeouts are seconds, sizes and
offsets are bytes; a queue offset counts the messages of one queue.
[glossary.md](../glossary.md) has the words."""

HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
LISTS = {"Parameters", "Attributes", "Other Attributes", "Returns", "Yields", "Raises", "Warns"}
ROLE = re.compile(r":\w+:`~?([^`]+)`")
LINKED = {"Returns", "Yields", "Raises"}  # sections whose entries are types
TYPE = re.compile(r"[A-Z]\w+(, [A-Z]\w+)*")


class Entry(NamedTuple):
    """A heading of a page: a module, a public name, or a member of one."""

    module: str
    name: str  # below the module, with dots; "" for the module
    depth: int
    docstring: str
    parts: list[str]  # blocks of Markdown; roles are not links yet

    @property
    def full_name(self) -> str:
        """The name with its module."""
        return f"{self.module}.{self.name}".rstrip(".")

    @property
    def title(self) -> str:
        """The text of the heading."""
        return self.name or self.module

    @property
    def anchor(self) -> str:
        """The heading's anchor, as GitHub and MyST make it."""
        return re.sub(r"[^\w-]", "", self.title.lower())


def prose(text: str) -> str:
    """Turn double backticks of a docstring into Markdown; roles stay."""
    return text.replace("``", "`").strip()


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


def entries(text: str, linked: bool) -> str:
    """Turn the ``name : type`` entries of a section into a list; types become links."""
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
            names = name.split(", ") if linked and TYPE.fullmatch(name) else []
            shown = ", ".join(f":obj:`{one}`" for one in names) or f"`{name}`"
            lines.append(f"- {shown}" + (f" ({kind})" if colon else ""))
            fresh = True
    return "\n".join(prose(line) for line in lines)


def rendered(docstring: str) -> str:
    """Return a NumPy docstring as Markdown."""
    parts = HEADING.split(docstring)
    text = [paragraphs(parts[0])]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        shown = entries(body, heading in LINKED) if heading in LISTS else paragraphs(body)
        text.append(f"*{heading}*\n\n{shown}")
    return "\n\n".join(text)


def documentation(name: str, value: Any) -> str:
    """Return the docstring of a public name; it must have one."""
    docstring = inspect.getdoc(inspect.unwrap(value))
    if not docstring:
        raise SystemExit(f"make_api_page: {name} has no docstring")
    return docstring


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


def own_members(kind: type) -> list[str]:
    """Return the public methods and properties of a class and its base classes of ours.

    Not the interface of another package's class: it is described there.
    """
    seen: dict[str, None] = {}
    theirs: set[str] = set()
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("rmqstore"):
            seen |= {name: None for name in vars(base) if name[0] != "_"}
        else:
            theirs |= vars(base).keys()
    return [name for name in seen if name not in theirs | INTERNAL]


def class_entries(module: str, name: str, kind: type, depth: int) -> Iterator[Entry]:
    """Yield a class, then its methods and properties; a store's are named one by one."""
    docstring = documentation(name, kind)
    parts = []
    if issubclass(kind, BaseException):
        bases = [base.__name__ for base in kind.__bases__]
        parts.append("Extends " + ", ".join(f":obj:`{base}`" for base in bases) + ".")
    if "\nParameters\n" in docstring:
        parts.append(signature(name, kind))
    parts.append(rendered(docstring))
    if issubclass(kind, enum.Enum):
        parts.append("\n".join(f"- `{one.name}` = {one.value}" for one in kind))
    if name == STORE:
        parts.append("*Methods*\n\n" + "\n".join(store_methods()))
    yield Entry(module, name, depth, docstring, parts)
    if name != STORE:
        for member in own_members(kind):
            yield from member_entries(module, kind, f"{name}.{member}", depth + 1)


def store_methods() -> Iterator[str]:
    """Yield the methods of a store, a line a page."""
    for subject in SUBJECTS.values():
        names = " ".join(subject.names.values()).split()
        methods = [name for name in names if name.startswith(f"{STORE}.")]
        if methods:
            shown = [f":obj:`{name.removeprefix(f'{STORE}.')}`" for name in methods]
            yield f"- {subject.title}: {', '.join(shown)}"


def member_entries(module: str, kind: type, name: str, depth: int) -> Iterator[Entry]:
    """Yield a method or property, unless the docstring of its class describes it."""
    member = name.rpartition(".")[2]
    value = inspect.getattr_static(kind, member)
    plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if inspect.isdatadescriptor(value):
        listed = rf"^(\w+, )*{member}(, \w+)* :"
        if re.search(listed, inspect.getdoc(kind) or "", re.MULTILINE):
            return
        parts = []
    elif callable(plain) and not isinstance(value, enum.Enum):
        parts = [signature(name, plain)]
    else:
        return
    docstring = documentation(name, plain)
    yield Entry(module, name, depth, docstring, [*parts, rendered(docstring)])


def named_entries(module: ModuleType, name: str, depth: int) -> Iterator[Entry]:
    """Yield a public name, and the members of a class."""
    owner = name.rpartition(".")[0]
    if owner:
        yield from member_entries(module.__name__, getattr(module, owner), name, depth)
        return
    value = getattr(module, name)
    call = f"{module.__name__}.{name}"
    plain = inspect.unwrap(value)
    if inspect.isclass(value):
        yield from class_entries(module.__name__, name, value, depth)
    elif inspect.isroutine(plain):
        docstring = documentation(call, plain)
        # A fixture of pytest is not called; rmqstore.serve is a module that is.
        called = plain is value or inspect.ismodule(value)
        parts = [signature(call, plain)] if called else []
        yield Entry(module.__name__, name, depth, docstring, [*parts, rendered(docstring)])
    else:
        docstring = CONSTANTS[name]
        shown = re.sub(r"\b(\w+\.)+", "", str(value)) if get_args(value) else repr(value)
        yield Entry(module.__name__, name, depth, docstring, [f"`{shown}`", rendered(docstring)])


def all_names(module: ModuleType) -> list[str]:
    names: list[str] = module.__all__
    return sorted(names, key=lambda name: (name[0].isupper(), name))


def page_entries() -> dict[str, list[Entry]]:
    """Return the entries of each page; a module stands on its first one."""
    found: dict[str, list[Entry]] = {}
    seen = {"rmqstore"}
    for page, subject in SUBJECTS.items():
        here = found[page] = []
        for module_name, names in subject.names.items():
            module = importlib.import_module(module_name)
            depth = 2
            if module_name not in seen:
                depth = 3
                seen.add(module_name)
                text = documentation(module_name, module)
                here.append(Entry(module_name, "", 2, text, [rendered(text)]))
            for name in all_names(module) if names == "*" else names.split():
                here += named_entries(module, name, depth)
    return found


def linked(text: str, entry: Entry, page: str, places: dict[str, str]) -> str:
    """Make links of the roles in an entry's text."""
    owner = entry.name.partition(".")[0]
    scopes = [f"{entry.module}.{owner}.", f"{entry.module}.", "rmqstore.", f"rmqstore.{STORE}.", ""]

    def link(role: re.Match[str]) -> str:
        found = [places[scope + role[1]] for scope in scopes if scope + role[1] in places]
        if not found:
            return f"`{role[1]}`"
        return f"[`{role[1]}`]({found[0].removeprefix(f'{page}.md')})"

    return ROLE.sub(link, text)


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    found = page_entries()
    places = {
        entry.full_name: f"{page}.md#{entry.anchor}"
        for page, entries_here in found.items()
        for entry in entries_here
    }
    texts = {}
    index = [INDEX_HEAD]
    for page, entries_here in found.items():
        subject = SUBJECTS[page]
        text = [f"# {subject.title}", subject.intro]
        rows = [f"## {subject.title}\n", "| name | |", "|---|---|"]
        for entry in entries_here:
            text.append(f"{'#' * entry.depth} {entry.title}")
            text += [linked(part, entry, page, places) for part in entry.parts]
            first = linked(prose(entry.docstring.splitlines()[0]), entry, "", places)
            rows.append(f"| [`{entry.title}`]({places[entry.full_name]}) | {first} |")
        texts[f"{page}.md"] = "\n\n".join(text) + "\n"
        index.append("\n".join(rows))
    index.append("\n".join(["```{toctree}", ":hidden:", "", *SUBJECTS, "```"]))
    texts["index.md"] = "\n\n".join(index) + "\n"
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    texts = pages()
    existing = {path.name: path for path in PAGES.glob("*.md")}
    old = [
        name
        for name in sorted(texts.keys() | existing.keys())
        if name not in existing or existing[name].read_text(encoding="utf-8") != texts.get(name)
    ]
    if arguments.check:
        for name in old:
            print(f"{name} is not up to date: python scripts/make_api_page.py", file=sys.stderr)
        return 1 if old else 0
    PAGES.mkdir(exist_ok=True)
    for name in old:
        if name in texts:
            (PAGES / name).write_text(texts[name], encoding="utf-8")
        else:
            existing[name].unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
