"""Conditions over time: transition times, generations, and which changes are events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackwright.api.status import Condition
from ackwright.conditions.findings import Finding, findings
from ackwright.conditions.transitions import ORDER, is_bad, merged, transitions
from ackwright_stream.jobspec import Reason
from unit.condition_facts import (
    CRASHED,
    HALTED,
    READY,
    facts,
    pod,
)

ALWAYS = [kind for kind in ORDER if kind not in ("SchemasReady", "RolledBack")]
THEN, NOW = "2026-11-21T12:00:00Z", "2026-11-21T12:05:00Z"


def test_the_time_of_a_transition_moves_only_with_the_status() -> None:
    first = merged((), findings(facts(pod())), THEN, 1)
    assert [c.type for c in first] == ALWAYS
    second = merged(tuple(reversed(first)), findings(READY), NOW, 2)
    assert [c.type for c in second] == ALWAYS
    times = {c.type: c.last_transition_time for c in second}
    assert {kind for kind, time in times.items() if time == NOW} == {"Ready", "JobRunning", "Reconciling"}
    assert {c.observed_generation for c in second} == {2}


def test_what_is_well_by_the_spec_before_keeps_its_generation_until_the_edit_is_through() -> None:
    first = merged((), findings(READY), THEN, 1)
    editing = merged(first, findings(replace(READY, pending=("apply StatefulSet p (changed)",))), NOW, 2)
    generations = {c.type: (c.status, c.observed_generation) for c in editing}
    assert generations["Ready"] == generations["GuaranteeMet"] == ("True", 1)
    assert generations["Reconciling"] == ("True", 2)
    draining = merged(editing, findings(facts(pod())), NOW, 2)
    assert {c.observed_generation for c in draining if c.status != "True"} == {2}
    assert {c.observed_generation for c in merged(draining, findings(READY), NOW, 2)} == {2}


def test_another_reason_alone_is_reported_and_keeps_the_transition_time() -> None:
    first = merged((), findings(facts(pod(waiting="CrashLoopBackOff", **CRASHED))), THEN, 1)
    second = merged(first, findings(facts(pod(unschedulable="no node"))), NOW, 1)
    ready = next(c for c in second if c.type == "Ready")
    assert (ready.reason, ready.last_transition_time) == ("Unschedulable", THEN)
    assert {c.type for c in transitions(first, second)} == {"Ready", "Stalled"}


def test_an_event_for_what_is_new_and_for_nothing_else() -> None:
    starting = merged((), findings(facts(pod())), THEN, 1)
    assert [c.type for c in transitions((), starting)] == ["Ready"], (
        "of a new pipeline that is on its way, one word is enough"
    )
    assert transitions(starting, merged(starting, findings(facts(pod())), NOW, 2)) == ()
    running = merged(starting, findings(READY), NOW, 1)
    assert [c.type for c in transitions(starting, running)] == ["Ready"]
    broken = merged((), findings(facts(pod(waiting="CrashLoopBackOff", **HALTED))), THEN, 1)
    assert [c.type for c in transitions((), broken)] == ["Ready", "GuaranteeMet", "Stalled"]


@pytest.mark.parametrize(
    ("kind", "status", "reason", "bad"),
    [
        ("Ready", "True", "Delivering", False),
        ("Ready", "False", "Starting", False),
        ("Ready", "False", "Suspended", False),
        ("Ready", "False", Reason.POSITION_LOST, True),
        ("GuaranteeMet", "Unknown", "Creating", False),
        ("GuaranteeMet", "False", "TopicsTooWeak", True),
        ("Stalled", "True", "DeadlineExceeded", True),
        ("Stalled", "False", "NotStalled", False),
    ],
)
def test_a_person_is_warned_of_what_needs_one(kind: str, status: Any, reason: str, *, bad: bool) -> None:
    assert is_bad(Condition(type=kind, status=status, reason=reason, last_transition_time=THEN)) is bad


def test_a_long_message_is_cut_to_what_the_api_server_takes() -> None:
    facts_ = merged((), {kind: Finding("False", Reason.UNEXPECTED, "x" * 5000) for kind in ORDER}, THEN, 1)
    assert {len(c.message) for c in facts_} == {4096}
