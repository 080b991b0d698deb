"""The cases that tests/e2e sends to an API server, without one: Ackwright's answer, and the messages in the CRD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ackwright.api.crd import crd
from ackwright.api.fields import ChangeClass
from ackwright.api.spec import DeliveryPipeline, examine, parse
from ackwright.api.status import Status
from ackwright.planning.changes import changes, largest_effect
from ackwright.planning.validation import check, validations
from e2e.crd_cases import CHANGES, MISSHAPEN, WRONG, edited


def messages(schema: Mapping[str, Any]) -> Iterator[str]:
    """Of every check in CEL, here and below."""
    yield from (entry["message"] for entry in schema.get("x-kubernetes-validations", ()))
    for below in (*schema.get("properties", {}).values(), *(schema[key] for key in ("items",) if key in schema)):
        yield from messages(below)


CRD = crd(DeliveryPipeline, Status, validations())
MESSAGES = tuple(messages(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


def refusals(document: object) -> str:
    pipeline, violations = examine(document)
    return "\n".join(str(v) for v in (*violations, *(check(pipeline, violations) if pipeline else ())))


@pytest.mark.parametrize("case", WRONG)
def test_ackwright_and_the_crd_refuse_with_the_same_message(case: str) -> None:
    edits, _, message = WRONG[case]
    assert message in refusals(edited(edits))
    assert any(message in other for other in MESSAGES)


@pytest.mark.parametrize("case", MISSHAPEN)
def test_ackwright_refuses_a_wrong_shape(case: str) -> None:
    assert refusals(edited(MISSHAPEN[case][0]))


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_immutable_exactly_if_the_api_server_refuses_it(case: str) -> None:
    before, edit, message = CHANGES[case]
    document = edited(before)
    edits = changes(parse(document), parse(edited(edit, document)))
    assert (largest_effect(edits) is ChangeClass.IMMUTABLE) == (message is not None)
    if message and "Invalid value" not in message:
        assert any(message in e.why for e in edits)
        assert any(message in other for other in MESSAGES)
