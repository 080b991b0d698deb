"""The console's page of the documentation: with a recorded state in it, one file that needs no server.

`python -m unit.console.example` writes it from the built page; `make docs` does.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from ackwright.console import server
from ackwright.console.server import Views
from ackwright.console.source import RecordedSource
from ackwright.console.views import Remedies
from unit.console import recorded

PAGE = Path(server.__file__).with_name("page.html")
FILE = recorded.ROOT / "build" / "console-example.html"
_REMEDIES = PAGE.with_name("remedies.json")
_BODY = '<div id="root"></div>'


def answers() -> dict[str, object]:
    """What the server answers, by path."""
    with tempfile.TemporaryDirectory() as directory:
        source = RecordedSource(recorded.write(Path(directory)))
    views = Views(source, Remedies(json.loads(_REMEDIES.read_text())))
    result: dict[str, object] = {"api/state": {**views.state(), "title": "a recorded state"}}
    for name, (namespace, *_) in recorded.PIPELINES.items():
        result[f"api/pipeline?{urlencode({'namespace': namespace, 'name': name})}"] = views.pipeline(namespace, name)
    return result


def text() -> str:
    """The content of the file."""
    # No text of a value can end the element.
    content = json.dumps(answers(), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    before, after = PAGE.read_text().split(_BODY)
    return f'{before}<script id="recorded" type="application/json">{content}</script>\n    {_BODY}{after}'


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text())
