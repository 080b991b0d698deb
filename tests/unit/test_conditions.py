"""Conditions: what is reported about a pipeline in each state of its job.

Hypothesis makes facts at random for what must hold in all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright.conditions.findings import Facts, Finding, findings
from ackwright.conditions.transitions import ORDER, merged
from ackwright.errors import AckwrightError
from ackwright.planning.observed import DriverPod, LastLogLine, OutOfMemory, Workload
from ackwright.planning.topic_steps import TopicProblem
from ackwright.reasons import ConditionReason
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Failure, LostTopic, State
from unit.condition_facts import (
    COMPLETE,
    CRASHED,
    HALTED,
    LOST,
    MOVED,
    READY,
    RUNNING,
    STATEFUL_SET,
    facts,
    pod,
    progress,
)


def summary(facts_: Facts) -> dict[str, str]:
    """status/reason of each condition."""
    return {kind: f"{f.status}/{f.reason}" for kind, f in findings(facts_).items()}


def test_schemas_are_a_condition_only_of_a_pipeline_that_needs_them() -> None:
    assert "SchemasReady" not in summary(READY)
    assert summary(replace(READY, with_schemas=True))["SchemasReady"] == "True/SchemasResolved"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure(Reason.SCHEMA_INCOMPATIBLE, "no"), "False/SchemaIncompatible"),
        (Failure(Reason.REGISTRY_UNREACHABLE, "no"), "False/RegistryUnreachable"),
        (Failure(Reason.BATCH_FAILED, "no"), "Unknown/BatchFailed"),
    ],
)
def test_a_driver_that_ends_for_its_schemas(failure: Failure, expected: str) -> None:
    ended = pod(exit_code=ExitCode.UNAVAILABLE, error=failure, restarts=1)
    assert summary(facts(ended, with_schemas=True))["SchemasReady"] == expected


def test_schemas_while_a_driver_starts_runs_and_restarts() -> None:
    starting = facts(pod(), progress=progress(State.STARTING), with_schemas=True)
    assert summary(starting)["SchemasReady"] == "Unknown/Starting"
    down = Failure(Reason.REGISTRY_UNREACHABLE, "no")
    restarting = facts(pod(), progress=progress(State.RESTARTING, last_error=down), with_schemas=True)
    assert summary(restarting)["SchemasReady"] == "False/RegistryUnreachable"
    other = facts(pod(), progress=progress(State.RESTARTING, last_error=LOST), with_schemas=True)
    assert summary(other)["SchemasReady"] == "True/SchemasResolved"
    again = facts(pod(ready=True), progress=progress(State.RUNNING, last_error=down), with_schemas=True)
    assert summary(again)["SchemasReady"] == "True/SchemasResolved"
    assert summary(facts(workload=BETWEEN_RUNS, with_schemas=True))["SchemasReady"] == "Unknown/Scheduled"
    assert summary(facts(children=COMPLETE, with_schemas=True))["SchemasReady"] == "True/SchemasResolved"


ALWAYS = [kind for kind in ORDER if kind not in ("SchemasReady", "RolledBack")]
SETTLED, ON = "False/Settled", "True/Progressing"
QUIET = "False/NotStalled"  # Stalled is not
BETWEEN_RUNS = Workload(idle=True)  # of a schedule


@pytest.mark.parametrize(
    ("facts_", "ready", "guarantee", "job", "reconciling", "stalled"),
    [
        pytest.param(READY, "True/Delivering", "True/Met", "True/Running", SETTLED, QUIET, id="running"),
        pytest.param(
            facts(pod(ready=True)),
            "True/Delivering",
            "True/Met",
            "True/Running",
            SETTLED,
            QUIET,
            id="a question goes unanswered",
        ),
        pytest.param(
            facts(children={}), "False/NotStarted", "True/Met", "False/NotStarted", ON, QUIET, id="nothing there"
        ),
        pytest.param(facts(), "False/Starting", "True/Met", "False/Starting", ON, QUIET, id="no pod yet"),
        pytest.param(facts(pod()), "False/Starting", "True/Met", "False/Starting", ON, QUIET, id="starting"),
        pytest.param(
            facts(pod(), progress=progress(State.STARTING)),
            "False/Starting",
            "True/Met",
            "False/Starting",
            ON,
            QUIET,
            id="job starts",
        ),
        pytest.param(
            facts(suspended=True), "False/Suspended", "True/Met", "False/Suspended", SETTLED, QUIET, id="suspended"
        ),
        pytest.param(
            facts(pod(ready=True), suspended=True, progress=RUNNING),
            "False/Draining",
            "True/Met",
            "False/Draining",
            ON,
            QUIET,
            id="drains",
        ),
        pytest.param(
            facts(pod(deleting=True)), "False/Draining", "True/Met", "False/Draining", ON, QUIET, id="is replaced"
        ),
        pytest.param(
            facts(pod(waiting="CrashLoopBackOff", **HALTED)),
            *("False/PositionLost", "False/PositionLost", "False/PositionLost", "False/Stalled", "True/PositionLost"),
            id="halted",
        ),
        pytest.param(
            facts(pod(**HALTED), progress=progress(State.STARTING)),
            *("False/PositionLost", "False/PositionLost", "False/PositionLost", "False/Stalled", "True/PositionLost"),
            id="halted, and tried again",
        ),
        pytest.param(
            facts(pod(**HALTED), progress=progress(State.REPLAYING)),
            *("False/PositionLost", "False/PositionLost", "False/PositionLost", "False/Stalled", "True/PositionLost"),
            id="runs batches again, halted, and tried again",
        ),
        pytest.param(
            facts(pod(exit_code=ExitCode.HALTED, error=MOVED, restarts=1)),
            *("False/PositionsMoved",) * 3,
            *("False/Stalled", "True/PositionsMoved"),
            id="halted at moved positions",
        ),
        pytest.param(
            facts(
                pod(**HALTED),
                progress=progress(State.RESTARTING, last_error=Failure(Reason.BROKERS_UNREACHABLE, "gone")),
            ),
            *("False/BrokersUnreachable", "True/Met", "False/BrokersUnreachable", ON, QUIET),
            id="halted long ago",
        ),
        pytest.param(
            facts(pod(ready=True, **HALTED), progress=RUNNING),
            "True/Delivering",
            "True/Met",
            "True/Running",
            SETTLED,
            QUIET,
            id="recovered",
        ),
        pytest.param(
            facts(pod(waiting="CrashLoopBackOff", **CRASHED)),
            *("False/BatchFailed", "True/Met", "False/BatchFailed", ON, QUIET),
            id="fails again and again",
        ),
        pytest.param(
            facts(pod(waiting="CrashLoopBackOff", exit_code=137, error=LastLogLine("Killed"), restarts=1)),
            *("False/Crashed", "True/Met", "False/Crashed", ON, QUIET),
            id="killed by the kernel",
        ),
        pytest.param(
            facts(pod(), progress=progress(State.RESTARTING, last_error=Failure(Reason.DATA_EXPIRED, "in-0"))),
            *("False/DataExpired", "False/DataExpired", "False/DataExpired", ON, QUIET),
            id="records expired",
        ),
        pytest.param(
            facts(pod(), progress=progress(State.RESTARTING)),
            "False/Restarting",
            "True/Met",
            "False/Restarting",
            ON,
            QUIET,
            id="restarts",
        ),
        pytest.param(
            facts(pod(), progress=progress(State.REPLAYING, replay_batch=3, replay_last=9)),
            *("False/Replaying", "True/Met", "False/Replaying", ON, QUIET),
            id="runs batches again",
        ),
        pytest.param(
            facts(pod(waiting="ImagePullBackOff", waiting_message="no such image")),
            *("False/ImageUnavailable", "True/Met", "False/ImageUnavailable", "False/Stalled", "True/ImageUnavailable"),
            id="no image",
        ),
        pytest.param(
            facts(pod(unschedulable="0/3 nodes are available")),
            *("False/Unschedulable", "True/Met", "False/Unschedulable", "False/Stalled", "True/Unschedulable"),
            id="no node",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, stuck=True),
            *("False/NoProgress", "True/Met", "False/NoProgress", "False/Stalled", "True/NoProgress"),
            id="no progress",
        ),
        pytest.param(
            facts(children=COMPLETE), "True/Completed", "True/Met", "False/Completed", SETTLED, QUIET, id="completed"
        ),
        pytest.param(
            facts(children=COMPLETE, suspended=True),
            "True/Completed",
            "True/Met",
            "False/Completed",
            SETTLED,
            QUIET,
            id="then suspended",
        ),
        pytest.param(
            facts(children=COMPLETE, guarantee=Finding("False", ConditionReason.TOPICS_TOO_WEAK)),
            *("False/Completed", "False/TopicsTooWeak", "False/Completed", ON, QUIET),
            id="completed, and not as promised",
        ),
        pytest.param(
            facts(workload=BETWEEN_RUNS),
            *("True/Scheduled", "True/Met", "False/Scheduled", SETTLED, QUIET),
            id="before the first run of a schedule",
        ),
        pytest.param(
            facts(workload=BETWEEN_RUNS, topics=Finding("False", Reason.TOPIC_MISSING)),
            *("False/TopicMissing", "True/Met", "False/Scheduled", ON, QUIET),
            id="before the first run, whose source is missing",
        ),
        pytest.param(
            facts(
                workload=BETWEEN_RUNS,
                topics=Finding("Unknown", Reason.BROKERS_UNREACHABLE),
                guarantee=Finding("Unknown", Reason.BROKERS_UNREACHABLE),
            ),
            *("False/BrokersUnreachable", "Unknown/BrokersUnreachable", "False/Scheduled", ON, QUIET),
            id="before the first run, without brokers",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, guarantee=Finding("False", ConditionReason.TOPICS_TOO_WEAK)),
            *("False/TopicsTooWeak", "False/TopicsTooWeak", "True/Running", ON, QUIET),
            id="replication has drifted",
        ),
        pytest.param(
            facts(
                children={},
                topics=Finding("Unknown", Reason.BROKERS_UNREACHABLE),
                guarantee=Finding("Unknown", Reason.BROKERS_UNREACHABLE),
            ),
            *("False/BrokersUnreachable", "Unknown/BrokersUnreachable", "False/NotStarted", ON, QUIET),
            id="no brokers",
        ),
        pytest.param(
            facts(children={}, failure=AckwrightError(Reason.NAME_TAKEN, "Role p-driver is not ours")),
            *("False/NotStarted", "True/Met", "False/NotStarted", "False/Stalled", "True/NameTaken"),
            id="a step failed",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, invalid="spec.x: wrong"),
            *("False/InvalidSpec", "True/Met", "True/Running", "False/Stalled", "True/InvalidSpec"),
            id="invalid edit",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, pending=["apply Role p-driver (drifted)"]),
            *("True/Delivering", "True/Met", "True/Running", ON, QUIET),
            id="repairs while it runs",
        ),
        pytest.param(
            facts(expired=True),
            "False/Starting",
            "True/Met",
            "False/Starting",
            "False/Stalled",
            "True/DeadlineExceeded",
            id="too long",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, expired=True),
            *("True/Delivering", "True/Met", "True/Running", SETTLED, QUIET),
            id="too long, and there at last",
        ),
    ],
)
def test_each_state(*, facts_: Facts, ready: str, guarantee: str, job: str, reconciling: str, stalled: str) -> None:
    assert summary(facts_) == {
        "Ready": ready,
        "GuaranteeMet": guarantee,
        "TopicsReady": f"{facts_.topics.status}/{facts_.topics.reason}",
        "JobRunning": job,
        "Reconciling": reconciling,
        "Stalled": stalled,
    }


def test_a_halt_names_what_a_person_may_accept_as_long_as_it_lasts() -> None:
    halted = pod(exit_code=ExitCode.HALTED, error=replace(MOVED, fingerprint="0123456789ab"), restarts=1)
    lost = LostTopic("in", "old", "now")
    recreated = pod(exit_code=ExitCode.HALTED, error=Failure(Reason.TOPIC_REPLACED, "x", lost_topic=lost), restarts=1)
    assert findings(facts(halted))["Stalled"].fingerprint == "0123456789ab"
    assert findings(facts(recreated))["Stalled"].lost_topics == (lost,)
    paused = TopicProblem(Reason.TOPIC_REPLACED, "x", lost_topics=(lost,))
    assert findings(facts(paused=paused))["Stalled"].lost_topics == (lost,)
    for driver in (halted, recreated):
        resumed = findings(facts(driver, progress=RUNNING))["Stalled"]
        assert (resumed.status, resumed.fingerprint, resumed.lost_topics) == ("False", None, ())


def test_messages_say_what_is_the_matter() -> None:
    halted = findings(facts(pod(waiting="CrashLoopBackOff", **HALTED)))
    assert halted["Stalled"].message == f"{LOST.message} (exit code 3, 1 restart; Kubernetes restarts it after a pause)"
    assert halted["GuaranteeMet"].message == LOST.message
    assert (
        "no such image"
        in findings(facts(pod(waiting="ErrImagePull", waiting_message="no such image")))["Stalled"].message
    )
    assert "a lag of 3" in findings(facts(pod(ready=True), progress=RUNNING, stuck=True))["Stalled"].message
    assert findings(facts(pending=("a", "b")))["Reconciling"].message == "a; b"
    unfit = facts(children={}, topics=Finding("False", Reason.TOPIC_MISSING, "no such topic: in"))
    assert "no such topic: in" in findings(unfit)["JobRunning"].message
    unfit = facts(children={}, guarantee=Finding("False", Reason.GROUP_IN_USE, "the group has members"))
    assert "the group has members" in findings(unfit)["Ready"].message


@pytest.mark.parametrize(
    ("observed", "kind", "message"),
    [
        pytest.param(
            facts(pod(unschedulable="0/3 nodes are available")),
            *("Stalled", "no node fits p-0: 0/3 nodes are available; add nodes, or request less under "),
            id="no node",
        ),
        pytest.param(
            facts(pod(ready=True), progress=RUNNING, stuck=True),
            *("Stalled", "p-0 runs with a lag of 3, but its positions do not move; it is restarted: read its log"),
            id="no progress",
        ),
        pytest.param(
            facts(pod(waiting="CrashLoopBackOff", exit_code=137, restarts=2)),
            *(
                "JobRunning",
                "the driver ended without a message; read its log (exit code 137, 2 restarts;",
            ),
            id="crashed",
        ),
        pytest.param(
            facts(pod(), expired=True),
            "Stalled",
            "not ready in time (ACKWRIGHT_SETTLE): p-0 is starting",
            id="too long",
        ),
    ],
)
def test_messages_name_the_cause_and_a_remedy(observed: Facts, kind: str, message: str) -> None:
    assert findings(observed)[kind].message.startswith(message)


# -- every state -----------------------------------------------------------------------------------------------

_failures = st.sampled_from([None, LOST, Failure(Reason.BATCH_FAILED, "boom"), Failure(Reason.UNEXPECTED, "")])
_errors = _failures | st.sampled_from(
    [OutOfMemory(), LastLogLine("PositionLost: x"), LastLogLine(""), LastLogLine("a\nb: c")]
)
_pods = st.builds(
    DriverPod,
    name=st.just("p-0"),
    uid=st.just("u"),
    ready=st.booleans(),
    deleting=st.booleans(),
    restarts=st.integers(0, 2),
    waiting=st.sampled_from([None, "CrashLoopBackOff", "ImagePullBackOff", "ContainerCreating"]),
    unschedulable=st.sampled_from([None, "no node"]),
    exit_code=st.sampled_from([None, 0, 1, 2, 3, 137]),
    error=_errors,
)
_findings = st.builds(
    Finding, st.sampled_from(["True", "False", "Unknown"]), st.just(Reason.UNEXPECTED), st.just("message")
)
_facts = st.builds(
    Facts,
    suspended=st.booleans(),
    topics=_findings,
    guarantee=_findings,
    workload=st.builds(
        Workload,
        children=st.sampled_from([{}, STATEFUL_SET, COMPLETE]),
        drivers=st.lists(_pods, max_size=2).map(tuple),
    ),
    progress=st.none()
    | st.builds(
        progress,
        st.sampled_from(State),
        last_error=_failures,
    ),
    invalid=st.sampled_from([None, "spec.x: wrong"]),
    failure=st.sampled_from([None, AckwrightError(Reason.NAME_TAKEN, "x")]),
    pending=st.sampled_from([(), ("a step",)]),
    stuck=st.booleans(),
    expired=st.booleans(),
)


@given(_facts)
def test_what_holds_in_every_state(facts_: Facts) -> None:
    all_ = findings(facts_)
    assert set(all_) == {*ALWAYS, *(["SchemasReady"] if facts_.with_schemas else [])}
    true = {kind for kind, f in all_.items() if f.status == "True"}
    assert not {"Reconciling", "Stalled"} <= true, "kstatus knows one or the other"
    assert all(f.status in ("True", "False") for kind, f in all_.items() if kind in ("Ready", "Reconciling", "Stalled"))
    assert "Ready" not in true or all_["GuaranteeMet"].status != "False", "never ready with a broken guarantee"
    assert "Ready" not in true or facts_.invalid is None
    assert "Ready" in true or {"Reconciling", "Stalled"} & true or facts_.suspended, (
        "somebody is at it, or says why not"
    )
    # As the API server demands of a condition; a condition that it refuses would take the whole status with it.
    for c in merged((), all_, "2026-11-21T12:00:00Z", 1):
        assert c.reason
        assert c.reason.isidentifier()


def test_a_stalled_pipeline_has_its_cause_in_the_condition_that_stalls_it() -> None:
    all_ = findings(facts(pod(**HALTED)))
    assert LOST.message in all_["Stalled"].message
    assert (all_["Reconciling"].reason, all_["Reconciling"].message) == (ConditionReason.STALLED, "see Stalled")


@pytest.mark.parametrize(
    "draining",
    [
        facts(pod(ready=True, drain_s=60), suspended=True),
        facts(pod(deleting=True, drain_s=60)),
    ],
)
def test_a_driver_that_drains_has_a_limit(draining: Facts) -> None:
    job = findings(draining)["JobRunning"]
    assert job.reason == ConditionReason.DRAINING
    assert "p-0 " in job.message
    assert ", for at most 60 s" in job.message


def test_executors_that_the_cluster_does_not_start_are_reported() -> None:
    def reported(seconds: float) -> Facts:
        figures = progress(State.RUNNING, executors=2, executors_requested=5, executors_missing_s=seconds)
        return replace(READY, progress=figures)

    assert summary(reported(299))["JobRunning"] == "True/Running"
    assert summary(reported(300))["JobRunning"] == "True/ExecutorsMissing"
    assert summary(reported(300))["Ready"] == "True/Delivering"
    assert findings(reported(300))["JobRunning"].message == (
        "the driver has requested 5 executors, and 2 of them run; raise the namespace's ResourceQuota or add nodes, "
        "or lower spec.spark.executor.autoscaling.maxInstances"
    )


def test_a_driver_without_its_event_log_delivers_and_reports_it() -> None:
    reported = replace(READY, progress=progress(State.RUNNING, event_log_error="no such directory"))
    assert summary(reported)["JobRunning"] == "True/WithoutEventLog"
    assert summary(reported)["Ready"] == "True/Delivering"
    expected = (
        "Spark started only without its event log; the first attempt failed: no such directory; if the log is the "
        "cause, correct spec.spark.eventLog"
    )
    assert findings(reported)["JobRunning"].message == expected
