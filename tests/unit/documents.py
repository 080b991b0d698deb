"""The documents of the repository, and the parts of a document that tests compare."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "charts").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *PAGES,
]
# The pipelines of the examples.
EXAMPLES = sorted(f for f in (ROOT / "examples").rglob("*.yaml") if "gitops" not in f.parts)

CHART = ROOT / "charts" / "ackwright"
# Of all pipelines, and of one.
DASHBOARD, PIPELINE_DASHBOARD = (
    json.loads((CHART / "dashboards" / f"{name}.json").read_text()) for name in ("ackwright", "ackwright-pipeline")
)
# docs/conditions.md: the rows of its tables of reasons, and the reasons that they name.
REASON_ROWS = re.findall(
    r"^\| ((?:`\w+`(?:, )?)+) \|(.+)\|(.+)\|(.+)\|$", (ROOT / "docs" / "conditions.md").read_text(), re.MULTILINE
)
REASONS = [name for names, *_ in REASON_ROWS for name in re.findall(r"`(\w+)`", names)]


def prose(file: Path) -> str:
    """The text of a document without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks(file: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [
        text
        for kind, text in re.findall(r"^ *```(\w*)\n(.*?)^ *```", file.read_text(), re.MULTILINE | re.DOTALL)
        if kind == language
    ]


def anchors(file: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and MyST generate them."""
    titles = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", t).replace("`", "").strip().lower() for t in titles]
    return {re.sub(r"[^\w\- ]", "", t).replace(" ", "-") for t in plain}


def broken_links(file: Path) -> list[str]:
    """The links to files and anchors of the repository that do not resolve."""
    links = [link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(file))]
    pages = [(path, anchor, file.parent / path if path else file) for path, _, anchor in links]
    missing = [path for path, _, page in pages if not page.exists()]
    return missing + [f"{p}#{a}" for p, a, page in pages if a and page.exists() and a not in anchors(page)]
