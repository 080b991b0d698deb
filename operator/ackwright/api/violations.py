"""Turns pydantic's errors into violations that a user can act on.

A violation has the field's path in YAML spelling, its value, the problem, and the remedy.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ackwright.errors import Violation

Location = tuple[str | int, ...]

# Instead of a value that is not shown.
NO_VALUE = object()
_SENSITIVE = re.compile(r"(?i)passw|secret|token|jaas|credential|auth|access.?key|private.?key")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 2
_LONGEST_NAME = 80  # characters; a longer one resembles no field, and the comparison would take long

# Names that a user is likely to try: why a pipeline cannot have them, and what to do.
_SPLITS_RANGES = (
    "would split the batch of one partition among several tasks, and a partition has one task per batch",
    "remove it; add partitions to the topic",
)
_STATEFUL = (
    "is not declared so",
    "declare spec.state for a stateful pipeline, and spec.source.eventTime for its watermark",
)
_DERIVED = ("is derived from the guarantee", "remove it; `ackwright plan --details` shows its value")
_REFUSED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("minPartitions", "maxRecordsPerPartition"), _SPLITS_RANGES),
    **dict.fromkeys(("state", "stateful", "stateStore", "watermark", "window", "outputMode"), _STATEFUL),
    "lanes": ("a lane is a partition of the source", "remove it; add partitions to the topic"),
    **dict.fromkeys(("failOnDataLoss", "isolationLevel", "transactionalId", "idempotence"), _DERIVED),
    **dict.fromkeys(
        ("username", "password"),
        (
            "no password is ever part of a spec",
            "put username and password into a Secret and name it: credentialsSecret",
        ),
    ),
}


@dataclass(frozen=True)
class Problem(Violation):
    """A violation whose text stays short, and does not show a value that is missing or may be a secret."""

    def __str__(self) -> str:
        shown = "" if self.value is NO_VALUE else f" = {_show(self.value)}"
        return f"{self.field}{shown}: {self.problem}; {self.remedy}"

    @classmethod
    def without_value(cls, field: str, problem: str, remedy: str) -> Problem:
        """A problem that does not show the field's value."""
        return cls(field, NO_VALUE, problem, remedy)


def _show(value: object) -> str:
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer beyond Python's limit of digits
        return f"a very large {type(value).__name__}"


def path_of(location: Location) -> str:
    """A location as it is written in YAML: spec.topics[0].partitions, spec.spark.conf["spark.x"]."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", part):
            text += f".{part}" if text else part
        else:
            text += f"[{_show(part)}]"
    return text


def translate(model: type[BaseModel], errors: Sequence[ErrorDetails]) -> tuple[Violation, ...]:
    """Every error as a violation, without those that follow from another.

    A misspelt field is not also missing, and a list is not too short because its entries are wrong.
    """
    placed = [(_location(error), error) for error in errors]
    consequences = {("too_short", at[:-1]) for at, _ in placed if at}
    for at, error in placed:
        if error["type"] == "extra_forbidden" and (nearest := _nearest(str(at[-1]), _names(_model_at(model, at[:-1])))):
            consequences.add(("missing", (*at[:-1], nearest)))
    return tuple(_violation(model, at, error) for at, error in placed if (error["type"], at) not in consequences)


def _location(error: ErrorDetails) -> Location:
    at = tuple(error["loc"])
    return at[:-1] if at and at[-1] == "[key]" else at


def _violation(model: type[BaseModel], at: Location, error: ErrorDetails) -> Violation:
    field, kind, context = path_of(at), error["type"], error.get("ctx", {})
    if kind == "missing":
        return Problem.without_value(field, "is required", "add it")
    if kind == "extra_forbidden":
        return _unknown(model, at, error["input"])
    problem, remedy = _explain(kind, error, context)
    if kind == "string_type":
        remedy = _remedy_of_text(model, at, error["input"]) or remedy
    if kind in _MAPPING and (names := _names(_model_at(model, at))):
        remedy += f": {', '.join(names)}"
    if kind in _MAPPING and _SENSITIVE.search(field):  # spec.kafka.auth: a password
        return Problem.without_value(field, problem, remedy)
    return Problem(field, NO_VALUE if error["input"] is None else error["input"], problem, remedy)


_MAPPING = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
_PLAIN: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("int_type", "int_from_float"), ("must be a whole number", "write it without quotes and fractions")
    ),
    "bool_type": ("must be true or false", "write true or false, without quotes"),
    **dict.fromkeys(_MAPPING, ("must be a mapping of fields", "write the fields below it, indented")),
    "too_short": ("must have at least one entry", "add one"),
}


def _explain(kind: str, error: ErrorDetails, context: Mapping[str, Any]) -> tuple[str, str]:
    """The problem and the remedy of an error. Checks and patterns bring their own."""
    value = error["input"]
    match kind:
        case _ if "remedy" in context:
            return error["msg"], str(context["remedy"])
        case _ if kind in _PLAIN:
            return _PLAIN[kind]
        case "enum" | "literal_error":
            return _choice(value, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        case "string_type":
            scalar = isinstance(value, bool | int | float)
            return "must be text", f'put it in quotes: "{_yaml(value)}"' if scalar else "write text"
        case "tuple_type" | "list_type":
            entries = value if isinstance(value, str) and 0 < len(value) <= _SHORT.maxstring else "a, b"
            return "must be a list", f"write [{entries}], or one entry for each line after '- '"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters", "shorten it"
        case "too_long":
            return f"must have at most {context['max_length']} entries", "remove some"
        case "greater_than_equal":
            return f"must be at least {context['ge']}", f"write {context['ge']} or more"
        case "less_than_equal":
            return f"must be at most {context['le']}", f"write {context['le']} or less"
        case _:
            return error["msg"], "correct it"


def _remedy_of_text(model: type[BaseModel], at: Location, value: object) -> str:
    """The remedy if the field refuses the value also as text, such as interval: "1"; otherwise empty."""
    parent = _model_at(model, at[:-1])
    if parent is None or not isinstance(value, int | float):
        return ""
    try:
        parent.model_validate({at[-1]: _yaml(value)})
    except ValidationError as e:
        errors = (error for error in e.errors(include_url=False) if error["loc"] == at[-1:])
        return next((_explain(error["type"], error, error.get("ctx", {}))[1] for error in errors), "")
    return ""


def _choice(value: object, choices: Sequence[str]) -> tuple[str, str]:
    if isinstance(value, int | float) and _yaml(value) in choices:  # acks: 1 is a number in YAML
        remedy = f'put it in quotes: "{_yaml(value)}"'
    else:
        nearest = _nearest(value.replace("_", "-"), choices) if isinstance(value, str) else None
        remedy = f"did you mean {nearest}?" if nearest else "choose one of them"
    return f"must be one of {', '.join(choices)}", remedy


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else _show(value)


def _unknown(model: type[BaseModel], at: Location, value: object) -> Violation:
    name, parent = str(at[-1]), at[:-1]
    if name in _REFUSED:
        problem, remedy = _REFUSED[name]
    else:
        known = _names(_model_at(model, parent))
        elsewhere = _places(model).get(name, ())
        nearest = _nearest(name, known)
        problem = "unknown field"
        if nearest:
            remedy = f"did you mean {nearest}?"
        elif elsewhere:
            remedy = f"it belongs below {elsewhere[0] or 'the top'}"
        else:
            remedy = f"remove it; known here: {', '.join(known)}"
    field = path_of(at)
    if _SENSITIVE.search(name) or isinstance(value, Mapping | list | tuple):
        return Problem.without_value(field, problem, remedy)
    return Problem(field, value, problem, remedy)


def _nearest(name: str, known: Sequence[str]) -> str | None:
    if len(name) > _LONGEST_NAME:
        return None
    folded = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(name.lower().replace("_", ""), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models of which a type is made: Topic of tuple[Topic, ...]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def _tree(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every model of the resource, with the path at which it stands."""
    yield path, model
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            listed = "[]" if "tuple" in str(field.annotation) else ""
            yield from _tree(inner, f"{path}.{field.alias or name}{listed}".lstrip("."))


@cache
def _models(model: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """The models of the resource by their paths; the first one, where several are possible."""
    return dict(reversed(tuple(_tree(model))))


@cache
def _places(model: type[BaseModel]) -> Mapping[str, Sequence[str]]:
    """The paths of the models that have a field of this name."""
    places: dict[str, list[str]] = {}
    for path, below in _tree(model):
        for name in _names(below):
            places.setdefault(name, []).append(path)
    return places


def _model_at(model: type[BaseModel], at: Location) -> type[BaseModel] | None:
    return _models(model).get(re.sub(r"\[\d+\]", "[]", path_of(at)))


def _names(model: type[BaseModel] | None) -> list[str]:
    """The names of a model's fields in YAML spelling."""
    return [field.alias or name for name, field in model.model_fields.items()] if model else []
