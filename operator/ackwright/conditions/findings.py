"""What the operator finds about each aspect of a pipeline, out of facts. Pure.

Ready, Reconciling and Stalled mean what kstatus (and so Argo CD, Flux and `kubectl wait`) understands by them;
GuaranteeMet is Ackwright's own: whether the declared guarantee holds at this moment.
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ackwright.api.status import CHECKING, ROLLED_BACK, EditStatus, Truth
from ackwright.errors import AckwrightError
from ackwright.planning.observed import NO_IMAGE, DriverPod, Workload
from ackwright.planning.steps import DRIVERS
from ackwright.planning.topic_steps import TopicProblem
from ackwright.reasons import AnyReason, ConditionReason, consequences, reason_of
from ackwright.wording import counted
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.reasons import REASONS, Reason
from ackwright_stream.reports import Failure, LostTopic, ProgressReport, State

_EXECUTORS_START_S = 300  # in which a node is added and an image pulled


@dataclass(frozen=True)
class Finding:
    """The state of one aspect."""

    status: Truth
    reason: AnyReason
    message: str = ""
    # What the message names, for programs: a person may accept it.
    lost_topics: tuple[LostTopic, ...] = ()
    fingerprint: str | None = None  # of moved positions or lost state


@dataclass(frozen=True)
class Facts:
    """What the findings depend on."""

    suspended: bool  # as the spec says
    topics: Finding
    guarantee: Finding  # as far as the state of Kafka decides it
    workload: Workload
    with_schemas: bool = False  # whether a format needs the schema registry
    progress: ProgressReport | None = None  # None: no driver answers
    invalid: str | None = None  # what is wrong with the spec; None: it is valid
    failure: AckwrightError | None = None  # of the step that failed in this reconcile
    pending: Sequence[str] = field(default_factory=tuple)  # what is left to do
    stuck: bool = False  # the driver has lag and makes no progress
    expired: bool = False  # the change takes longer than it may
    paused: TopicProblem | None = None  # why the driver drains, or has drained
    held: EditStatus | None = None  # a valid edit by which the pipeline does not run
    waits: bool = False  # for its turn, because other drivers are being replaced
    next_run: str | None = None  # when the next run of a schedule is due
    reported: bool = True  # whether a driver has ever reported what it delivers
    heard: bool = True  # the present driver has reported its progress
    unreachable: bool = False  # the present driver is ready, and has not reported for too long
    job_failure: Finding | None = None  # the job's failure that JobRunning reported before this reconcile


def findings(facts: Facts) -> Mapping[str, Finding]:
    """The finding about each aspect, by the type of its condition."""
    job = job_running(facts)
    guarantee = _guarantee_met(facts, job)
    ready = _ready(facts, job, guarantee)
    settled = ready.status == "True" or (facts.suspended and job.reason == ConditionReason.SUSPENDED)
    stalled = _stalled(facts, job, settled=settled)
    schemas = {"SchemasReady": _schemas_ready(facts, job)} if facts.with_schemas else {}
    return {
        "Ready": ready,
        "GuaranteeMet": guarantee,
        "TopicsReady": facts.topics,
        **schemas,
        "JobRunning": job,
        "Reconciling": _reconciling(facts, job, stalled, settled=settled),
        "Stalled": stalled,
        **({"RolledBack": _rolled_back(facts.held)} if facts.held and facts.held.state == ROLLED_BACK else {}),
    }


def job_running(facts: Facts) -> Finding:
    """Whether the driver delivers. A pod that runs is not enough: its driver has to make progress."""
    driver, progress = facts.workload.driver, facts.progress
    if _waits_for_schedule(facts):
        upcoming = f"the next run is due at {facts.next_run}" if facts.next_run else "no run is due in fifty years"
        return Finding("False", ConditionReason.SCHEDULED, upcoming)
    if facts.workload.complete and facts.workload.idle is None:
        return Finding(
            "False", ConditionReason.COMPLETED, "the bounded run has delivered all records that existed when it started"
        )
    if facts.suspended or facts.paused:
        driver = None if facts.workload.complete else driver  # the pod of a completed run stays
        return _draining(driver, None if facts.suspended else facts.paused)
    if driver is None and any(kind in DRIVERS for kind, _ in facts.workload.children):
        return Finding("False", ConditionReason.STARTING, "Kubernetes has not created the driver's pod yet")
    if driver is None:
        why = next((f": {f.message}" for f in (facts.topics, facts.guarantee) if f.status != "True"), "")
        return Finding("False", ConditionReason.NOT_STARTED, f"no driver has been started{why}")
    if driver.deleting:
        message = f"{driver.name} is ending{_at_most(driver)}; its successor starts afterwards"
        return Finding("False", ConditionReason.DRAINING, message)
    # The pod's readiness is the job's own answer, so one request of the operator that fails changes nothing.
    if driver.ready and (progress is None or progress.state is State.RUNNING):
        if facts.stuck and progress:
            return Finding(
                "False",
                ConditionReason.NO_PROGRESS,
                f"{driver.name} runs with a lag of {progress.lag}, but its positions do not move; it is restarted: "
                "read its log, and check that its executors run",
            )
        # Between two attempts at the same records the driver runs for a while. Ready would change with each attempt.
        if failure := _unresolved(facts, driver):
            return failure
        if progress is None and facts.unreachable:
            return _unreachable(driver)
        if progress is None and not facts.heard:
            return Finding("False", ConditionReason.STARTING, f"{driver.name} is ready, and has not reported yet")
        return _delivers(facts.workload, progress)
    return _not_running(driver, progress)


def _unreachable(driver: DriverPod) -> Finding:
    """That Kubernetes reports the driver as ready, and the operator cannot read what it does."""
    at = driver.address or driver.name
    return Finding(
        "Unknown",
        ConditionReason.DRIVER_UNREACHABLE,
        f"{driver.name} is ready, but the operator gets no report from http://{at}/progress, so it does not know "
        "whether records are delivered; allow connections from the operator's namespace to this port in the "
        "NetworkPolicies of both namespaces",
    )


def _unresolved(facts: Facts, driver: DriverPod) -> Finding | None:
    """The failure of a running driver's last attempt, if records are left and no batch has been delivered since."""
    progress = facts.progress
    if progress is None:  # whether a batch was delivered is not known: nothing changes
        return facts.job_failure
    if progress.ends and not progress.lag:
        return None
    if progress.failing and progress.last_error:
        return Finding("False", progress.last_error.reason, progress.last_error.message)
    if not progress.batches and (reason := _reported_reason(driver)):
        return Finding("False", reason, _end_of(driver))
    return None


def _delivers(workload: Workload, progress: ProgressReport | None) -> Finding:
    standbys = [d for d in workload.drivers if d is not workload.driver]
    if workload.wants_standby and not any(d.ready and not d.deleting for d in standbys):
        what = f"{standbys[0].name} is not ready, see its events" if standbys else "its pod does not exist yet"
        return Finding("True", ConditionReason.WITHOUT_STANDBY, f"no driver stands by: {what}")
    if progress and progress.event_log_error:
        why = f"the first attempt failed: {progress.event_log_error}"[:900]
        message = (
            f"Spark started only without its event log; {why}; if the log is the cause, correct spec.spark.eventLog"
        )
        return Finding("True", ConditionReason.WITHOUT_EVENT_LOG, message)
    if progress and progress.executors_requested and progress.executors_missing_s >= _EXECUTORS_START_S:
        return Finding(
            "True",
            ConditionReason.EXECUTORS_MISSING,
            f"the driver has requested {counted(progress.executors_requested, 'executor')}, and "
            f"{progress.executors or 0} of them run; raise the namespace's ResourceQuota or add nodes, or lower "
            "spec.spark.executor.autoscaling.maxInstances",
        )
    return Finding("True", ConditionReason.RUNNING, "")


def _waits_for_schedule(facts: Facts) -> bool:
    """Whether a pipeline with a schedule is between two runs, or before the first, and would start the next one."""
    workload = facts.workload
    return (
        bool(workload.idle) and (workload.complete or not workload.drivers) and not facts.suspended and not facts.paused
    )


def _draining(driver: DriverPod | None, paused: TopicProblem | None) -> Finding:
    """paused: None if spec.suspend is set."""
    if driver is not None:
        message = f"{driver.name} completes its batch and commits its positions{_at_most(driver)}"
        return Finding("False", ConditionReason.DRAINING, message)
    if paused is not None:
        return Finding("False", ConditionReason.PAUSED, str(paused))
    return Finding(
        "False", ConditionReason.SUSPENDED, "set spec.suspend to false to resume from the committed positions"
    )


def _at_most(driver: DriverPod) -> str:
    """How long Kubernetes lets the driver drain, behind what it does."""
    return "" if driver.drain_s is None else f", for at most {driver.drain_s} s"


def _not_running(driver: DriverPod, progress: ProgressReport | None) -> Finding:
    if driver.unschedulable:
        return Finding(
            "False",
            ConditionReason.UNSCHEDULABLE,
            f"no node fits {driver.name}: {driver.unschedulable}; add nodes, or request less under spec.spark.driver",
        )
    if driver.waiting in NO_IMAGE:
        return Finding(
            "False",
            ConditionReason.IMAGE_UNAVAILABLE,
            f"{driver.name}: {driver.waiting}: {driver.waiting_message}"[:1000],
        )
    if progress is not None and progress.state is State.STANDBY:
        return Finding("False", ConditionReason.STANDBY, f"{driver.name} waits until no other driver owns the pipeline")
    if progress is not None and progress.state is State.RESTARTING:
        failure = progress.last_error
        if failure is None:
            return Finding("False", ConditionReason.RESTARTING, f"{driver.name} restarts its query")
        return Finding("False", failure.reason, failure.message)
    halted = driver.exit_code in (ExitCode.INVALID, ExitCode.HALTED)  # the process before, and this one may, too
    if progress is not None and progress.state is State.REPLAYING and not halted:
        # The batch that runs again is left out: the message would change with each.
        return Finding(
            "False",
            ConditionReason.REPLAYING,
            f"the newest state is lost, so {driver.name} runs micro-batches up to {progress.replay_last} again from an "
            "older copy, without their output; it delivers again afterwards",
        )
    if driver.exit_code and (driver.waiting or driver.restarts):
        return Finding("False", _reported_reason(driver) or ConditionReason.CRASHED, _end_of(driver))
    return Finding("False", ConditionReason.STARTING, f"{driver.name} is starting")


def _reported_reason(driver: DriverPod) -> Reason | None:
    """Why the driver's container last ended, as the job reported it; None: it did not."""
    return driver.error.reason if isinstance(driver.error, Failure) else None


def _end_of(driver: DriverPod) -> str:
    """How the driver's container last ended, in a sentence."""
    error = driver.error
    message = (
        error.message
        if isinstance(error, Failure)
        else str(error or "the driver ended without a message; read its log")
    )
    pause = "; Kubernetes restarts it after a pause" if driver.waiting == "CrashLoopBackOff" else ""
    return f"{message} (exit code {driver.exit_code}, {counted(driver.restarts, 'restart')}{pause})"


def _has_started(facts: Facts) -> bool:
    """Whether the present process has started. Until then the end of the process before it counts."""
    return facts.progress is not None and facts.progress.state not in (State.STARTING, State.REPLAYING)


def _may_halt_again(facts: Facts) -> bool:
    """Whether the present process has yet to deliver the records at which the one before may have halted."""
    progress = facts.progress
    return (
        progress is None
        or progress.state in (State.STARTING, State.REPLAYING)
        or (progress.state is State.RUNNING and not progress.batches)
    )


def _last_failure(facts: Facts) -> Failure | None:
    """The last failure that the job reported: of the running process, or of the one before it until it has started."""
    driver, progress = facts.workload.driver, facts.progress
    if progress and progress.last_error:
        return progress.last_error
    if driver and not _has_started(facts) and isinstance(driver.error, Failure):
        return driver.error
    return None


def _guarantee_met(facts: Facts, job: Finding) -> Finding:
    failure = _last_failure(facts)
    if failure and REASONS[failure.reason].breaks_guarantee and job.status != "True":
        return Finding("False", failure.reason, failure.message)
    if facts.guarantee.status == "True" and job.reason == ConditionReason.DRIVER_UNREACHABLE:
        return Finding("Unknown", job.reason, job.message)
    if facts.guarantee.status == "True" and not facts.reported:
        return replace(facts.guarantee, message="topics and brokers keep it; no driver has delivered yet")
    return facts.guarantee


def _schemas_ready(facts: Facts, job: Finding) -> Finding:
    """Whether the driver has the schemas that its formats need, and registered that of the output."""
    failure = _last_failure(facts)
    if failure and REASONS[failure.reason].of_schemas and job.status != "True":
        return Finding("False", failure.reason, failure.message)
    # It resolves them before it takes or awaits the pipeline.
    if job.status == "True" or _has_started(facts) or facts.workload.complete:
        return Finding("True", ConditionReason.SCHEMAS_RESOLVED, "")
    return Finding("Unknown", job.reason, "no driver has resolved the schemas yet")


def _stalled(facts: Facts, job: Finding, *, settled: bool) -> Finding:
    driver = facts.workload.driver
    if facts.invalid:
        return Finding("True", Reason.INVALID_SPEC, facts.invalid)
    if facts.failure:
        return Finding("True", facts.failure.reason, facts.failure.message)
    if facts.paused:
        return Finding("True", facts.paused.reason, str(facts.paused), facts.paused.lost_topics)
    if consequences(facts.topics.reason).stalls == "TopicsReady":
        return Finding("True", facts.topics.reason, facts.topics.message)
    if consequences(job.reason).stalls == "JobRunning":
        return Finding("True", job.reason, job.message)
    halted = driver is not None and driver.exit_code in (ExitCode.INVALID, ExitCode.HALTED) and _may_halt_again(facts)
    if driver and halted and job.status != "True":
        return _halted(driver)
    if facts.topics.reason == Reason.TOPIC_MISSING and any(topic.id for topic in facts.topics.lost_topics):
        # Of a topic that existed the records are lost. One that never did may be created by another program.
        return Finding("True", Reason.TOPIC_MISSING, facts.topics.message, facts.topics.lost_topics)
    if facts.held is not None and facts.held.state != CHECKING:
        return _held(facts.held)
    # How long copying replicas takes depends on their size, so it has no deadline.
    if facts.expired and not settled and facts.topics.reason != ConditionReason.REPAIRING:
        why = job.message or facts.topics.message
        return Finding("True", ConditionReason.DEADLINE_EXCEEDED, f"not ready in time (ACKWRIGHT_SETTLE): {why}")
    return Finding("False", ConditionReason.NOT_STALLED)


def _held(edit: EditStatus) -> Finding:
    """That a person has to correct an edit. The pipeline keeps running by the earlier spec."""
    reason = reason_of(edit.reason) or ConditionReason.HALTED
    if edit.state == ROLLED_BACK:
        return Finding("True", reason, edit.message)
    return Finding("True", reason, f"the edit is not applied, and the earlier spec keeps running: {edit.message}")


def _rolled_back(edit: EditStatus) -> Finding:
    """That an edit did not deliver in time, with the reason why it did not."""
    return Finding("True", reason_of(edit.reason) or ConditionReason.HALTED, edit.message)


def _halted(driver: DriverPod) -> Finding:
    """The halt of the driver's last process, as the job reported it."""
    message = _end_of(driver)
    if not isinstance(driver.error, Failure):
        return Finding("True", ConditionReason.HALTED, message)
    lost = driver.error.lost_topic
    return Finding("True", driver.error.reason, message, (lost,) if lost else (), driver.error.fingerprint)


def _reconciling(facts: Facts, job: Finding, stalled: Finding, *, settled: bool) -> Finding:
    if stalled.status == "True":
        return Finding("False", ConditionReason.STALLED, "see Stalled")
    if facts.held is not None:
        message = "the edit is checked in a pod, and the earlier spec keeps running until it has passed"
        return Finding("True", ConditionReason.CHECKING_EDIT, message)
    if facts.waits:
        message = "the driver is replaced when fewer others are (ACKWRIGHT_MAX_UNAVAILABLE); it delivers meanwhile"
        return Finding("True", ConditionReason.PROGRESSING, message)
    if settled and not facts.pending and not facts.workload.rolling:
        return Finding("False", ConditionReason.SETTLED)
    # The old driver stays ready until it ends: without `rolling` an edit would seem complete before it has begun.
    rolling = "a driver of the new revision replaces the running one" if facts.workload.rolling else ""
    return Finding(
        "True", ConditionReason.PROGRESSING, "; ".join(facts.pending) or job.message or facts.topics.message or rolling
    )


def _ready(facts: Facts, job: Finding, guarantee: Finding) -> Finding:
    if facts.invalid:
        return Finding("False", Reason.INVALID_SPEC, facts.invalid)
    if job.reason == ConditionReason.COMPLETED and guarantee.status != "False":
        return Finding("True", ConditionReason.COMPLETED, job.message)
    if facts.paused:
        return Finding("False", facts.paused.reason, str(facts.paused))
    scheduled = job.reason == ConditionReason.SCHEDULED
    for finding in (facts.topics, guarantee) if scheduled else (facts.topics, job, guarantee):
        if finding.status != "True":
            return Finding("False", finding.reason, finding.message)
    return Finding("True", job.reason, job.message) if scheduled else Finding("True", ConditionReason.DELIVERING, "")
