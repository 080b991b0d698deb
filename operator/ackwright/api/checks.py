"""Checks of the spec: one value holds the Python predicate, its twin in CEL, the message and the remedy.

Three kinds, by what they check:
- `Check`: a single value or model. Part of its type, so pydantic evaluates it.
- `Transition`: a change of one field. The API server evaluates it; `ackwright plan --against` and `diff` show it.
- `Validation`: fields of a pipeline together. planning.validation evaluates it.

CEL is the API server's expression language: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ackwright.api.violations import NO_VALUE, Problem
from ackwright.errors import Violation

T = TypeVar("T")

# Where a schema of the CRD keeps its conditions in CEL.
CEL_KEY = "x-kubernetes-validations"
# The type of pydantic's error for a check of a model, which is not repeated on a partial document.
MODEL_CHECK = "model_check"


def literal(text: str) -> str:
    """A text as a CEL string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class Cel:
    """The twin of a check in CEL: one entry of the CRD's x-kubernetes-validations."""

    # True of a valid value, which the expression calls `self`. One that names oldSelf is evaluated for updates only.
    expression: str
    # Path of the schema node that carries it, for instance spec.topics[].name. Used by validations only.
    on: str = ""
    # The field below `self` that the error names, for instance .topics; empty: `self` itself.
    at: str = ""
    # Added to the check's message, where Python adds the actual values.
    detail: str = ""
    # Instead of the check's remedy, which may be more specific in Python.
    remedy: str = ""
    # From the finished message to a CEL expression that says more, for instance which entry is wrong.
    expand: Callable[[str], str] | None = None

    def entry(self, message: str, remedy: str) -> dict[str, str]:
        """The entry of x-kubernetes-validations."""
        text = f"{message}{self.detail}; {self.remedy or remedy}"
        entry = {"rule": self.expression, "message": text}
        if self.expand:
            entry["messageExpression"] = self.expand(text)
        return {**entry, "fieldPath": self.at} if self.at else entry


def with_entry(schema: JsonSchemaValue, entry: Mapping[str, str]) -> JsonSchemaValue:
    """The schema with one more entry of x-kubernetes-validations."""
    return {**schema, CEL_KEY: [*schema.get(CEL_KEY, ()), dict(entry)]}


def no_detail(_: object) -> str:
    """No detail."""
    return ""


@dataclass(frozen=True)
class Check(Generic[T]):
    """A condition on one value. In `Annotated` it validates the value; a model returns its own from `Model.checks`."""

    valid: Callable[[T], bool]
    message: str
    remedy: str
    cel: str
    # The field of a model that is wrong, as written in YAML; empty: the value as a whole.
    field: str = ""
    # Added to the message in Python: what exactly is wrong with this value.
    detail: Callable[[T], str] = no_detail

    @property
    def entry(self) -> dict[str, str]:
        """The twin in CEL, as an entry of x-kubernetes-validations."""
        return Cel(self.cel, at=f".{self.field}" if self.field else "").entry(self.message, self.remedy)

    def require(self, value: T, error_type: str = "check") -> T:
        """The value. Raises PydanticCustomError if it is not valid."""
        if self.valid(value):
            return value
        context = {"message": f"{self.message}{self.detail(value)}", "remedy": self.remedy, "field": self.field}
        raise PydanticCustomError(error_type, "{message}", context)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.require, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return with_entry(handler(schema), self.entry)


@dataclass(frozen=True)
class Transition(Generic[T]):
    """A condition on the change of one field; what breaks it is refused. Stands in the field's `Annotated`."""

    # From the value before and after, as in JSON; None if the field is absent.
    allowed: Callable[[T, T], bool]
    message: str
    remedy: str
    # {field} is the field's name. With it the condition stands at the parent, where an absent field can be compared.
    cel: str

    def parent_entry(self, field: str) -> dict[str, str] | None:
        """The entry at the field's parent; None if it stands at the field itself."""
        if "{field}" not in self.cel:
            return None
        return Cel(self.cel.replace("{field}", field), at=f".{field}").entry(self.message, self.remedy)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if "{field}" in self.cel:
            return handler(schema)
        return with_entry(handler(schema), Cel(self.cel).entry(self.message, self.remedy))


def unchangeable(message: str, remedy: str) -> Transition[Any]:
    """A transition that allows no change at all."""
    return Transition(
        lambda before, after: before == after,
        message,
        remedy,
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
    )


def unchangeable_presence(message: str, remedy: str) -> Transition[Any]:
    """A transition that allows another value, but neither adds nor removes the field."""
    return Transition(
        lambda before, after: (before is None) == (after is None),
        message,
        remedy,
        cel="has(self.{field}) == has(oldSelf.{field})",
    )


@dataclass(frozen=True)
class Broken:
    """Where a validation does not hold."""

    # The field's path, for instance spec.topics[0].config['min.insync.replicas'].
    field: str
    # Not shown if absent.
    value: object = NO_VALUE
    # Added to the validation's message: the actual values.
    detail: str = ""
    # Instead of the validation's remedy.
    remedy: str = ""


@dataclass(frozen=True)
class Validation(Generic[T]):
    """A condition on several fields together. T: what it checks, for instance a pipeline."""

    message: str
    remedy: str
    # The paths of the fields on which it depends, each standing for all fields below it. While one of them is wrong
    # by itself, the validation is skipped.
    reads: tuple[str, ...]
    find: Callable[[T], Iterator[Broken]]
    cel: tuple[Cel, ...] = ()
    # Why the API server does not check it: it cannot, or the schema itself does.
    not_in_cel: str = ""

    def __post_init__(self) -> None:
        if bool(self.cel) == bool(self.not_in_cel):
            raise ValueError(f"{self.message}: needs either CEL or the reason why there is none")

    def violations(self, subject: T) -> Iterator[Violation]:
        """Every place where it does not hold."""
        for broken in self.find(subject):
            text = f"{self.message}{broken.detail}"
            yield Problem(broken.field, broken.value, text, broken.remedy or self.remedy)

    def entries(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Its entries of x-kubernetes-validations, each with the path of the schema node that carries it."""
        return ((cel.on, cel.entry(self.message, self.remedy)) for cel in self.cel)
