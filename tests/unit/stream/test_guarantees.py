"""What a failed batch means under each guarantee: whether it is abandoned, and whether the driver survives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream import delivery, driver, warm_up
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.positions import Lane, Range, Task
from minimal_job import minimal_job

JOB = minimal_job(Guarantee.AT_MOST_ONCE)
JOB_CODE = Path(delivery.__file__).parents[1]
TASKS = (
    Task(0, (Range(Lane("in", 0), 0, 500), Range(Lane("in", 2), 7, 27)), (0, 2)),
    Task(1, (Range(Lane("in", 1), 100, 400),), (1,)),
)
AT_FAULT = (Reason.BATCH_FAILED, Reason.MALFORMED_RECORD, Reason.ROW_REFUSED, Reason.UNEXPECTED)


class Lanes:
    """Records which ranges are claimed, and by which slot; a claim of slot 1 fails with the reason."""

    def __init__(self, fails_with: Reason | None = None) -> None:
        self.claimed: list[tuple[int, tuple[Range, ...]]] = []
        self.sink = SimpleNamespace(staging=None)
        self._fails_with = fails_with

    def advance(self, slot: int, ranges: tuple[Range, ...]) -> None:
        if self._fails_with is not None and slot == 1:
            raise JobError(self._fails_with, "the claim failed")
        self.claimed.append((slot, ranges))


def abandon(guarantee: Guarantee, reason: Reason, lanes: Lanes) -> int:
    fake: Any = lanes
    return delivery.for_job(minimal_job(guarantee)).abandon(TASKS, JobError(reason, "the batch failed"), fake)


@pytest.mark.parametrize("reason", list(Reason))
def test_at_most_once_abandons_a_batch_that_is_itself_at_fault(reason: Reason) -> None:
    lanes = Lanes()
    assert abandon(Guarantee.AT_MOST_ONCE, reason, lanes) == (820 if reason in AT_FAULT else 0)
    assert lanes.claimed == ([(t.slot, t.ranges) for t in TASKS] if reason in AT_FAULT else [])


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_the_other_guarantees_abandon_nothing(guarantee: Guarantee) -> None:
    for reason in AT_FAULT:
        assert abandon(guarantee, reason, lanes := Lanes()) == 0
        assert lanes.claimed == []


@pytest.mark.parametrize(("slots", "abandoned"), [((), 0), ((1,), 300), ((0, 1), 820)])
def test_at_most_once_counts_what_every_task_with_too_many_dead_letters_has_claimed(
    slots: tuple[int, ...], abandoned: int
) -> None:
    error, lanes = JobError(Reason.TOO_MANY_DEAD_LETTERS, ""), Lanes()
    error.slots = slots
    fake: Any = lanes
    assert delivery.for_job(JOB).abandon(TASKS, error, fake) == abandoned
    assert lanes.claimed == []


def test_a_claim_that_fails_counts_nothing_and_the_loss_of_a_lane_ends_it() -> None:
    assert abandon(Guarantee.AT_MOST_ONCE, Reason.BATCH_FAILED, Lanes(Reason.BATCH_FAILED)) == 520
    with pytest.raises(JobError) as caught:
        abandon(Guarantee.AT_MOST_ONCE, Reason.BATCH_FAILED, Lanes(Reason.SUPERSEDED))
    assert caught.value.reason is Reason.SUPERSEDED


class OneAtATime(Lanes):
    """A sink that moves one lane at a time, whose lane in-2 was claimed before its task died."""

    def advance(self, slot: int, ranges: tuple[Range, ...]) -> None:
        if len(ranges) > 1:
            raise JobError(Reason.POSITION_CONFLICT, "some lanes are at the start and others at the end")
        super().advance(slot, ranges)


def test_ranges_are_abandoned_one_by_one_if_a_task_died_between_two_claims() -> None:
    lanes = OneAtATime()
    assert abandon(Guarantee.AT_MOST_ONCE, Reason.BATCH_FAILED, lanes) == 820
    assert lanes.claimed == [(t.slot, (r,)) for t in TASKS for r in t.ranges]
    with pytest.raises(JobError) as caught:
        abandon(Guarantee.AT_MOST_ONCE, Reason.BATCH_FAILED, Lanes(Reason.POSITION_CONFLICT))
    assert caught.value.reason is Reason.POSITION_CONFLICT


def test_at_most_once_alone_survives_a_malformed_record_and_counts_what_expired() -> None:
    survive = {
        (guarantee, reason)
        for guarantee in Guarantee
        for reason in Reason
        if delivery.for_job(minimal_job(guarantee)).survives(JobError(reason, ""))
    }
    assert survive == {(Guarantee.AT_MOST_ONCE, Reason.MALFORMED_RECORD)}
    assert [g for g in Guarantee if delivery.for_job(minimal_job(g)).counts_expired] == [Guarantee.AT_MOST_ONCE]


def test_rows_go_through_the_tasks_transaction_exactly_once_alone() -> None:
    assert [g for g in Guarantee if delivery.for_job(minimal_job(g)).transactional] == [Guarantee.EXACTLY_ONCE]


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_warm_up_prepares_the_producers_that_the_guarantee_writes_with(guarantee: Guarantee) -> None:
    prepared = []

    class Work:
        job = minimal_job(guarantee)

        def lanes(self, *, transactional: bool) -> None:
            prepared.append(transactional)

    work: Any = Work()
    warm_up.discard(work, TASKS[0], iter(()))
    assert prepared == [delivery.for_job(work.job).transactional]


def test_no_other_module_of_the_job_asks_which_guarantee_is_declared() -> None:
    """Those that may: the jobspec checks its producers; the audit's order of reads and its verdict depend on it."""
    may = {"jobspec.py", "audit.py", "audit_report.py"}
    asking = {str(p.relative_to(JOB_CODE)) for p in JOB_CODE.rglob("*.py") if "Guarantee." in p.read_text()}
    assert {name for name in asking if not name.startswith("delivery/")} <= may
    assert "delivery/__init__.py" in asking, "control: a module that asks is in the set"


def test_a_guarantee_that_the_sink_cannot_deliver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwright_stream.sinks.kafka.sink.TopicSink.supports", frozenset({Guarantee.AT_LEAST_ONCE}))
    with pytest.raises(
        JobError, match=r"sink\.kafka cannot deliver at-most-once; choose one of at-least-once"
    ) as caught:
        driver.check(JOB)
    assert caught.value.reason is Reason.INVALID_SPEC
