"""What the operator says of a pipeline: conditions out of facts. Pure.

Ready, Reconciling and Stalled mean what kstatus (and so Argo CD, Flux and `kubectl wait`) understands by them; GuaranteeMet is Ackwright's
own: whether what was declared holds at this moment. https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ackwright.api.status import Condition, Truth
from ackwright.planning.observed import DriverPod, Progress, Workload
from ackwright.planning.steps import DRIVERS
from ackwright_stream.reasons import REASONS, ExitCode, Reason

ORDER = ("Ready", "GuaranteeMet", "TopicsReady", "JobRunning", "Reconciling", "Stalled")
_OF_THE_JOB = ("Ready", "GuaranteeMet", "JobRunning")  # which runs by the spec before, until an edit is through

_REMARKS = frozenset({"Drifted", "OneRack", "UnderReplicated"})  # of topics with which the pipeline goes on
_WRONG_TOPICS = frozenset({"AuthorizationFailed", "BrokersTooFew", "TopicsUnfit", "TopicConflict"})
_ON_ITS_WAY = frozenset(
    {"Creating", "Repairing", "NotStarted", "Starting", "Draining", "Restarting", "Suspended", "Completed"}
)
_NO_IMAGE = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"}
)


@dataclass(frozen=True)
class Finding:
    """One aspect as found: its status, the reason's name, and a sentence."""

    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Facts:
    """invalid: what is wrong with the spec, None if nothing. topics, guarantee: what looking at Kafka gave. outcome: a step that failed:
    reason and message. expired: the change has taken longer than it may. paused: why the pipeline must not go on, as Stalled says it."""

    suspended: bool
    topics: Finding
    guarantee: Finding
    workload: Workload
    progress: Progress | None = None
    invalid: str | None = None
    outcome: tuple[str, str] | None = None
    pending: Sequence[str] = field(default_factory=tuple)
    stuck: bool = False
    expired: bool = False
    paused: Finding | None = None


def findings(facts: Facts) -> Mapping[str, Finding]:
    """Every aspect, by its name."""
    job = job_running(facts)
    guarantee = _guarantee(facts)
    ready = _ready(facts, job, guarantee)
    settled = ready.status == "True" or (facts.suspended and job.reason == "Suspended")
    stalled = _stalled(facts, job, settled=settled)
    if stalled.status == "True":
        reconciling = Finding("False", "Stalled", stalled.message)
    elif settled and not facts.pending and not facts.workload.rolling:
        reconciling = Finding("False", "Settled")
    else:
        # The old driver is well until it is told to go: with that alone an edit would seem to be through before it has begun.
        rolling = "the driver is replaced by one of the new revision" if facts.workload.rolling else ""
        reconciling = Finding(
            "True", "Progressing", "; ".join(facts.pending) or job.message or facts.topics.message or rolling
        )
    return {
        "Ready": ready,
        "GuaranteeMet": guarantee,
        "TopicsReady": facts.topics,
        "JobRunning": job,
        "Reconciling": reconciling,
        "Stalled": stalled,
    }


def job_running(facts: Facts) -> Finding:
    """Health is progress, not a pod's phase."""
    driver, progress = facts.workload.driver, facts.progress
    if facts.workload.complete:
        return Finding("False", "Completed", "the bounded run has delivered everything that was there when it began")
    if facts.suspended or facts.paused:
        if driver is None and facts.suspended:
            return Finding("False", "Suspended", "set spec.suspend to false to go on from the positions")
        if driver is None:
            return Finding("False", "Paused", facts.paused.message if facts.paused else "")
        return Finding("False", "Draining", f"{driver.name} ends its batch and commits its positions")
    if driver is None and any(kind in DRIVERS for kind, _ in facts.workload.children):
        return Finding("False", "Starting", "the driver's pod is to be made")
    if driver is None:
        why = next((f": {f.message}" for f in (facts.topics, facts.guarantee) if f.status != "True"), "")
        return Finding("False", "NotStarted", f"no driver has been started{why}")
    if driver.deleting:
        return Finding("False", "Draining", f"{driver.name} is on its way out; its successor starts when it has gone")
    # Ready is the job's own word: one question of ours that goes unanswered changes nothing.
    if driver.ready and (progress is None or progress.state == "running"):
        if facts.stuck and progress:
            return Finding(
                "False", "NoProgress", f"{driver.name} runs, has a lag of {progress.lag} and its positions do not move"
            )
        return Finding("True", "Running", "")
    return _not_running(driver, progress)


def _not_running(driver: DriverPod, progress: Progress | None) -> Finding:
    if driver.unschedulable:
        return Finding("False", "Unschedulable", f"{driver.name} finds no node: {driver.unschedulable}")
    if driver.waiting in _NO_IMAGE:
        return Finding("False", "ImageUnavailable", f"{driver.name}: {driver.waiting}: {driver.waiting_message}"[:1000])
    if progress is not None and progress.state == "restarting":
        return Finding("False", _reason(progress.last_error) or "Restarting", progress.last_error or "")
    if driver.exit_code and (driver.waiting or driver.restarts):
        return Finding("False", _reason(driver.error) or "Crashed", _ended(driver))
    return Finding("False", "Starting", f"{driver.name} starts")


def _ended(driver: DriverPod) -> str:
    said = driver.error or "it said nothing"
    return f"{said} (exit code {driver.exit_code}, {driver.restarts} restarts)"


def _reason(sentence: str | None) -> str | None:
    """The job's own name of a failure, in front of its sentence."""
    name = (sentence or "").split(":", 1)[0]
    return name if name in Reason._value2member_map_ else None


def _has_begun(facts: Facts) -> bool:
    """Whether the present process has got going. Until then it counts how the one before it ended, and after that no more."""
    return facts.progress is not None and facts.progress.state != "starting"


def _guarantee(facts: Facts) -> Finding:
    driver, progress = facts.workload.driver, facts.progress
    said = progress.last_error if progress else None
    if driver and not said and not _has_begun(facts):
        said = driver.error
    reason = _reason(said)
    if said and reason is not None and REASONS[Reason(reason)].breaks_guarantee and job_running(facts).status != "True":
        return Finding("False", reason, said)
    return facts.guarantee


def _stalled(facts: Facts, job: Finding, *, settled: bool) -> Finding:
    driver = facts.workload.driver
    if facts.invalid:
        return Finding("True", "InvalidSpec", facts.invalid)
    if facts.outcome:
        return Finding("True", *facts.outcome)
    if facts.paused:
        return facts.paused
    if facts.topics.reason in _WRONG_TOPICS:
        return Finding("True", facts.topics.reason, facts.topics.message)
    if job.reason in ("NoProgress", "Unschedulable", "ImageUnavailable"):
        return Finding("True", job.reason, job.message)
    halted = driver is not None and driver.exit_code in (ExitCode.INVALID, ExitCode.HALTED) and not _has_begun(facts)
    if driver and halted and job.status != "True":
        return Finding("True", _reason(driver.error) or "Halted", _ended(driver))
    # How long replicas take to be copied is a matter of their size.
    if facts.expired and not settled and facts.topics.reason != "Repairing":
        return Finding("True", "DeadlineExceeded", job.message or facts.topics.message)
    return Finding("False", "Progressing")


def _ready(facts: Facts, job: Finding, guarantee: Finding) -> Finding:
    if facts.invalid:
        return Finding("False", "InvalidSpec", facts.invalid)
    if job.reason == "Completed" and guarantee.status != "False":
        return Finding("True", "Completed", job.message)
    if facts.paused:
        return Finding("False", facts.paused.reason, facts.paused.message)
    for finding in (facts.topics, job, guarantee):
        if finding.status != "True":
            return Finding("False", finding.reason, finding.message)
    return Finding("True", "Delivering", "")


def merged(
    previous: Sequence[Condition], found: Mapping[str, Finding], now: str, generation: int | None
) -> tuple[Condition, ...]:
    """The conditions in their fixed order. The time of a transition moves only when the status does. now: RFC 3339, whole seconds.

    While an edit is on its way, or refused, what is well is so by the spec before: it keeps that one's generation, for which whoever waits
    for a condition (`kubectl wait`) looks.
    """
    before = {c.type: c for c in previous}
    unsettled = any(found[kind].status == "True" for kind in ("Reconciling", "Stalled"))

    def observed(kind: str) -> int | None:
        known = before.get(kind)
        if known and unsettled and kind in _OF_THE_JOB and known.status == found[kind].status == "True":
            return known.observed_generation
        return generation

    return tuple(
        Condition(
            type=kind,
            status=found[kind].status,
            reason=found[kind].reason,
            message=found[kind].message[:4096],
            last_transition_time=before[kind].last_transition_time
            if kind in before and before[kind].status == found[kind].status
            else now,
            observed_generation=observed(kind),
        )
        for kind in ORDER
    )


def never_valid(previous: Sequence[Condition], invalid: str, now: str, generation: int | None) -> tuple[Condition, ...]:
    """The conditions of a pipeline whose spec has been wrong from the beginning: nothing is known but why."""
    unknown = Finding("Unknown", "InvalidSpec", "the spec has never been valid; nothing has been started")
    found = dict.fromkeys(ORDER, unknown) | {
        "Ready": Finding("False", "InvalidSpec", invalid),
        "Stalled": Finding("True", "InvalidSpec", invalid),
        "Reconciling": Finding("False", "Stalled", invalid),
    }
    return merged(previous, found, now, generation)


def is_bad(condition: Condition) -> bool:
    """Whether a person should look: what is merely on its way is not bad."""
    if condition.type == "TopicsReady" and condition.reason in _REMARKS:
        return True
    return condition.reason not in _ON_ITS_WAY and condition.status == (
        "True" if condition.type == "Stalled" else "False"
    )


def transitions(previous: Sequence[Condition], present: Sequence[Condition]) -> tuple[Condition, ...]:
    """What is worth an Event: a status or a reason that changed, and that the others do not tell already."""
    before = {c.type: (c.status, c.reason) for c in previous}
    changed = [c for c in present if before.get(c.type) != (c.status, c.reason)]
    ready = {c.reason for c in changed if c.type == "Ready"}
    told = [
        c
        for c in changed
        if c.type in ("Ready", "GuaranteeMet", "Stalled") or (c.type == "TopicsReady" and c.reason not in ready)
    ]
    made = ("False", "Creating")  # that new topics are there goes without saying
    told = [c for c in told if c.type != "TopicsReady" or is_bad(c) or before.get(c.type) not in (None, made)]
    return tuple(c for c in told if c.type in before or c.type == "Ready" or is_bad(c))
