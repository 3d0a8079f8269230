"""Sphinx's configuration of the pages: ``make docs`` writes them to ``build/docs``."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = "rmqstore"
release = version = _PROJECT["version"]
copyright = "the rmqstore authors; Apache-2.0"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"rmqstore {release}"
myst_heading_anchors = 4  # levels that links may lead to, as on GitHub
