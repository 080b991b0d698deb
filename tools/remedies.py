"""What docs/conditions.md says about each reason, as JSON for the console: cause, remedy and command."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "operator" / "ackwright" / "console" / "remedies.json"
_COLUMNS = ["reason", "cause", "what to do", "command"]
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def by_reason(page: str) -> dict[str, dict[str, str]]:
    """The rows of the page's tables of reasons; a row with several reasons counts for each of them."""
    remedies = {}
    for line in page.splitlines():
        # A bar in a cell is written \|.
        cells = [_plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) == len(_COLUMNS) and cells[0].startswith("`"):
            for reason in re.findall(r"`(\w+)`", cells[0]):
                remedies[reason] = {
                    "cause": cells[1].replace("`", ""),
                    "remedy": cells[2].replace("`", ""),
                    "command": cells[3].strip("`–"),
                }
    return remedies


def _plain(cell: str) -> str:
    return _LINK.sub(r"\1", cell).replace("\\|", "|").strip()


def text() -> str:
    """The content of the file."""
    page = (ROOT / "docs" / "conditions.md").read_text()
    return json.dumps(by_reason(page), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
