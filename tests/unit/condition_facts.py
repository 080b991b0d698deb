"""Facts about a pipeline, from which conditions follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ackwright.conditions.findings import Facts, Finding
from ackwright.planning.observed import DriverPod, Workload
from ackwright.reasons import ConditionReason
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Failure, ProgressReport, State
from unit.world import RUNNING as IDLE

FINE = Finding("True", ConditionReason.MATCHES_PLAN)
MET = Finding("True", ConditionReason.MET)
STATEFUL_SET = {("StatefulSet", "p"): {"kind": "StatefulSet"}}
COMPLETE = {("Job", "p"): {"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}}}
RUNNING = replace(IDLE, lag=3)
LOST = Failure(Reason.POSITION_LOST, "lane in-0 has no position; set one")
MOVED = Failure(Reason.POSITIONS_MOVED, "another program has moved a position (in-0: 3)")
HALTED = {"exit_code": ExitCode.HALTED, "error": LOST, "restarts": 1}
CRASHED = {"exit_code": ExitCode.FAILED, "error": Failure(Reason.BATCH_FAILED, "boom"), "restarts": 2}


def progress(state: State, **more: Any) -> ProgressReport:
    return replace(RUNNING, state=state, **more)


def pod(**more: Any) -> DriverPod:
    return DriverPod("p-0", "uid", **({"phase": "Running"} | more))


def facts(driver: DriverPod | None = None, children: Any = STATEFUL_SET, **more: Any) -> Facts:
    workload = Workload(children, drivers=(driver,) if driver else ())
    fields: dict[str, Any] = {"suspended": False, "topics": FINE, "guarantee": MET, "workload": workload}
    return Facts(**(fields | more))


READY = facts(pod(ready=True), progress=RUNNING)
