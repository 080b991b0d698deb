"""The next runs of a pipeline with a schedule, as `plan` and `explain` show them."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from ackwright.planning.plan import DeliveryPlan

_SHOWN = 3  # runs


def in_words(plan: DeliveryPlan, now: datetime) -> str | None:
    """When the runs of a plan start, and the next ones: `At 03:00 every day (UTC): Sun 2026-11-22 03:00 UTC, …`.

    None without a schedule.
    """
    schedule = plan.schedule
    return f"{schedule.in_words()}: next {schedule.next_in_words(now, _SHOWN)}" if schedule else None


def as_document(plan: DeliveryPlan, now: datetime) -> dict[str, list[str]]:
    """The next runs as RFC 3339 in UTC, by the name that JSON and YAML have for them; empty without a schedule."""
    if plan.schedule is None:
        return {}
    return {"nextRuns": [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in islice(plan.schedule.after(now), _SHOWN)]}
