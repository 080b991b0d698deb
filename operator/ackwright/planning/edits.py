"""Which spec a pipeline runs by after an edit: the present one, or an earlier one that delivers. Pure.

An edit that the driver may refuse is checked in a pod before it has effect. The result is part of the status, so an
operator that restarts decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ackwright.api.fields import ChangeClass, about, fields
from ackwright.api.quantities import duration_ms
from ackwright.api.spec import DeliveryPipeline, Spec
from ackwright.api.status import (
    CHECKING,
    REFUSED,
    ROLLED_BACK,
    Accepted,
    EditStatus,
    Status,
    format_time,
    seconds_since,
)
from ackwright.planning.changes import changes
from ackwright.planning.clusters import throttled_elsewhere
from ackwright.planning.declared import Declaration, accepted_pipeline, parse_resource
from ackwright.planning.observed import NO_IMAGE, CheckPod, OutOfMemory, Workload
from ackwright.planning.plan import plan
from ackwright.planning.policy import Policy
from ackwright.planning.topic_records import recorded_topics
from ackwright.reasons import AnyReason, ConditionReason
from ackwright.settings import OperatorSettings
from ackwright.wording import named
from ackwright_stream.reasons import REASONS, Reason
from ackwright_stream.reports import Failure, ProgressReport, State

Resource = Mapping[str, Any]


@dataclass(frozen=True)
class Decision:
    """What the pipeline runs by, and what happens to a present spec that it does not run by."""

    pipeline: DeliveryPipeline  # that is to run now
    accepted: Accepted  # its spec
    previous: Accepted | None = None  # the last spec that delivered, until the accepted one does
    held: EditStatus | None = None  # the present spec, if the pipeline does not run by it
    check: DeliveryPipeline | None = None  # the present spec, if its check is to run
    outdated: frozenset[str] = frozenset()  # uids of the pods of checks that are to be deleted


@dataclass(frozen=True)
class _Refusal:
    """Why an edit is not applied."""

    reason: AnyReason
    message: str


def identity(accepted: Accepted, uid: str) -> str:
    """JobSpec.identity of a pipeline that runs by this spec. uid: the resource's.

    An upgrade from a release without the namespace's uid restarts no driver: it follows with the next edit.
    """
    return f"{accepted.namespace_uid}/{uid}" if accepted.namespace_uid else uid


def expects_positions(status: Status, before: DeliveryPipeline | None, after: DeliveryPipeline) -> bool:
    """Whether the sink of an edited pipeline must have its positions. before: by the accepted spec, if that is valid.

    An edit that leaves the sink as it is changes nothing: another answer would restart the driver.
    """
    accepted = status.accepted
    if accepted is None:
        return False
    delivered = accepted.delivered or status.previous is not None
    moved = before is None or before.spec.sink != after.spec.sink
    return accepted.expects_positions or (delivered and moved)


def needs_check(before: DeliveryPipeline, after: DeliveryPipeline) -> bool:
    """Whether an edit changes something that only Spark, the registry or the sink can judge."""
    return not after.spec.suspend and _checked(before) != _checked(after)


def _checked(pipeline: DeliveryPipeline) -> tuple[object, ...]:
    spec = pipeline.spec
    source = spec.source
    return (
        spec.guarantee,
        (source.format, source.schema_ddl, source.subject, source.schema_version),
        spec.schema_registry,
        spec.transform,
        spec.state,
        spec.sink,
        (spec.spark.image, spec.spark.conf),
    )


def delivers(observed: Workload, progress: ProgressReport | None) -> bool:
    """Whether the newest driver has delivered a batch, or has nothing to deliver; or a bounded run has completed."""
    if observed.complete:
        return True
    driver = observed.driver
    if driver is None or not driver.ready or driver.deleting or observed.rolling:
        return False
    if progress is None or progress.state is not State.RUNNING:
        return False
    # Without the ends of the source the lag is not known, and reported as 0.
    return progress.batches > 0 or (bool(progress.ends) and progress.lag == 0)


def runs_by(accepted: Accepted, observed: Workload) -> bool:
    """Whether the present run of a schedule, or the last one, is by this spec. True for a pipeline without a schedule.

    An edit leaves a run that delivers as it is. The Job of a run by the edit is created after the edit was accepted.
    """
    if not observed.scheduled or accepted.since is None:
        return True
    return observed.job is not None and observed.job["metadata"]["creationTimestamp"] >= accepted.since


def decide(
    resource: Resource,
    status: Status,
    declared: Declaration,
    observed: Workload,
    progress: ProgressReport | None,
    *,
    present: Accepted,
    hash_of: Callable[[Mapping[str, Any]], str],
    policy: Policy,
    settings: OperatorSettings,
    now: datetime,
) -> Decision:
    """What a pipeline runs by. present: the resource's own spec, as the status would record it now; hash_of: of a spec.

    An edit is checked only while a driver delivers, or a schedule is between two runs: otherwise there is nothing to
    protect, and the edit may be the remedy.
    """
    accepted = status.accepted
    if accepted is None:
        return Decision(declared.pipeline, present)
    if declared.invalid is not None:
        return Decision(declared.pipeline, accepted, status.previous)
    same_text = accepted.spec == present.spec
    before = declared.pipeline if same_text else accepted_pipeline(resource, status)
    # A text may also differ by defaults alone, which the CRD of another release adds to every spec.
    if same_text or before == declared.pipeline:
        back = None
        if not delivers(observed, progress):
            back = _rollback(resource, status, declared.pipeline, hash_of, policy=policy, now=now)
        current = accepted.model_copy(update={"generation": present.generation})
        return back or Decision(declared.pipeline, current, status.previous)
    expects = expects_positions(status, before, declared.pipeline)
    present = present.model_copy(update={"expects_positions": expects})
    if before is None or policy.violations(before, {**resource, "spec": accepted.spec}):
        return Decision(declared.pipeline, present)
    switch = Decision(declared.pipeline, present, accepted if accepted.delivered else status.previous)
    held = status.edit if status.edit is not None and _is_edit(status.edit, present) else None
    refusal = _unchecked_refusal(before, status, declared.pipeline)
    if refusal is not None:
        held = _refused(present, held, refusal, now)
        return Decision(before, accepted, status.previous, held, outdated=frozenset(c.uid for c in observed.checks))
    if held is not None and held.reason == ConditionReason.REPAIRING:
        held = None  # the throttle has been removed, so the edit is decided as if it were new
    rolled_back = held is not None and held.state == ROLLED_BACK
    unprotected = held is None and not observed.idle and not any(driver.ready for driver in observed.drivers)
    if not rolled_back and (unprotected or not needs_check(before, declared.pipeline)):
        return switch
    if held is not None:
        held = held.model_copy(update={"generation": present.generation, "hash": present.hash})
    waiting = Decision(before, accepted, status.previous, held, declared.pipeline)
    if rolled_back:
        return replace(waiting, check=None)
    return _checking(waiting, present, observed, settings=settings, now=now) or switch


def _is_edit(held: EditStatus, present: Accepted) -> bool:
    """Whether the present spec is the one that was held. What the CRD of another release adds changes no generation."""
    return present.hash == held.hash or present.generation == held.generation


def _unchecked_refusal(before: DeliveryPipeline, status: Status, after: DeliveryPipeline) -> _Refusal | None:
    """Why an edit is held that needs no check to be judged; None: it is not. before: the accepted pipeline."""
    throttled = throttled_elsewhere(plan(after), recorded_topics(status, {}, {}))
    if throttled:  # the operator would look for the throttle on the wrong cluster
        return _Refusal(
            ConditionReason.REPAIRING,
            f"{named('topic', throttled)} cannot move to the other Kafka cluster while replicas are copied with a "
            "throttle; wait until status.topics has no throttledBrokers: then the edit continues",
        )
    # The stored state would be of another query. A driver that has decided a batch refuses such a change.
    edits = [edit for edit in changes(before, after) if edit.change is ChangeClass.NEW_STATE]
    if not edits or status.accepted is None or not status.accepted.delivered:
        return None
    paths = ", ".join(edit.field for edit in edits)
    why = ", and ".join(dict.fromkeys(edit.why for edit in edits))
    return _Refusal(
        Reason.INVALID_TRANSFORM,
        f"{paths} cannot change while the pipeline has state: {why}; restore the earlier spec, and create a pipeline "
        "with another name",
    )


def _checking(
    waiting: Decision, present: Accepted, observed: Workload, *, settings: OperatorSettings, now: datetime
) -> Decision | None:
    """The decision about an edit that a check has to pass; None: it may be applied. waiting: with its earlier state."""
    held = waiting.held or EditStatus(
        generation=present.generation,
        hash=present.hash,
        state=CHECKING,
        reason=ConditionReason.CHECKING_EDIT,
        since=format_time(now),
    )
    run = next((c for c in observed.checks if c.edit == present.hash and not c.deleting), None)
    others = frozenset(c.uid for c in observed.checks if c.edit != present.hash)
    # One that waits for its image is refused, too, and may pass later.
    known = run is None or (run.uid == held.check and run.ended and not run.passed)
    if held.state == REFUSED and known:
        waited = seconds_since(held.since, now) > settings.crash_delay_max
        if _is_final(held) or not waited:
            return replace(waiting, held=held, check=None, outdated=others)
        old = frozenset() if run is None else frozenset({run.uid})
        return replace(waiting, held=held, outdated=others | old)
    if run is None:
        return replace(waiting, held=held, outdated=others)
    if run.passed:
        return None
    seconds = seconds_since(held.since, now)
    if run.unschedulable and seconds > settings.settle:
        return None  # nothing is known against the edit, and its driver may fit where the old one is now
    refusal = _refusal(run, late=seconds > settings.settle, limit=settings.settle)
    if refusal is not None:
        held = _refused(present, held, refusal, now, run)
        return replace(waiting, held=held, check=None if run.ended else waiting.check, outdated=others)
    if run.ended:  # evicted, or its node was lost: it reported nothing
        return replace(waiting, held=held, outdated=others | {run.uid})
    return replace(waiting, held=held, outdated=others)


def _is_final(held: EditStatus) -> bool:
    """Whether only another edit helps: the same check would fail again."""
    return any(REASONS[reason].permanent for reason in Reason if reason == held.reason)


def _refusal(run: CheckPod, *, late: bool, limit: float) -> _Refusal | None:
    """Why a check that has not passed speaks against the edit; None: it does not, or not yet.

    late: whether the check has had all its time; limit: seconds, that time.
    """
    if isinstance(run.error, Failure):
        return _Refusal(run.error.reason, run.error.message)
    if isinstance(run.error, OutOfMemory):
        return _Refusal(ConditionReason.CRASHED, str(run.error))
    if run.waiting in NO_IMAGE:
        return _Refusal(
            ConditionReason.IMAGE_UNAVAILABLE, f"spec.spark.image: {run.waiting}: {run.waiting_message}"[:1000]
        )
    if run.out_of_time or (late and run.exit_code is None):
        return _Refusal(
            ConditionReason.DEADLINE_EXCEEDED,
            f"the check has not ended within {limit:.0f} s; read the pod's log and its events",
        )
    if run.ended and run.exit_code:
        why = str(run.error or "the check left no message; read the pod's log")
        return _Refusal(ConditionReason.CRASHED, f"{why} (exit code {run.exit_code})")
    return None


def _refused(
    present: Accepted, held: EditStatus | None, refusal: _Refusal, now: datetime, run: CheckPod | None = None
) -> EditStatus:
    """The refused edit. held: the same one, if it was held before; run: what has checked it."""
    check = run.uid if run else None
    same = held is not None and (held.state, held.reason, held.check) == (REFUSED, refusal.reason.value, check)
    where = f" (checked in pod {run.name})" if run else ""
    return EditStatus(
        generation=present.generation,
        hash=present.hash,
        state=REFUSED,
        reason=refusal.reason.value,
        message=f"{refusal.message}{where}"[:2048],
        check=check,
        since=held.since if held is not None and same else format_time(now),
    )


# ------------------------------------------------ rollback

# The parts of the spec that a rollback leaves as they are: they do not affect the job, and topics do not shrink.
LIVE = tuple(name for name, field in fields(Spec) if (entry := about(field)) and entry.change is ChangeClass.LIVE)


def _rollback(
    resource: Resource,
    status: Status,
    edited: DeliveryPipeline,
    hash_of: Callable[[Mapping[str, Any]], str],
    *,
    policy: Policy,
    now: datetime,
) -> Decision | None:
    """The return to the last spec that delivered; None if the edit still has time, or if it is not the cause, or if the
    platform refuses the earlier spec by now.

    edited: the pipeline by the accepted spec, which does not deliver.
    """
    accepted, previous, limit = status.accepted, status.previous, edited.spec.rollback
    if accepted is None or previous is None or limit is None or accepted.delivered or edited.spec.suspend:
        return None
    if seconds_since(accepted.since, now) <= duration_ms(limit.after) / 1000:
        return None
    live = {name: accepted.spec[name] for name in LIVE if name in accepted.spec}
    spec = {**{name: value for name, value in previous.spec.items() if name not in LIVE}, **live}
    pipeline, _ = parse_resource({**resource, "spec": spec})
    if pipeline is None:  # such as a topic whose declaration the edit has removed
        spec = dict(previous.spec)
        pipeline, _ = parse_resource({**resource, "spec": spec})
    if pipeline is None or policy.violations(pipeline, {**resource, "spec": spec}):  # this release refuses it
        return None
    topics, job = status.condition("TopicsReady"), status.condition("JobRunning")
    same_brokers = (pipeline.spec.kafka, pipeline.spec.sink) == (edited.spec.kafka, edited.spec.sink)
    if topics is not None and topics.status == "Unknown" and same_brokers:  # no spec would deliver
        return None
    back = previous.model_copy(
        update={
            "spec": spec,
            "hash": hash_of(spec),
            "since": format_time(now),
            "delivered": True,
            "namespace_uid": accepted.namespace_uid,  # which the edit's driver may have recorded
        }
    )
    reason = job.reason if job else ConditionReason.DEADLINE_EXCEEDED.value
    why = f": {job.message}" if job and job.message else ""
    message = (
        f"the edit has not delivered within {limit.after} (spec.rollback.after){why}; the pipeline runs by generation "
        f"{back.generation} until the spec changes again"
    )
    held = EditStatus(
        generation=accepted.generation,
        hash=accepted.hash,
        state=ROLLED_BACK,
        reason=reason,
        message=message[:2048],
        since=format_time(now),
    )
    return Decision(pipeline, back, None, held)
