"""Check a release: one version everywhere, a dated section of CHANGELOG.md, the tag.

With a folder of built files as the argument these are checked as well.  An undated section is no
release yet: this is reported, and is no failure.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEADING = re.compile(r"^## \[(.+?)\] - (Unreleased|\d{4}-\d\d-\d\d)$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def text_problems(root: Path) -> list[str]:
    """Return where the versions of the files differ."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    module = VERSION.search((root / "src/rmqstore/__init__.py").read_text())
    others = {
        "src/rmqstore/__init__.py": module[1] if module else "none",
        "CHANGELOG.md, topmost section": release(root)[0],
    }
    return [
        f"{name}: {other}; pyproject.toml: {version}"
        for name, other in others.items()
        if other != version
    ]


def release(root: Path) -> tuple[str, str]:
    """Return version and date, or ``Unreleased``, of the topmost section of the changelog."""
    heading = HEADING.search((root / "CHANGELOG.md").read_text())
    return (heading[1], heading[2]) if heading else ("none", "Unreleased")


def tag_problems(root: Path, tag: str) -> list[str]:
    """Return the defects of a tag: missing, at another commit, changed files."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    tagged = git("rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    if not tagged:
        return [f"{tag}: no such tag"]
    problems = []
    if tagged != git("rev-parse", "HEAD"):
        problems.append(f"{tag}: not at this commit")
    if git("status", "--porcelain"):
        problems.append(f"{tag}: the files differ from it")
    return problems


def file_problems(folder: Path, version: str) -> list[str]:
    """Return the defects of the built files' names."""
    names = sorted(path.name for path in folder.iterdir())
    wheel = re.compile(rf"rmqstore-{re.escape(version)}-cp\d+-cp\d+-manylinux_\d+_\d+_\w+\.whl")
    if len(names) != 2 or names[1] != f"rmqstore-{version}.tar.gz" or not wheel.match(names[0]):
        return [f"{folder}: {names}; expected an sdist and a manylinux wheel of {version}"]
    return []


def main() -> int:
    problems = text_problems(ROOT)
    version, date = release(ROOT)
    if len(sys.argv) > 1:
        problems += file_problems(Path(sys.argv[1]), version)
    if date != "Unreleased":
        problems += tag_problems(ROOT, f"v{version}")
    print(*problems, sep="\n", end="\n" if problems else "")
    state = "no date in CHANGELOG.md yet" if date == "Unreleased" else f"of {date}"
    print(f"check_release: {version}, {state}, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
