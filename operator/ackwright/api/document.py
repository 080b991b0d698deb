"""Reads one YAML document from a file, with a sentence for everything that can be wrong before its fields matter."""

from __future__ import annotations

import codecs
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ackwright.api.places import Fields
from ackwright.api.violations import Problem
from ackwright.errors import AckwrightError, InvalidSpec, Place, Violation
from ackwright_stream.reasons import Reason

# An object of the API server is smaller: etcd allows 1.5 MiB with all its overhead.
MAX_BYTES = 1 << 20

# Levels of lists and maps, those of aliases included. A pipeline has less than 20; what walks its values is recursive.
MAX_DEPTH = 100

STANDARD_INPUT = Path("-")


class _Unbounded(Exception):
    """Values that take more memory, or are nested deeper, than those of a pipeline can be."""

    def __init__(self, problem: str, remedy: str, mark: yaml.Mark | None) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.mark = problem, remedy, mark


@dataclass(frozen=True)
class _Extent:
    """What a value is with its aliases in full."""

    size: int  # its characters, and one for each scalar, list and map
    height: int  # levels of lists and maps


class _Loader(yaml.SafeLoader):
    """Refuses what PyYAML handles badly.

    Of a key that appears twice it silently takes the last value. For a value that does not fit the tag before it, it
    raises errors of its internals. Values that are small as a text may be endless with their aliases in full.
    """

    def compose_document(self) -> yaml.Node | None:
        node = super().compose_document()
        if node is not None:
            _extent(node, {})
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (LookupError, AttributeError, TypeError) as e:  # !!int "", !!bool x, !!timestamp x
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"the value is not a valid {kind}", node.start_mark
            ) from e

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        if not isinstance(node, yaml.MappingNode):  # !!map [a]
            raise yaml.constructor.ConstructorError(None, None, "the value is not a map", node.start_mark)
        scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        own = Counter(key.value for key in scalars if key.tag != "tag:yaml.org,2002:merge")
        for key in scalars:
            if own[key.value] > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears more than once", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def _extent(node: yaml.Node, known: dict[yaml.Node, _Extent | None]) -> _Extent:
    """The extent of a node. known: of the nodes before it; None of those around it. Raises _Unbounded."""
    if node in known:
        extent = known[node]
        if extent is None:
            raise _Unbounded("the value of the anchor contains itself", "write it without the alias", node.start_mark)
        return extent
    known[node] = None
    if isinstance(node, yaml.ScalarNode):
        extent = _Extent(1 + len(node.value), 0)
    else:
        size, height = 1, 0
        values = (part for pair in node.value for part in pair) if isinstance(node, yaml.MappingNode) else node.value
        for value in values:
            part = _extent(value, known)
            size, height = size + part.size, max(height, part.height)
            if size > MAX_BYTES:
                problem = "the file is larger than 1 MiB with its aliases in full"
                raise _Unbounded(problem, "write the values of a pipeline without them", node.start_mark)
            if height >= MAX_DEPTH:
                raise _too_deep(node.start_mark)
        extent = _Extent(size, height + 1)
    known[node] = extent
    return extent


def _too_deep(mark: yaml.Mark | None = None) -> _Unbounded:
    problem = f"not a spec: it is nested more than {MAX_DEPTH} levels deep"
    return _Unbounded(problem, "name the file of one DeliveryPipeline", mark)


@dataclass(frozen=True)
class Document:
    """A YAML document, and the text that it was read from."""

    path: Path
    text: str
    value: object

    def located(self, violations: Iterable[Violation]) -> tuple[Violation, ...]:
        """The violations with their places in the file."""
        violations = tuple(violations)
        if not violations:
            return ()
        fields = Fields(self.text)
        return tuple(replace(v, place=Place(str(self.path), *fields.place(v.field, v.offset))) for v in violations)


def read(path: Path) -> object:
    """The value of the only YAML document of a file. Raises as load() does."""
    return load(path).value


def load(path: Path) -> Document:
    """The only YAML document of a file, or of standard input if the path is -, as with kubectl.

    Raises AckwrightError (FileUnreadable) if it cannot be read, and InvalidSpec if it is not one document.
    """
    try:
        content = sys.stdin.buffer.read(MAX_BYTES + 1) if path == STANDARD_INPUT else _beginning(path)
        if len(content) > MAX_BYTES:
            raise _not_one_spec(path, "the file is larger than 1 MiB", "name the file of one DeliveryPipeline")
        text = content.decode()
    except FileNotFoundError:
        raise _unreadable(path, "there is no such file", "check the path after -f") from None
    except IsADirectoryError:
        raise _unreadable(path, "this is a directory", "name a YAML file") from None
    except UnicodeDecodeError as e:
        raise _not_utf8(path, content, e.start) from None
    except (OSError, ValueError) as e:  # ValueError: a NUL character in the path
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise _unreadable(path, f"the file cannot be read ({why})", "check its path and permissions") from None
    return of_text(path, text)


def of_text(path: Path, text: str) -> Document:
    """The only YAML document of a text. path: its name in messages. Raises InvalidSpec if it is not one document."""
    try:
        values = _values(text)
    except yaml.MarkedYAMLError as e:
        place = _place(path, e.problem_mark)
        raise _not_one_spec(path, f"not valid YAML: {e.problem}", _remedy(e, text), place) from e
    except _Unbounded as e:
        raise _not_one_spec(path, e.problem, e.remedy, _place(path, e.mark)) from e
    except (yaml.YAMLError, ValueError, OverflowError) as e:  # ValueError: 2024-13-45 looks like a date to YAML
        raise _not_one_spec(path, f"not valid YAML: {' '.join(str(e).split())}", "correct the syntax") from e
    documents = [value for value in values if value is not None]
    if not documents:
        raise _not_one_spec(
            path,
            "the file is empty, or has only comments, and exactly one DeliveryPipeline is expected",
            "name the file of a pipeline",
            Place(str(path), 1, 1),
        )
    if len(documents) > 1:
        raise _not_one_spec(
            path,
            f"the file holds {len(documents)} YAML documents, and exactly one DeliveryPipeline is expected",
            "write one pipeline per file",
            Place(str(path), _second_document(text, values), 1),
        )
    return Document(path, text, documents[0])


def _values(text: str) -> list[object]:
    """The values of all documents of a text. Raises yaml.YAMLError and _Unbounded."""
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except RecursionError as e:  # PyYAML's own, before the depth is known
        raise _too_deep() from e


def _place(path: Path, mark: yaml.Mark | None) -> Place | None:
    return Place(str(path), mark.line + 1, mark.column + 1) if mark else None


def _not_utf8(path: Path, content: bytes, at: int) -> InvalidSpec:
    """The error for content that is not UTF-8. at: the index of its first wrong byte."""
    before = content[:at].decode()
    place = Place(str(path), before.count("\n") + 1, len(before) - before.rfind("\n"))
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _not_one_spec(path, "the file is UTF-16 text", "save it as UTF-8", place)
    if b"\0" in content:
        return _not_one_spec(path, "the file is not text", "name a YAML file", place)
    wrong = f"the file is not UTF-8 text: it has the byte 0x{content[at]:02x}"
    return _not_one_spec(path, wrong, "save it as UTF-8", place)


def _remedy(error: yaml.MarkedYAMLError, text: str) -> str:
    """What to do about a text that is not YAML, of the causes that are frequent."""
    mark = error.problem_mark
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if "{{" in line:
        return "render the template first, for instance with helm template, and name its output"
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces: YAML allows no tabs there"
    problem, start = error.problem or "", error.context_mark.line + 1 if error.context_mark else 0
    if "mapping values are not allowed" in problem:
        return "align the fields of one level, or put a value that contains ': ' in quotes"
    if problem.startswith("expected <block end>"):
        if "<scalar>" in problem:
            return "put quotes around the complete value"
        return "align this line with the other lines of its level"
    if problem.startswith("expected ','"):
        return f"close the bracket of line {start}, or add the comma"
    if "unexpected end of stream" in problem and start:
        return f"close the quote of line {start}"
    if "cannot start any token" in problem:
        return "put the value in quotes"
    if "unknown escape character" in problem:
        return "use single quotes, in which a backslash has no meaning"
    return "correct the syntax"


def _second_document(text: str, values: Sequence[object]) -> int:
    """The line of the second document that is not empty, from 1. values: those of all documents."""
    events = (e for e in yaml.parse(text, Loader=_Loader) if isinstance(e, yaml.DocumentStartEvent))
    starts = [event.start_mark.line + 1 for event in events if event.start_mark]
    return [line for line, value in zip(starts, values, strict=True) if value is not None][1]


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _unreadable(path: Path, problem: str, remedy: str) -> AckwrightError:
    return AckwrightError(Reason.FILE_UNREADABLE, f"{path}: {problem}; {remedy}")


def _not_one_spec(path: Path, problem: str, remedy: str, place: Place | None = None) -> InvalidSpec:
    return InvalidSpec([replace(Problem.without_value(str(path), problem, remedy), place=place)])
