"""Reads a document into a DeliveryPipeline.

`parse` and `load` are the only ways to get one. They report everything that is wrong at once, because with
one mistake at a time a user needs as many attempts as there are mistakes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ackwright.api import document as documents
from ackwright.api.checks import MODEL_CHECK
from ackwright.api.fields import PARTIAL, Model
from ackwright.api.job_fields import Spark, Volume
from ackwright.api.resource import (
    ACCEPTED_LOSSES_ANNOTATION,
    ACCEPTED_POSITIONS_ANNOTATION,
    ACCEPTED_STATE_LOSS_ANNOTATION,
    API_VERSION,
    KIND,
    DeliveryPipeline,
    Spec,
    Topic,
)
from ackwright.api.schema_fields import SchemaRegistry
from ackwright.api.secret_fields import Kafka
from ackwright.api.violations import Problem, translate
from ackwright.errors import InvalidSpec, Violation

__all__ = [
    "ACCEPTED_LOSSES_ANNOTATION",
    "ACCEPTED_POSITIONS_ANNOTATION",
    "ACCEPTED_STATE_LOSS_ANNOTATION",
    "API_VERSION",
    "KIND",
    "DeliveryPipeline",
    "Kafka",
    "Model",
    "SchemaRegistry",
    "Spark",
    "Spec",
    "Topic",
    "Volume",
    "examine",
    "load",
    "parse",
]

# What the API server adds to an object: the output of `kubectl get -o yaml` is a spec, too.
_SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
# Values for required fields that are missing or wrong, so that validations of the other fields can still be checked.
_PLACEHOLDERS: Mapping[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "x:1"},
        "source": {"topics": ["x"]},
        "transform": {},
        "sink": {},
    },
}


def examine(
    document: object, model: type[DeliveryPipeline] = DeliveryPipeline
) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    """A document's pipeline, and all that is wrong with its shape.

    With violations the pipeline is the document without the wrong fields, with placeholders for required ones. Its only
    use is to check validations of the other fields. None if not even that is possible.
    """
    another_kind = _another_kind(document)
    if another_kind:
        return None, another_kind
    document = _without_server_fields(document)
    try:
        return model.model_validate(document), ()
    except ValidationError as e:
        errors = [_at_field(error) for error in e.errors(include_url=False)]
    return _partial(document, errors, model), translate(model, errors)


def parse(document: object) -> DeliveryPipeline:
    """The pipeline that a document declares. Raises InvalidSpec with every violation of its shape."""
    pipeline, violations = examine(document)
    if violations or pipeline is None:
        raise InvalidSpec(violations)
    return pipeline


def load(path: Path) -> DeliveryPipeline:
    """The pipeline that a YAML file declares.

    Raises AckwrightError (FileUnreadable) if the file cannot be read, InvalidSpec with every violation of its shape.
    """
    return parse(documents.read(path))


def _another_kind(document: object) -> tuple[Violation, ...]:
    """What is wrong with a document that is no DeliveryPipeline; nothing else is reported about it."""
    if not isinstance(document, Mapping):
        # Its content is not shown: it may be anything.
        return (
            Problem.without_value(
                "the document", "must be a mapping of fields", f"begin with apiVersion: {API_VERSION}, kind: {KIND}"
            ),
        )
    return tuple(
        Problem(name, document[name], f"must be {right}", f"write {name}: {right}")
        if name in document
        else Problem.without_value(name, "is required", f"add {name}: {right}")
        for name, right in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name) != right
    )


def _without_server_fields(document: object) -> object:
    if not isinstance(document, Mapping):
        return document
    own = {name: value for name, value in document.items() if name != "status"}
    if isinstance(own.get("metadata"), Mapping):
        own["metadata"] = {name: value for name, value in own["metadata"].items() if name not in _SERVER_FIELDS}
    return own


def _at_field(error: ErrorDetails) -> ErrorDetails:
    """The error of a model at the field that is wrong, if the check names one."""
    field = error.get("ctx", {}).get("field")
    if not field:
        return error
    value = error["input"].get(field) if isinstance(error["input"], Mapping) else None
    return {**error, "loc": (*error["loc"], field), "input": value}


def _partial(
    document: object, errors: Sequence[ErrorDetails], model: type[DeliveryPipeline]
) -> DeliveryPipeline | None:
    """The pipeline of the document without what is wrong."""
    rest: Any = copy.deepcopy(document)
    for _ in range(4):  # a required field below an optional one takes that one along, and so on upwards
        for error in errors:
            at = error["loc"]
            if error["type"] != MODEL_CHECK:  # these are not repeated on a partial document
                _remove(rest, at[:-1] if error["type"] == "missing" and len(at) > 2 else at)
        rest = _completed(rest, _PLACEHOLDERS)
        try:
            return model.model_validate(rest, context=PARTIAL)
        except ValidationError as e:
            errors = e.errors(include_url=False)
    return None


def _remove(rest: Any, at: tuple[int | str, ...]) -> None:
    """Removes a field. A list is removed as a whole, because later indices would shift."""
    path = list(takewhile(lambda part: isinstance(part, str), at))
    for part in path[:-1]:
        rest = rest.get(part) if isinstance(rest, dict) else None
    if isinstance(rest, dict) and path:
        rest.pop(path[-1], None)


def _completed(document: Any, placeholders: Mapping[str, Any]) -> dict[str, Any]:
    """The document with placeholders for what is missing."""
    if not isinstance(document, Mapping):
        return dict(placeholders)
    missing = {name: value for name, value in placeholders.items() if name not in document}
    below = {
        name: _completed(value, placeholders[name]) if isinstance(placeholders.get(name), Mapping) else value
        for name, value in document.items()
    }
    return {**below, **missing}
