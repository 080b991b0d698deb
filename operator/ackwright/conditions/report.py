"""The status of a pipeline, out of its observed state and the steps that were taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ackwright.api.status import (
    LONGEST_ACTION,
    Accepted,
    DeliveryStatus,
    DriverStatus,
    Intent,
    LostState,
    LostTopicStatus,
    MovedPositions,
    Status,
    format_time,
    seconds_since,
    time_of,
)
from ackwright.conditions.findings import Facts, Finding, findings
from ackwright.conditions.kafka import guarantee_met, topic_count, topics_ready, worst
from ackwright.conditions.transitions import merged
from ackwright.errors import AckwrightError
from ackwright.planning.bounded_runs import finished_run
from ackwright.planning.edits import delivers, runs_by
from ackwright.planning.kafka_work import KafkaWork
from ackwright.planning.observation import Observation
from ackwright.planning.observed import DriverPod, Workload
from ackwright.planning.scheduled_runs import schedule_status
from ackwright.planning.steps import Step
from ackwright.reasons import ConditionReason, reason_of
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import ProgressReport

_FIGURES_EVERY_S = 30.0  # a status is no time series, and each write goes to every client that watches


@dataclass(frozen=True)
class Outcome:
    """How far a reconcile has come."""

    kafka: KafkaWork
    workload: Workload  # as the steps have left it
    pending: Sequence[Step] = ()  # steps that are still to be taken
    intent: Intent | None = None
    failure: AckwrightError | None = None  # of the step that failed
    waits: bool = False  # for its turn, because other drivers are being replaced


def intent(before: Status, todo: Sequence[Step], now: datetime) -> Intent | None:
    """The steps that are about to be taken, and since when they have been; None without steps."""
    actions = tuple(str(s)[:LONGEST_ACTION] for s in todo)[:64]
    if before.intent and before.intent.actions == actions:
        return before.intent
    return Intent(actions=actions, since=format_time(now)) if actions else None


def status(before: Status, observation: Observation, outcome: Outcome, now: datetime) -> Status:
    """The status for the resource. before: its present one."""
    work, driver = outcome.kafka, outcome.workload.driver
    clusters = [(part, state) for _, part, state in observation.clusters()]
    conflicts = observation.recorded.conflicts
    schedule = schedule_status(observation.pipeline, before.schedule, outcome.workload, now)
    edit = [str(change) for change in observation.edit] if outcome.pending else []
    delivery = figures(before.delivery, observation.progress, now)
    facts = Facts(
        suspended=observation.pipeline.spec.suspend,
        paused=work.pause,
        topics=worst(topics_ready(plan, kafka, work, conflicts) for plan, kafka in clusters),
        with_schemas=observation.plan.needs_registry,
        guarantee=worst(guarantee_met(plan, kafka, work) for plan, kafka in clusters),
        workload=outcome.workload,
        progress=observation.progress,
        invalid=observation.invalid,
        failure=outcome.failure,
        pending=(*edit, *map(str, outcome.pending)),
        stuck=observation.stuck,
        expired=observation.expired,
        held=observation.decision.held,
        waits=outcome.waits,
        next_run=schedule.next_schedule_time if schedule else None,
        reported=delivery is not None,
        job_failure=_job_failure(before),
        heard=observation.heard or _reported_before(before),
        unreachable=observation.unreachable or (not observation.heard and _was_unreachable(before, driver)),
    )
    aspects = findings(facts)
    return Status(
        observed_generation=observation.generation,
        observed_at=before.observed_at,
        guarantee=observation.pipeline.spec.guarantee,
        group=observation.pipeline.group,
        topics=observation.topic_statuses(before.topics, work, done=not outcome.pending),
        topics_ready=topic_count(clusters) or before.topics_ready,
        conditions=merged(before.conditions, aspects, format_time(now), observation.generation),
        lost_topics=_lost_topics(aspects),
        moved_positions=_moved_positions(aspects["Stalled"]),
        lost_state=_lost_state(aspects["Stalled"]),
        **_specs(observation, outcome, aspects["JobRunning"]),
        edit=observation.decision.held,
        intent=outcome.intent,
        finished_run=finished_run(observation.pipeline, before.finished_run, outcome.workload),
        schedule=schedule,
        driver=_driver(driver, observation.progress, before.driver) if driver else None,
        delivery=delivery,
    )


def _reported_before(before: Status) -> bool:
    """Whether the operator that ran before has had a report: an operator that restarts changes no condition."""
    return before.condition_is("JobRunning", "True")


def _was_unreachable(before: Status, driver: DriverPod | None) -> bool:
    """Whether JobRunning says that already of this driver."""
    job = before.condition("JobRunning")
    known = before.driver.uid if before.driver else None
    return bool(job and job.reason == ConditionReason.DRIVER_UNREACHABLE and driver and driver.uid == known)


def _job_failure(before: Status) -> Finding | None:
    """The failure of the job that JobRunning reports; None for any other reason."""
    job = before.condition("JobRunning")
    reason = reason_of(job.reason) if job and job.status == "False" else None
    return Finding("False", reason, job.message) if job and isinstance(reason, Reason) else None


def _specs(observation: Observation, outcome: Outcome, job: Finding) -> dict[str, Accepted | None]:
    """The spec in force, and the one before it until that delivers."""
    decision = observation.decision
    done = job.reason in (ConditionReason.COMPLETED, ConditionReason.SCHEDULED)
    settled = not outcome.pending and (job.status == "True" or done)
    by_it = settled and runs_by(decision.accepted, outcome.workload)
    if decision.accepted.delivered or (by_it and delivers(outcome.workload, observation.progress)):
        return {"accepted": decision.accepted.model_copy(update={"delivered": True}), "previous": None}
    return {"accepted": decision.accepted, "previous": decision.previous}


def _lost_topics(aspects: Mapping[str, Finding]) -> tuple[LostTopicStatus, ...] | None:
    """The topics that the conditions report as lost, each once.

    TopicsReady describes the present topics, and Stalled those that a driver has read before it ended.
    """
    topics = {t.name: t for kind in ("Stalled", "TopicsReady") for t in aspects[kind].lost_topics}
    statuses = (LostTopicStatus(name=t.name, id=t.id, current_id=t.current_id) for _, t in sorted(topics.items()))
    return tuple(statuses) or None


def _moved_positions(stalled: Finding) -> MovedPositions | None:
    if stalled.fingerprint is None or stalled.reason != Reason.POSITIONS_MOVED:
        return None
    return MovedPositions(fingerprint=stalled.fingerprint)


def _lost_state(stalled: Finding) -> LostState | None:
    if stalled.fingerprint is None or stalled.reason != Reason.STATE_LOST:
        return None
    return LostState(fingerprint=stalled.fingerprint)


def _driver(driver: DriverPod, progress: ProgressReport | None, before: DriverStatus | None) -> DriverStatus:
    same = before is not None and before.uid == driver.uid
    return DriverStatus(
        pod=driver.name,
        uid=driver.uid,
        node=driver.node,
        number=progress.driver if progress else (before.number if before and same else None),
        restarts=driver.restarts,
        last_error=str(driver.error or "")[:2048] or None,
    )


def figures(before: DeliveryStatus | None, progress: ProgressReport | None, now: datetime) -> DeliveryStatus | None:
    """The figures of the driver, renewed at most every half minute.

    The earlier ones, with their time, if no driver answers, or one that has neither delivered nor measured yet: its
    zeros would hide the lag, and end an alert for it, at each restart.
    """
    if progress is None or (progress.measured_lag is None and not progress.batches):
        return before
    fresh = DeliveryStatus(
        batch=progress.batch_id,
        lag=progress.measured_lag,
        records_per_second=progress.records_per_second,
        abandoned_records=progress.abandoned_records,
        malformed_records=progress.malformed_records,
        dead_letters=progress.dead_letters,
        late_rows=progress.late_rows,
        watermark=None if progress.watermark is None else time_of(progress.watermark),
        expired_records=progress.expired_records,
        executors=progress.executors,
        executors_requested=progress.executors_requested,
        observed_at=format_time(now),
    )
    if before is None:
        return fresh
    same = fresh.model_copy(update={"observed_at": before.observed_at}) == before
    return before if same or seconds_since(before.observed_at, now) < _FIGURES_EVERY_S else fresh
