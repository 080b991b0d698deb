"""JSON of the API server that may be nested more deeply than Python can handle.

The API server accepts 10,000 levels, for instance in managedFields, which every writer of an object may set. The parser
of Python raises RecursionError above about 1,000, so one such object would hide all others of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Kubernetes' own kinds have fewer than 30 levels.
DEEPEST = 100
TOO_DEEP = "(nested too deeply)"  # instead of a value below the deepest level; no field of a pipeline accepts it
_IN_TEXT = 2 * DEEPEST  # with the levels of a list, and of managedFields, which are never kept

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def parse(text: bytes) -> Any:
    """The value of a JSON text, in which values are replaced that are nested too deeply for Python.

    Raises ValueError if it is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(b"".join(_shallow(text)))


def _shallow(text: bytes) -> Iterator[bytes]:
    """The parts of the text without what is nested too deeply."""
    level, start = 0, 0
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            level += 1
            if level == _IN_TEXT + 1:
                yield text[start : token.start()]
                yield json.dumps(TOO_DEEP).encode()
        elif first in b"]}":
            if level == _IN_TEXT + 1:
                start = token.end()
            level -= 1
    if level <= _IN_TEXT:  # else the text ends before its brackets do
        yield text[start:]
