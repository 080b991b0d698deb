"""Every field of the spec is declared completely, and what is declared is what the checks and the CRD use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from ackwright.api.checks import CEL_KEY, Broken, Cel, Check, Transition, Validation, unchangeable
from ackwright.api.fields import (
    About,
    ChangeClass,
    Model,
    about,
    change_of,
    exactly_one_of,
    fields,
)
from ackwright.api.resource import DeliveryPipeline
from ackwright.api.status import Status
from ackwright.api.violations import models_in


def declarations(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], About | None]]:
    """Every field below a model, with what is declared about it."""
    for name, declared in fields(model):
        at = (*path, name)
        yield at, about(declared)
        for below in models_in(declared.annotation):
            yield from declarations(below, (*at, "0") if "tuple" in str(declared.annotation) else at)


def undescribed(model: type[BaseModel]) -> list[str]:
    return [".".join(path) for path, entry in declarations(model) if entry is None or not entry.description]


def without_class(model: type[BaseModel]) -> list[str]:
    """Fields of which nothing says what a change takes, and why."""
    missing = []
    for path, _ in declarations(model):
        try:
            _, why = change_of(model, path, None, None)
        except LookupError:
            why = ""
        except TypeError:  # a transition that compares the values: refused or allowed, it has a message
            why = "transition"
        if not why:
            missing.append(".".join(path))
    return missing


def test_every_field_has_a_description() -> None:
    assert undescribed(DeliveryPipeline) == []
    assert undescribed(Status) == []


def test_every_field_has_a_class_of_changes_and_a_reason() -> None:
    assert without_class(DeliveryPipeline) == ["spec"], "spec itself never changes as a whole"


def test_control_a_field_without_either_is_reported() -> None:
    class Below(Model):
        inner: Annotated[str, About("")] = ""

    class Holder(Model):
        undeclared: str = ""
        described: Annotated[str, About("What it is.")] = ""
        without_why: Annotated[str, About("What it is.", ChangeClass.LIVE)] = ""
        below: Annotated[Below, About("What it is.", ChangeClass.LIVE, "nothing notices")] = Below()

    assert undescribed(Holder) == ["undeclared", "below.inner"]
    assert without_class(Holder) == ["undeclared", "described", "withoutWhy"]


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("spec.source.format", "json", "binary", ChangeClass.RESTART),
        ("spec.source.groupId", None, "g", ChangeClass.IMMUTABLE),
        ("spec.topics.in.partitions", 3, 4, ChangeClass.LIVE),
        ("spec.topics.in.partitions", 4, 3, ChangeClass.IMMUTABLE),
        ("spec.topics.in", {"name": "in"}, None, ChangeClass.LIVE),
        ("spec.topics.in.config.retention", "1", "2", ChangeClass.LIVE),
        ("spec.checkpoint", None, {"volume": {"size": "1Gi"}}, ChangeClass.RESTART),
        ("spec.checkpoint.volume.size", "1Gi", "1024Mi", ChangeClass.LIVE),
        ("spec.sink.kafka.acks", "1", "all", ChangeClass.RESTART),
        ("spec.sink.postgres.createTable", False, True, ChangeClass.RESTART),
        ("spec.sink.postgres.table", "1", "2", ChangeClass.IMMUTABLE),
        ("spec.sink.postgres", None, {"host": "db"}, ChangeClass.IMMUTABLE),
        ("spec.sink.postgres", {"host": "db"}, None, ChangeClass.IMMUTABLE),
        ("metadata.labels.a", "1", None, ChangeClass.LIVE),
        ("metadata.name", "a", "b", ChangeClass.IMMUTABLE),
    ],
)
def test_a_field_has_the_class_of_the_nearest_declaration(
    path: str, before: object, after: object, expected: ChangeClass
) -> None:
    assert change_of(DeliveryPipeline, path.split("."), before, after)[0] is expected


def test_a_key_of_a_mapping_may_have_another_class() -> None:
    for annotation, expected in (
        ("ackwright.io/given-up-topics", ChangeClass.RESTART),
        ("ackwright.io/accepted-positions", ChangeClass.RESTART),
        ("a.b", ChangeClass.LIVE),
    ):
        path = ("metadata", "annotations", annotation)
        assert change_of(DeliveryPipeline, path, None, "{}")[0] is expected


def test_a_path_that_is_not_declared_is_an_error() -> None:
    with pytest.raises(LookupError):
        change_of(DeliveryPipeline, ("spec", "nothing"), None, 1)


EVEN = Check[int](lambda n: n % 2 == 0, "must be even", "add 1", cel="self % 2 == 0", detail=lambda n: f": {n}")


class Numbers(Model):
    """A model with a check of each kind."""

    even: Annotated[Annotated[int, EVEN] | None, About("An even number.")] = None
    odd: Annotated[int | None, About("A number."), unchangeable("is fixed", "write the old one")] = None
    grows: Annotated[
        int, About("A number that grows."), Transition[int](lambda a, b: b >= a, "shrinks", "x", "self >= oldSelf")
    ] = 0

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (
            Check(lambda n: n.even != n.odd, "must differ", "change one", cel="self.even != self.odd", field="odd"),
        )


@pytest.mark.parametrize(
    ("value", "message", "context"),
    [
        ({"even": 3}, "must be even: 3", {"remedy": "add 1", "field": ""}),
        ({"even": 2, "odd": 2}, "must differ", {"remedy": "change one", "field": "odd"}),
    ],
)
def test_a_check_refuses_in_python_with_its_message(value: object, message: str, context: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        Numbers.model_validate(value)
    (error,) = caught.value.errors()
    assert error["msg"] == message
    assert error["ctx"].items() >= context.items()


def test_the_same_checks_are_part_of_the_schema() -> None:
    schema = Numbers.model_json_schema()
    (number, _) = schema["properties"]["even"]["anyOf"]
    assert number[CEL_KEY] == [{"rule": "self % 2 == 0", "message": "must be even; add 1"}]
    assert schema["properties"]["grows"][CEL_KEY] == [{"rule": "self >= oldSelf", "message": "shrinks; x"}]
    of_model, fixed = schema[CEL_KEY]
    assert of_model == {"rule": "self.even != self.odd", "message": "must differ; change one", "fieldPath": ".odd"}
    assert fixed["message"] == "is fixed; write the old one"
    assert fixed["rule"].startswith("has(self.odd) == has(oldSelf.odd)")


def test_exactly_one_of_counts_in_both_languages() -> None:
    class Choice(BaseModel):
        a: int | None = None
        b: int | None = None

    check = exactly_one_of(Choice)
    assert [check.valid(Choice(**values)) for values in ({}, {"a": 1}, {"a": 0, "b": 0})] == [False, True, False]
    assert check.entry["rule"] == "[has(self.a), has(self.b)].filter(present, present).size() == 1"
    assert (check.detail(Choice()), check.detail(Choice(a=1, b=1))) == (", and has none", ", and has a and b")


def test_a_validation_needs_cel_or_the_reason_why_there_is_none() -> None:
    def nothing(_: object) -> Iterator[Broken]:
        return iter(())

    Validation("is wrong", "correct it", (), nothing, not_in_cel="the API server cannot")
    for cel, reason in (((), ""), ((Cel("true", on="spec"),), "the API server cannot")):
        with pytest.raises(ValueError, match="needs either CEL or the reason"):
            Validation("is wrong", "correct it", (), nothing, cel, reason)
