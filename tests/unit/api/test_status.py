"""The status: what was written is read again; what another release wrote, or anybody, does no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ackwright.api.status import (
    Accepted,
    Condition,
    DeliveryStatus,
    DriverStatus,
    Intent,
    LostTopicStatus,
    MovedPositions,
    Status,
    TopicStatus,
    Truth,
    is_time,
    parse_status,
    status_json,
    time_of,
)
from ackwright_stream.jobspec import Guarantee

NOW = "2026-11-21T12:00:00Z"
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Delivering",
    "message": "",
    "lastTransitionTime": NOW,
    "observedGeneration": 3,
}

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_count = st.integers(0, 2**53)


def _instances(model: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields).map(lambda values: model(**values))


_statuses = _instances(
    Status,
    observed_generation=st.none() | _count,
    guarantee=st.none() | st.sampled_from(Guarantee),
    group=st.none() | _text,
    topics_ready=st.none() | _text,
    topics=st.lists(
        _instances(
            TopicStatus,
            name=_text,
            id=_text,
            partitions=_count,
            replication_factor=_count,
            min_insync_replicas=_count,
            in_sync_replicas=_count,
            moving=_count,
            throttled_brokers=st.none() | st.lists(_count, max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    conditions=st.lists(
        _instances(
            Condition,
            type=_text,
            status=st.sampled_from(["True", "False", "Unknown"]),
            reason=_text,
            message=_text,
            last_transition_time=st.just(NOW),
            observed_generation=st.none() | _count,
        ),
        max_size=3,
    ).map(tuple),
    lost_topics=st.none()
    | st.lists(
        _instances(LostTopicStatus, name=_text, id=st.none() | _text, current_id=st.none() | _text), max_size=2
    ).map(tuple),
    moved_positions=st.none() | _instances(MovedPositions, fingerprint=_text),
    accepted=st.none()
    | _instances(
        Accepted, generation=_count, hash=_text, spec=st.dictionaries(_text, st.integers() | st.booleans() | _text)
    ),
    intent=st.none() | _instances(Intent, actions=st.lists(_text, max_size=3).map(tuple), since=st.just(NOW)),
    driver=st.none() | _instances(DriverStatus, pod=_text, uid=_text, node=st.none() | _text, restarts=_count),
    delivery=st.none()
    | _instances(
        DeliveryStatus,
        batch=st.none() | _count,
        lag=_count,
        records_per_second=st.floats(0, 1e9),
        observed_at=st.just(NOW),
    ),
)


@given(_statuses)
def test_what_is_written_is_read_again_and_written_the_same(status: Status) -> None:
    stored = json.loads(json.dumps(status_json(status)))
    assert parse_status(stored) == status
    assert status_json(parse_status(stored)) == stored, "otherwise each reconcile would write it again"


def test_what_is_absent_is_left_out() -> None:
    assert status_json(Status()) == {"topics": [], "conditions": []}
    assert status_json(Status(intent=None, observed_generation=3)) == {
        "observedGeneration": 3,
        "topics": [],
        "conditions": [],
    }


def test_names_are_as_the_api_has_them() -> None:
    condition = Condition(
        type="Ready", status="True", reason="Delivering", last_transition_time=NOW, observed_generation=3
    )
    status = status_json(
        Status(conditions=(condition,), delivery=DeliveryStatus(records_per_second=1.5, observed_at=NOW))
    )
    assert status["conditions"] == [CONDITION]
    assert status["delivery"]["recordsPerSecond"] == 1.5
    assert status["delivery"]["observedAt"] == NOW
    lost = (LostTopicStatus(name="in", id="old", current_id="now"), LostTopicStatus(name="out"))
    halted = status_json(Status(lost_topics=lost, moved_positions=MovedPositions(fingerprint="0123456789ab")))
    assert halted["lostTopics"] == [{"name": "in", "id": "old", "currentId": "now"}, {"name": "out"}]
    assert halted["movedPositions"] == {"fingerprint": "0123456789ab"}


@pytest.mark.parametrize("nothing", [None, {}, [], "x", 7])
def test_nothing_is_an_empty_status(nothing: object) -> None:
    assert parse_status(nothing) == Status()


def test_a_part_that_cannot_be_read_is_passed_over_and_the_rest_is_kept() -> None:
    status = parse_status(
        {
            "conditions": [CONDITION],
            "group": "g",
            "topics": 7,
            "intent": {"actions": "x"},
            "accepted": {"generation": 1, "hash": "h", "spec": {"a": 1}, "ofALaterRelease": True},
            "ofALaterRelease": {"x": 1},
        }
    )
    assert status.condition("Ready") == Condition.model_validate(CONDITION)
    assert (status.group, status.topics, status.intent, status.accepted) == ("g", (), None, None)
    assert status.condition("Stalled") is None


@pytest.mark.parametrize(
    ("kind", "truth", "expected"),
    [("Ready", "True", True), ("Ready", "False", False), ("Ready", "Unknown", False), ("Stalled", "False", False)],
)
def test_it_says_only_what_a_condition_says(kind: str, truth: Truth, expected: bool) -> None:
    assert Status(conditions=(Condition.model_validate(CONDITION),)).condition_is(kind, truth) is expected


_anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_names = [f.alias or n for n, f in Status.model_fields.items()]


@given(st.dictionaries(st.sampled_from(_names) | st.text(max_size=5), _anything, max_size=5))
def test_whatever_is_there_is_read_without_an_error(status: dict[str, Any]) -> None:
    assert isinstance(parse_status(status), Status)


@pytest.mark.parametrize("time", ["2026-11-21 12:00:00", "2026-11-21T12:00:00+01:00", "2026-11-21T12:00:00.5Z", ""])
def test_a_time_is_whole_seconds_of_utc(time: str) -> None:
    with pytest.raises(ValidationError):
        Intent(actions=(), since=time)


def test_values_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Status().group = "other"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.9, "1970-01-01T00:00:00Z"), (1_356_998_400, "2013-01-01T00:00:00Z"), (9.2e15, "9999-12-31T23:59:59Z")],
)
def test_a_moment_is_written_as_a_time(seconds: float, expected: str) -> None:
    assert time_of(seconds) == expected
    assert is_time(expected)
