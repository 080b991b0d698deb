"""Sphinx configuration of `make docs`. Every warning is an error, including broken links and anchors."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = "Ackwright"
version = release = _PROJECT["version"]
html_title = f"Ackwright {version}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser"]
myst_heading_anchors = 4  # the same anchors as in a repository browser
# For contributors, in the repository (CONTRIBUTING.md).
exclude_patterns = ["design.md", "release-checklist.md", "issue-checklist.md"]
templates_path: list[str] = []
highlight_language = "none"
# Built by make simulator, and by make docs from the page that make console builds.
html_extra_path = ["delivery-simulator.html", "../build/console-example.html"]
