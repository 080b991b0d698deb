"""Where the fields of a YAML document are in its text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from ackwright.api.violations import Location, path_of

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_CODED = {"x": 2, "u": 4, "U": 8}


class Fields:
    """The places of a document's fields: where the name of a field stands, or an entry of a list begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        root = next((node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if _has_content(node)), None)
        self._nodes = {path_of(at): (mark, node) for at, mark, node in _walk(root)} if root is not None else {}

    def place(self, field: str, offset: int | None = None) -> tuple[int, int]:
        """The line and column, from 1, of a field, or of a character of its text.

        Of a field that does not exist: those of the nearest field above it.
        """
        path = re.sub(
            r"\['([^']*)'\]", lambda match: path_of((match[1],)) if "." in match[1] else f".{match[1]}", field
        )
        for above in _upwards(path):
            if above in self._nodes:
                mark, node = self._nodes[above]
                if offset is not None and above == path and isinstance(node, yaml.ScalarNode):
                    return self._of_character(node, offset)
                return mark.line + 1, mark.column + 1
        return 1, 1

    def _of_character(self, node: yaml.ScalarNode, offset: int) -> tuple[int, int]:
        index = _index(self._text, node, offset)
        before = self._text[:index]
        return before.count("\n") + 1, index - before.rfind("\n")


def _has_content(node: yaml.Node | None) -> bool:
    return node is not None and not (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"))


def _walk(node: yaml.Node, at: Location = ()) -> Iterator[tuple[Location, yaml.Mark, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield (*at, key.value), key.start_mark, value
                yield from _walk(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            yield (*at, i), value.start_mark, value
            yield from _walk(value, (*at, i))


def _upwards(path: str) -> Iterator[str]:
    """A path and those above it."""
    while path:
        yield path
        path = re.sub(r"(\.[^.\[\]]*|\[[^\[\]]*\]|^[^.\[\]]*)$", "", path)


def _index(text: str, node: yaml.ScalarNode, offset: int) -> int:
    """The index in the text of a character of a scalar's value. White space may be folded, characters escaped."""
    at, end = node.start_mark.index, node.end_mark.index
    if node.style in ("|", ">"):
        at = text.index("\n", at) + 1
    elif node.style:
        at += 1  # the quote
    value = node.value
    for i, character in enumerate(value):
        if character.isspace():
            if i >= offset:
                return at
            if i and value[i - 1].isspace():
                continue  # with the first of them
            while at < end and text[at].isspace():
                at += 1
            continue
        while at < end and text[at].isspace():  # indentation
            at += 1
        if i >= offset:
            return at
        length = _length(text, at, character, node.style)
        if length is None:
            return node.start_mark.index
        at += length
    return min(at, end)


def _length(text: str, at: int, character: str, style: str | None) -> int | None:
    """How many characters of the text stand for one of the value; None if they do not."""
    if style == "'" and text.startswith("''", at):
        return 2 if character == "'" else None
    if style == '"' and text[at : at + 1] == "\\":
        code = text[at + 1 : at + 2]
        if code in _CODED:
            return 2 + _CODED[code]
        return 2 if _ESCAPES.get(code, code) == character else None
    return 1 if text[at : at + 1] == character else None
