"""How a field of the spec is declared: its type, its description, and what a change of it takes, in one place.

The CRD, the reference page, the classes of changes and the error messages are derived from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ackwright.api.checks import MODEL_CHECK, Check, Transition, with_entry
from ackwright.api.violations import models_in

# pydantic's context for a document from which fields were removed: checks of whole models do not apply to it.
PARTIAL = "partial"

# Lists are atomic to server-side apply unless the schema names what identifies an entry.
SET: Mapping[str, Any] = {"x-kubernetes-list-type": "set"}


def map_by(key: str) -> Mapping[str, Any]:
    """A list whose entries are identified by one of their fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class ChangeClass(StrEnum):
    """What a change of a field takes, in rising order."""

    LIVE = "live"  # the job runs on
    RESTART = "restart"  # the job drains, and the next driver resumes from the committed offsets
    NEW_STATE = "new state"  # the stored state no longer fits
    IMMUTABLE = "immutable"  # refused: it takes another pipeline


@dataclass(frozen=True)
class About:
    """What the CRD says about a field beyond its type, and what a change takes. Stands in the field's `Annotated`."""

    description: str
    # None: as the parent.
    change: ChangeClass | None = None
    # Why a change takes that. Required with `change`.
    why: str = ""
    # More keys of the field's schema.
    schema: Mapping[str, Any] = field(default_factory=dict)
    # Of a mapping: its keys that differ from the others in what a change takes.
    keys: Mapping[str, tuple[ChangeClass, str]] = field(default_factory=dict)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "description": self.description, **self.schema}


class Model(BaseModel):
    """Frozen, camelCase in YAML, and strict about names: an unknown field is an error, never ignored."""

    # defer_build: validators are made for the models that are validated, and not for each of their parts at import.
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True)

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        """The conditions on the model as a whole."""
        return ()

    @model_validator(mode="after")
    def _require_checks(self, info: ValidationInfo) -> Self:
        if info.context != PARTIAL:
            for check in self.checks():
                check.require(self, MODEL_CHECK)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        target = handler.resolve_ref_schema(reference)
        entries = [check.entry for check in cls.checks()]
        for name, declared in fields(cls):
            transitions = [item for item in declared.metadata if isinstance(item, Transition)]
            entries += [entry for transition in transitions if (entry := transition.parent_entry(name))]
        for entry in entries:
            target.update(with_entry(target, entry))
        return reference


def exactly_one_of(model: type[BaseModel], *besides: str) -> Check[Any]:
    """Of all fields of a model exactly one is set, not counting those with the names `besides`."""
    names = [name for name, _ in fields(model) if name not in besides]
    present = ", ".join(f"has(self.{name})" for name in names)
    return Check(
        lambda value: len(_names_set(value, besides)) == 1,
        f"must have exactly one of {', '.join(names)}",
        "remove all but one, or add one of them",
        cel=f"[{present}].filter(present, present).size() == 1",
        detail=lambda value: f", and has {' and '.join(_names_set(value, besides)) or 'none'}",
    )


def _names_set(value: BaseModel, besides: Sequence[str]) -> list[str]:
    names = ((f.alias or name, getattr(value, name)) for name, f in type(value).model_fields.items())
    return [name for name, of_field in names if of_field is not None and name not in besides]


def fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of a model, by their names in YAML."""
    return ((declared.alias or name, declared) for name, declared in model.model_fields.items())


def about(declared: FieldInfo) -> About | None:
    """What a field's declaration says about it."""
    return next((m for m in declared.metadata if isinstance(m, About)), None)


def change_of(model: type[BaseModel], path: Sequence[str], before: object, after: object) -> tuple[ChangeClass, str]:
    """What a change of the value at a path takes, and why. In the path a list's entry or a mapping's key is one part.

    Raises LookupError for a path that is not declared, or that has no class.
    """
    takes: tuple[ChangeClass, str] | None = None
    below: type[BaseModel] | None = model
    rest = list(path)
    while rest and below:
        declared = dict(fields(below))[rest.pop(0)]
        takes = _own_class(declared, rest, before, after) or takes
        below = next(models_in(declared.annotation), None)
        if rest and _is_collection(declared.annotation):
            rest.pop(0)
    if takes is None:
        raise LookupError(f"no class of changes: {'.'.join(path)}")
    return takes


def _own_class(
    declared: FieldInfo, rest: Sequence[str], before: object, after: object
) -> tuple[ChangeClass, str] | None:
    """What the field's own declaration says. rest: the path below it."""
    for item in declared.metadata:
        if isinstance(item, Transition) and not rest and not item.allowed(before, after):
            return ChangeClass.IMMUTABLE, item.message
    entry = about(declared)
    if entry is None:
        return None
    if rest and rest[0] in entry.keys:
        return entry.keys[rest[0]]
    return (entry.change, entry.why) if entry.change else None


def _is_collection(annotation: object) -> bool:
    if get_origin(annotation) in (tuple, Mapping):
        return True
    return any(get_origin(option) in (tuple, Mapping) for option in get_args(annotation))
