"""Bounded runs: what a run depends on, and which run has completed. Pure.

The Job of a completed run may be deleted, so the status records the run: a pipeline whose spec is still that of the
recorded run does not run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import FinishedRun, seconds_since
from ackwright.planning.edits import LIVE
from ackwright.planning.observed import Workload, is_complete

RUN_ANNOTATION = "ackwright.io/run"  # of a Job: the hash of parts_of_run(), or with a schedule when it was due
_TTL = "ttlSecondsAfterFinished"


def parts_of_run(pipeline: DeliveryPipeline) -> Mapping[str, Any]:
    """The parts of the spec that a run depends on, as JSON values.

    Without defaults, so that a release with more fields runs no completed run again.
    """
    spec = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    trigger = {name: value for name, value in spec.get("trigger", {}).items() if name != _TTL}
    return {**{name: value for name, value in spec.items() if name not in LIVE}, "trigger": trigger}


def finished_run(pipeline: DeliveryPipeline, before: FinishedRun | None, observed: Workload) -> FinishedRun | None:
    """The last run that has completed; None while another one runs, and of a stream. before: as recorded."""
    if not pipeline.spec.trigger.available_now:
        return None
    job = observed.job
    if job is None or job["metadata"].get("deletionTimestamp"):
        return before
    run, at = run_of_job(job), job.get("status", {}).get("completionTime")
    if run and at and is_complete(job):
        return FinishedRun(run=run, completed_at=at)
    return before if before is not None and before.run == run else None


def run_of_job(job: Mapping[str, Any]) -> str | None:
    """The run that a Job is of; None without the annotation."""
    run: str | None = job["metadata"].get("annotations", {}).get(RUN_ANNOTATION)
    return run


def is_finished(run: str, recorded: FinishedRun | None, observed: Workload) -> bool:
    """Whether this run is the recorded one, and no other one is there."""
    if recorded is None or recorded.run != run:
        return False
    return observed.job is None or run_of_job(observed.job) == run


def ttl_has_expired(pipeline: DeliveryPipeline, recorded: FinishedRun | None, now: datetime) -> bool:
    """Whether the Job of the recorded run has had its time to live."""
    ttl = pipeline.spec.trigger.ttl_seconds_after_finished
    return recorded is not None and ttl is not None and seconds_since(recorded.completed_at, now) >= ttl
