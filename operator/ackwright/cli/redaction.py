"""Takes secrets out of what is to be shown to others. Pure.

Two nets, one behind the other: values that are known to be secret, wherever and however they are written; and what looks like a secret by
its name or its form. Taking out too much is harmless, too little is not.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

REDACTED = "REDACTED"

_NAME = r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|jaas|private[-_.]?key|access[-_.]?key|api[-_.]?key|authorization|credential)"
_VALUE = (
    r"""(?:\\*"(?:[^"\\\n]|\\[^"\n])*(?:\\*"|(?=\n)|\Z)|'[^']*'|\S+)"""  # messages are cut off, also amid a quotation
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_BASE64, _BREAK = "[A-Za-z0-9+/=]", r"(?:\s|\\n)"
_OPTION = re.compile(rf"(?<![\w.-])--?[\w.-]{{0,60}}{_NAME}[\w.-]*", re.IGNORECASE)
_REFERENCES = frozenset({"secretName"})  # of an object, whose content is elsewhere
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})  # say again what is there
_SHORTEST = 4  # a value of fewer characters is found in every other word

# Logs are long, and so are some of their words: each form is tried once a word, not once a character.
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"), REDACTED),
    # What was cut off at its beginning.
    (
        re.compile(
            rf"(?<!{_BASE64})(?:(?>{_BASE64}{{24,}})(?>{_BREAK}+))+(?>{_BASE64}*{_BREAK}*)-----END [A-Z ]*PRIVATE KEY-----"
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
    """known: values that are secret, whatever they look like."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        written = {form for value in known for form in _written(value)}
        self._known = sorted(written, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Without what is known to be secret, and without what looks like it."""
        for value in self._known:
            text = text.replace(value, REDACTED)
        for form, instead in _FORMS:
            text = form.sub(instead, text)
        return text

    def document(self, value: Any, name: str = "") -> Any:
        """The same of every text in a document; what has a secret's name goes as a whole, and so do fields that repeat others."""
        if isinstance(value, Mapping):
            kept = {k: v for k, v in value.items() if k not in _DROPPED}
            named = str(kept.get("name", ""))  # of an environment variable, or of a header
            return {
                self.text(str(k)): self.document(v, f"{k} {named}" if k == "value" else str(k)) for k, v in kept.items()
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


def _written(value: str) -> Iterator[str]:
    """A value in the ways in which it may stand somewhere: as it is, each of its lines, quoted, encoded."""
    for part in {value.strip(), *(line.strip() for line in value.splitlines())}:
        if len(part) < _SHORTEST:
            continue
        yield part
        yield json.dumps(part)[1:-1]
        yield json.dumps(json.dumps(part)[1:-1])[1:-1]  # in a text that is a value itself
        yield quote(part, safe="")
    for whole in {value, value.strip()}:
        if len(whole) >= _SHORTEST:
            yield base64.b64encode(whole.encode()).decode()
