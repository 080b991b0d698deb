"""When a schedule is due, compared with a plain search through every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ackwright.planning.schedule import Schedule, is_time_zone, problem_of_expression

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
# Berlin changes its clocks by one hour, Troll by two; New York is west of Greenwich; Kolkata never changes them.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Antarctica/Troll", "Asia/Kolkata")
CHANGES = [datetime(2026, month, day, tzinfo=UTC) for month, day in ((3, 8), (3, 29), (10, 25), (11, 1), (6, 30))]


@st.composite
def fields(draw: st.DrawFn, numbers: range) -> tuple[str, frozenset[int]]:
    """A field of minutes, hours or days of the week, and the numbers that it matches."""
    step = draw(st.integers(1, len(numbers) // 2))
    some = draw(st.sets(st.sampled_from(numbers), min_size=1, max_size=3))
    return draw(
        st.sampled_from(
            [
                ("*", frozenset(numbers)),
                (f"*/{step}", frozenset(numbers[::step])),
                (",".join(map(str, sorted(some))), frozenset(some)),
                (f"{min(some)}-{max(some)}", frozenset(range(min(some), max(some) + 1))),
            ]
        )
    )


Fields = tuple[tuple[str, frozenset[int]], tuple[str, frozenset[int]], tuple[str, frozenset[int]]]


def due_times(of: Fields, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Every moment from start to end, in UTC, at which the fields are due."""
    (minute, minutes), (hour, hours), (_, days) = of

    def matches(local: datetime) -> bool:
        return local.minute in minutes and local.hour in hours and local.isoweekday() % 7 in days

    start = start.replace(second=0, microsecond=0)
    moments = [start + i * MINUTE for i in range(int((end - start) / MINUTE) + 1)]
    if minute.startswith("*") or hour.startswith("*"):
        return [moment for moment in moments if matches(moment.astimezone(zone))]
    due = set()
    for local in (moment.replace(tzinfo=None) for moment in moments):
        if matches(local):
            exists = local
            while exists.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != exists:
                exists += MINUTE
            due.add(exists.replace(tzinfo=zone).astimezone(UTC))
    return sorted(due)


@settings(max_examples=50, deadline=None)
@given(
    of=st.tuples(fields(range(60)), fields(range(24)), fields(range(7))),
    zone=st.sampled_from(ZONES),
    change=st.sampled_from(CHANGES),
    seconds=st.floats(-40_000, 90_000, allow_nan=False),
)
@example(
    of=(("30", frozenset({30})), ("2", frozenset({2})), ("*", frozenset(range(7)))),
    zone="Europe/Berlin",
    change=datetime(2026, 3, 29, tzinfo=UTC),
    seconds=0.0,
)
@example(  # the hour that exists twice, for the second time
    of=(("45", frozenset({45})), ("2", frozenset({2})), ("*", frozenset(range(7)))),
    zone="Europe/Berlin",
    change=datetime(2026, 10, 25, tzinfo=UTC),
    seconds=4500.0,
)
def test_the_next_and_the_latest_time(of: Fields, zone: str, change: datetime, seconds: float) -> None:
    """docs/operator.md#scheduled-runs"""
    schedule = Schedule(f"{of[0][0]} {of[1][0]} * * {of[2][0]}", zone)
    now = change + timedelta(seconds=seconds)
    due = due_times(of, ZoneInfo(zone), now - 9 * DAY, now + 9 * DAY)
    after, before = [t for t in due if t > now], [t for t in due if t <= now]
    # At both ends the local days of the search are cut off.
    inside = [t for t in after if t < now + 8 * DAY]
    assert list(islice(schedule.after(now), min(len(inside), 5))) == inside[:5]
    assert schedule.next_after(now) == after[0]
    assert schedule.latest(now) == before[-1]


@pytest.mark.parametrize(
    ("expression", "zone", "now", "due"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),  # no 02:30
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),  # twice 02:30
        ("0 3 * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25T02:00", "2026-10-26T02:00"]),
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25T01:00", "2026-10-25T02:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 6 1 * MON", "UTC", "2026-11-21T12:00", ["2026-11-23T06:00", "2026-11-30T06:00"]),  # a Monday, or the first
    ],
)
def test_times_by_hand(expression: str, zone: str, now: str, due: list[str]) -> None:
    def moment(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert list(islice(Schedule(expression, zone).after(moment(now)), len(due))) == [moment(t) for t in due]


def test_a_time_is_the_latest_at_that_very_moment() -> None:
    schedule, due = Schedule("0 3 * * *", "UTC"), datetime(2026, 11, 21, 3, tzinfo=UTC)
    assert schedule.latest(due) == schedule.latest(due + timedelta(seconds=0.5)) == due
    assert schedule.latest(due - timedelta(seconds=0.5)) == due - DAY
    assert schedule.next_after(due) == due + DAY


@pytest.mark.parametrize("expression", ["0 3 * * *", "*/5 8-17 * * MON-FRI", "0 0 29 2 *", "0 0 L * *", "0 0 * * 7"])
def test_a_valid_expression(expression: str) -> None:
    assert problem_of_expression(expression) is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("61 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 * * FUN", "bad day-of-week"),
        ("* * */20 * 1L", "it is never due"),
    ],
)
def test_an_expression_that_is_not_valid(expression: str, problem: str) -> None:
    assert problem_of_expression(expression) == problem


def test_time_zones() -> None:
    assert all(map(is_time_zone, ZONES))
    assert not any(map(is_time_zone, ("Europe/Atlantis", "Europe", "tzdata.zi", "../passwd", "CEST")))


def test_words() -> None:
    schedule, now = Schedule("0 3 * * *", "Europe/Berlin"), datetime(2026, 10, 24, tzinfo=UTC)
    assert schedule.in_words() == "At 03:00 every day (Europe/Berlin)"
    assert schedule.next_in_words(now, 2) == "Sat 2026-10-24 03:00 CEST, Sun 2026-10-25 03:00 CET"
