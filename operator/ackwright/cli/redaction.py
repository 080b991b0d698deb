"""Removes secrets from text and documents that leave the cluster.

Two methods complement each other: known secret values are removed in every encoding, and anything that resembles a
secret by name or form is removed as well. Removing too much is harmless; removing too little is not.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

REDACTED = "REDACTED"

_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|jaas|private[-_.]?key|access[-_.]?key|api[-_.]?key"
    r"|authorization|credential)"
)
# A message may be truncated inside a quoted value, so the closing quote is optional.
_VALUE = r"""(?:\\*"(?:[^"\\\n]|\\[^"\n])*(?:\\*"|(?=\n)|\Z)|'[^']*'|\S+)"""
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_BASE64, _BREAK = "[A-Za-z0-9+/=]", r"(?:\s|\\n)"
_OPTION = re.compile(rf"(?<![\w.-])--?[\w.-]{{0,60}}{_NAME}[\w.-]*", re.IGNORECASE)
_REFERENCES = frozenset({"secretName"})  # the name of an object, not a secret value
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})  # repeat other fields
_MIN_LENGTH = 4  # shorter values occur in too many words

# Logs contain long words: each pattern is written to be tried once per word, not once per character.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"), REDACTED),
    # A key whose beginning is truncated.
    (
        re.compile(
            rf"(?<!{_BASE64})(?:(?>{_BASE64}{{24,}})(?>{_BREAK}+))+(?>{_BASE64}*{_BREAK}*)"
            r"-----END [A-Z ]*PRIVATE KEY-----"
        ),
        REDACTED,
    ),
    (re.compile(r"""(sasl\.jaas\.config\\*["']?[ \t]*[:=][ \t]*)[^\n]*"""), rf"\1{REDACTED}"),
    (re.compile(r"\b\w*LoginModule\s+\w+\s[^;\n]*;?"), REDACTED),
    (re.compile(r"\b(Bearer|Basic|Negotiate)\s+[\w+/=.~-]{6,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?"), REDACTED),
    (re.compile(r"\b([A-Za-z][\w+.-]{0,30}://)[^\s@/]*:[^\s@]*@"), rf"\1{REDACTED}@"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}"), REDACTED),
    (re.compile(rf"""({_NAME}[\w.-]*\\*["']?[ \t]*[:=][ \t]*){_VALUE}""", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(rf"({_OPTION.pattern}[ \t]+){_VALUE}", re.IGNORECASE), rf"\1{REDACTED}"),
)


class Redaction:
    """Removes secrets. known: secret values."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        encoded = {encoding for value in known for encoding in _encodings(value)}
        self._known = sorted(encoded, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without known secrets and without anything that resembles a secret."""
        for value in self._known:
            text = text.replace(value, REDACTED)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def document(self, value: Any, name: str = "") -> Any:
        """The document with every text redacted, without fields that repeat others.

        name: the field that contains the value. The value of a field with a secret's name is removed completely.
        """
        if isinstance(value, Mapping):
            fields = {k: v for k, v in value.items() if k not in _DROPPED}
            variable = str(fields.get("name", ""))  # of an environment variable or a header
            return {
                self.text(str(k)): self.document(v, f"{k} {variable}" if k == "value" else str(k))
                for k, v in fields.items()
            }
        if isinstance(value, list | tuple):
            after_option = [False, *(isinstance(v, str) and bool(_OPTION.fullmatch(v)) for v in value)]
            return [
                REDACTED if follows else self.document(v, name) for v, follows in zip(value, after_option, strict=False)
            ]
        if not isinstance(value, str):
            return value
        if name not in _REFERENCES and _SECRET_NAME.search(name):
            return REDACTED
        return self.text(value)


def _encodings(value: str) -> Iterator[str]:
    """The forms in which a value occurs in text: as it is, line by line, and encoded as JSON, URL or base64."""
    for part in {value.strip(), *(line.strip() for line in value.splitlines())}:
        if len(part) < _MIN_LENGTH:
            continue
        yield part
        yield json.dumps(part)[1:-1]
        yield json.dumps(json.dumps(part)[1:-1])[1:-1]  # in a JSON document inside a JSON string
        yield quote(part, safe="")
    for complete in {value, value.strip()}:
        if len(complete) >= _MIN_LENGTH:
            yield base64.b64encode(complete.encode()).decode()
