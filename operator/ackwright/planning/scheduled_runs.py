"""The runs of a pipeline with trigger.schedule: the current one, and what the status records of them. Pure.

A run is named by the time at which it was due. The status records when the next one is due, so times that pass while
no operator runs are due when one does, and all of them are one run. A time that comes while a run is active is skipped:
the run delivers what is there when it starts, or is started again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import FinishedRun, ScheduleStatus, format_time, is_time, seconds_since
from ackwright.planning.bounded_runs import is_finished, run_of_job
from ackwright.planning.observed import Object, Workload, is_complete
from ackwright.planning.schedule import Schedule, schedule_of
from ackwright_stream.jobspec import ExitCode


def with_scheduled_run(
    observed: Workload,
    pipeline: DeliveryPipeline,
    recorded: ScheduleStatus | None,
    finished: FinishedRun | None,
    now: datetime,
) -> Workload:
    """The workload with the current run. recorded, finished: of the status.

    Raises ValueError for a pipeline without a schedule.
    """
    run, job = _run(observed, pipeline, recorded, now), observed.job
    if run is None:
        return replace(observed, run=None, finished=False, idle=True)
    is_recorded = is_finished(run, finished, observed)
    done = is_recorded or (job is not None and run_of_job(job) == run and is_complete(job))
    return replace(observed, run=run, finished=is_recorded, idle=done)


def schedule_status(
    pipeline: DeliveryPipeline, before: ScheduleStatus | None, observed: Workload, now: datetime
) -> ScheduleStatus | None:
    """What the status records of the schedule; None without one. before: as recorded; observed: after the steps."""
    schedule = schedule_of(pipeline)
    if schedule is None:
        return None
    last = _last_run(observed, before)
    upcoming = None
    if not pipeline.spec.suspend:
        upcoming = before.next_schedule_time if before is not None and _is_of(before, schedule) else None
        if upcoming is None and _is_unscheduled(observed):
            upcoming = format_time(now)
        # The run that is due takes the steps of several reconciles; until its Job is there, it stays due.
        elif upcoming is None or (seconds_since(upcoming, now) >= 0 and _already_started(last, upcoming, observed)):
            following = schedule.next_after(now)
            upcoming = format_time(following) if following else None
    return ScheduleStatus(
        schedule=schedule.expression,
        time_zone=schedule.time_zone,
        last_schedule_time=last if last is not None and is_time(last) else None,
        next_schedule_time=upcoming,
    )


def seconds_until_next_run(recorded: ScheduleStatus | None, now: datetime) -> float | None:
    """Seconds until the next run is due; None: it is due already, or there is none."""
    if recorded is None or recorded.next_schedule_time is None:
        return None
    seconds = -seconds_since(recorded.next_schedule_time, now)
    return seconds if seconds > 0 else None


def _run(observed: Workload, pipeline: DeliveryPipeline, recorded: ScheduleStatus | None, now: datetime) -> str | None:
    """The current run: the one that is due, else the last one; None before the first."""
    schedule = schedule_of(pipeline)
    if schedule is None:
        raise ValueError("a pipeline without a schedule")
    last = _last_run(observed, recorded)
    upcoming = recorded.next_schedule_time if recorded is not None and _is_of(recorded, schedule) else None
    # An edit of the schedule counts from the edit, or an earlier time of the new schedule would be due at once.
    if pipeline.spec.suspend or upcoming is None or seconds_since(upcoming, now) < 0:
        return last
    if _already_started(last, upcoming, observed):
        return last
    latest = schedule.latest(now)
    return max(upcoming, format_time(latest)) if latest is not None else upcoming


def _is_of(recorded: ScheduleStatus, schedule: Schedule) -> bool:
    return (recorded.schedule, recorded.time_zone) == (schedule.expression, schedule.time_zone)


def _last_run(observed: Workload, recorded: ScheduleStatus | None) -> str | None:
    """The last run: that of the Job, or without a Job the recorded one. Its name is no time if it had no schedule."""
    if observed.job is not None and (run := run_of_job(observed.job)) is not None:
        return run
    return recorded.last_schedule_time if recorded is not None else None


def _is_unscheduled(observed: Workload) -> bool:
    """Whether the Job is of an earlier run without a schedule that is not complete, and whose driver is not ready.

    An edit may recreate this Job. Its name is no time, so without the Job nothing would record that the run is due.
    """
    job, driver = observed.job, observed.driver
    if job is None or is_complete(job) or (driver is not None and driver.ready):
        return False
    run = run_of_job(job)
    return run is not None and not is_time(run)


def _already_started(last: str | None, due: str, observed: Workload) -> bool:
    """Whether no other run is to be started for the time: its run was, or an earlier one is active."""
    started = last is not None and is_time(last) and last >= due
    return started or (observed.job is not None and _is_active(observed.job, observed))


def _is_active(job: Object, observed: Workload) -> bool:
    """Whether a run is neither complete nor failed.

    One that halted is not failed: a person has to act, and another Job would only hide that for a while.
    """
    ended = any(
        c.get("type") == "Failed" and c.get("status") == "True" for c in job.get("status", {}).get("conditions", ())
    )
    if ended or is_complete(job) or job["metadata"].get("deletionTimestamp"):
        return False
    driver = observed.driver
    if driver is not None and (driver.ready or driver.exit_code in (ExitCode.HALTED, ExitCode.INVALID)):
        return True
    # A driver that fails is for a while in a container or a pod that runs: whether it has failed does not depend on it.
    restarted = driver is not None and (driver.restarts > 0 or bool(driver.exit_code))
    return not restarted and not job.get("status", {}).get("failed")
