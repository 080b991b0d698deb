"""The times of trigger.schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from ackwright.api.spec import DeliveryPipeline

_ANY_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
# More than clocks are ever changed by: within it, the order of local times is not the order of moments.
_LARGEST_SHIFT = timedelta(hours=3)


@dataclass(frozen=True)
class Schedule:
    """A cron expression in a time zone. Times are in UTC.

    When clocks change: a time that does not exist is due at the first minute after, and one that exists twice is due
    once. An expression whose minute or hour begins with * is due at each moment that matches. The rules are cronsim's,
    and Debian's cron's. (Where clocks change by half an hour, on Lord Howe Island, cronsim may miss half an hour then.)
    """

    expression: str
    time_zone: str

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times after the moment, the next one first. Ends if none is within fifty years."""
        times = CronSim(self.expression, moment.astimezone(ZoneInfo(self.time_zone)))
        last = moment
        for time in times:
            in_utc = time.astimezone(UTC)
            if in_utc > last:
                yield in_utc
                last = in_utc

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after the moment; None: there is none within fifty years."""
        return next(self.after(moment), None)

    def latest(self, moment: datetime) -> datetime | None:
        """The last time that is not after the moment; None: there was none within fifty years."""
        start = (moment + _LARGEST_SHIFT).astimezone(ZoneInfo(self.time_zone))
        times = (time.astimezone(UTC) for time in CronSim(self.expression, start, reverse=True))
        return next((time for time in times if time <= moment), None)

    def in_words(self) -> str:
        """When runs are due: At 03:00 every day (UTC)."""
        return f"{CronSim(self.expression, _ANY_YEAR).explain()} ({self.time_zone})"

    def next_in_words(self, now: datetime, count: int) -> str:
        """The next times, in the schedule's time zone: Sun 2026-11-22 03:00 UTC, Mon 2026-11-23 03:00 UTC."""
        zone = ZoneInfo(self.time_zone)
        return ", ".join(f"{t.astimezone(zone):%a %Y-%m-%d %H:%M %Z}" for t in islice(self.after(now), count))


def schedule_of(pipeline: DeliveryPipeline) -> Schedule | None:
    """The schedule of a pipeline; None without one."""
    trigger = pipeline.spec.trigger
    return Schedule(trigger.schedule, trigger.time_zone or "UTC") if trigger.schedule is not None else None


def problem_of_expression(expression: str) -> str | None:
    """What is wrong with a cron expression; None: nothing."""
    try:
        times = CronSim(expression, _ANY_YEAR)
    except CronSimError as e:
        return str(e).lower()
    return None if next(times, None) else "it is never due"


def is_time_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the latter two: another file or directory of the database
        return False
    return True
