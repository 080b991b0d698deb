"""A driver takes a stateful pipeline whose decision is lost, or is not that of its positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream.decisions import Decision
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.ownership import _check_before_join, _decision
from ackwright_stream.positions import Lane, Position
from minimal_job import minimal_job
from unit.stream.decided import DECISION, FIRST, SECOND

STATE = cast(StateSettings, SimpleNamespace())  # there is one


def committed(first: int, batch: int | None = 3) -> Mapping[Lane, Position | None]:
    return {FIRST: Position(first, "id", 2, "", batch), SECOND: Position(9, "id", 2, "", batch)}


def accepting(
    text: str | None,
    positions: Mapping[Lane, Position | None],
    accepted: str | None = None,
    restarts: Mapping[Lane, int] | None = None,
) -> tuple[Decision | None, str | None]:
    job: Any = SimpleNamespace(state=STATE, accepted_state_loss=accepted)
    sink: Any = SimpleNamespace(decisions=SimpleNamespace(last=lambda: text))
    return _decision(job, sink, positions, restarts or {})


def fingerprint(
    text: str | None, positions: Mapping[Lane, Position | None], restarts: Mapping[Lane, int] | None = None
) -> str:
    with pytest.raises(JobError) as raised:
        accepting(text, positions, restarts=restarts)
    assert raised.value.fingerprint is not None
    return raised.value.fingerprint


@pytest.mark.parametrize("text", [None, DECISION.to_json(), replace(DECISION, batch=2).to_json()])
def test_an_accepted_loss_begins_empty_and_another_one_halts(text: str | None) -> None:
    """Also of a driver that took the pipeline and was killed before it decided a batch: it names a batch everywhere."""
    positions = committed(8)
    loss = fingerprint(text, positions)
    assert accepting(text, positions, loss) == (None, loss)
    assert accepting(text, {**positions, SECOND: Position(9, "id", 5, "", 3)}, loss) == (None, loss)
    with pytest.raises(JobError):
        accepting(text, committed(9), loss)


@pytest.mark.parametrize("text", [None, DECISION.to_json()])
def test_behind_a_recreated_topic_one_acceptance_is_enough(text: str | None) -> None:
    """Also if the driver was killed before its first batch: it has settled the lanes of the new topic by then."""
    halted = {**committed(7), FIRST: None}
    loss = fingerprint(text, halted, {FIRST: 2})
    assert accepting(text, halted, loss, {FIRST: 2}) == (None, loss)
    settled = {**halted, FIRST: Position(2, "new id", 3, "", 3)}
    assert accepting(text, settled, loss) == (None, loss)


def test_behind_a_recreated_topic_that_is_the_only_one_an_acceptance_is_enough() -> None:
    text = DECISION.to_json()
    nothing: Mapping[Lane, Position | None] = {FIRST: None, SECOND: None}
    loss = fingerprint(text, nothing, {FIRST: 0, SECOND: 0})
    settled = {lane: Position(0, "new id", 3, "", None) for lane in nothing}
    assert accepting(text, settled, loss) == (None, loss)


def test_state_that_is_there_is_used_whatever_was_accepted() -> None:
    loss = fingerprint(None, committed(7))
    assert accepting(DECISION.to_json(), committed(7), loss) == (DECISION, None)


def test_a_stateless_pipeline_has_no_decision() -> None:
    sink: Any = SimpleNamespace(decisions=None)
    assert _decision(minimal_job(), sink, committed(7), {}) == (None, None)


def test_a_pipeline_with_state_is_not_taken_by_one_without() -> None:
    def take(state: StateSettings | None, committed: Mapping[Lane, Position | None]) -> None:
        sink: Any = SimpleNamespace(peek=lambda _: committed, records=lambda: None)
        lanes: Any = SimpleNamespace(job=SimpleNamespace(state=state, identity=""), sink=sink, driver=0)
        _check_before_join(lanes, committed)

    take(STATE, committed(7))
    take(None, committed(7, batch=None))
    with pytest.raises(JobError, match="behind batch 3 of a stateful pipeline, and the spec has no state") as raised:
        take(None, committed(7))
    assert raised.value.reason is Reason.INVALID_TRANSFORM
