"""`make pictures`: draws the pictures of docs/images whose source is code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pictures import charts, dashboards, losses, overview
from pictures.svg import Picture

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "images"
FIGURES = ROOT / "docs" / "figures"
DASHBOARDS = ROOT / "charts" / "ackwright" / "dashboards"
# Pages that show the charts of a file of figures once it exists.
PAGES = (ROOT / "docs" / "acknowledgements.md",)


def pictures() -> tuple[Picture, ...]:
    """All of them."""
    return (
        *overview.pictures(),
        *losses.pictures(),
        *charts.pictures(FIGURES),
        *dashboards.pictures(FIGURES, DASHBOARDS),
    )


def files() -> Mapping[str, str]:
    """The content of each file, by its name."""
    return {f"{picture.name}.svg": picture.svg() for picture in pictures()}


def main() -> int:
    """Writes the files and shows them on PAGES; removes files that no code draws any more."""
    PLACE.mkdir(exist_ok=True)
    for file in PLACE.glob("*.svg"):
        file.unlink()
    for name, content in files().items():
        (PLACE / name).write_text(content)
        print(f"docs/images/{name}")
    for page in PAGES:
        page.write_text(charts.with_charts(page.read_text(), FIGURES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
