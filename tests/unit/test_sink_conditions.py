"""Conditions of a pipeline whose sink cannot be reached, or refuses the login, the columns, a row or dead letters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright.conditions.findings import findings
from ackwright.planning.observed import DriverPod
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import Failure, State
from unit.condition_facts import RUNNING, facts, pod, progress

RESUMES = [Reason.SINK_UNREACHABLE, Reason.SINK_LOGIN_REFUSED, Reason.TABLE_UNSUITABLE]
HALTS = [Reason.ROW_REFUSED, Reason.TOO_MANY_DEAD_LETTERS]
MESSAGE = "what the sink has answered"


def ended(reason: Reason) -> DriverPod:
    """A driver that has ended for this reason."""
    return pod(exit_code=REASONS[reason].exit_code, error=Failure(reason, MESSAGE), restarts=1)


@pytest.mark.parametrize("reason", [*RESUMES, *HALTS])
def test_what_is_wrong_with_the_sink_is_the_reason_of_ready_and_stalled(reason: Reason) -> None:
    """Stalled if a person has to decide; else the driver starts again by itself."""
    conditions = findings(facts(ended(reason)))
    for kind in ("Ready", "JobRunning"):
        assert (conditions[kind].status, conditions[kind].reason) == ("False", reason)
        assert MESSAGE in conditions[kind].message
    stalled = ("True", reason) if reason in HALTS else ("False", "NotStalled")
    assert (conditions["Stalled"].status, conditions["Stalled"].reason) == stalled
    assert conditions["Reconciling"].status == ("False" if reason in HALTS else "True")
    assert conditions["TopicsReady"].status == "True"


@pytest.mark.parametrize("reason", RESUMES)
def test_a_query_that_restarts_for_its_sink_is_not_ready_until_it_runs(reason: Reason) -> None:
    down = Failure(reason, MESSAGE)
    ready = findings(facts(pod(), progress=progress(State.RESTARTING, last_error=down)))["Ready"]
    assert (ready.status, ready.reason) == ("False", reason)
    again = findings(facts(pod(ready=True), progress=progress(State.RUNNING, last_error=down)))["Ready"]
    assert (again.status, again.reason) == ("True", "Delivering")


@pytest.mark.parametrize("reason", HALTS)
def test_a_driver_that_runs_again_stalls_no_more(reason: Reason) -> None:
    conditions = findings(facts(replace(ended(reason), ready=True), progress=RUNNING))
    assert (conditions["Ready"].status, conditions["Stalled"].status) == ("True", "False")
