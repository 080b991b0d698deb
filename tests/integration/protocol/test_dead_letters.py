"""Dead letters beside every sink, under every guarantee: drivers are killed or suspended between dead letters and rows.

Real stores, no Spark (lane_letters.py): tests/integration/delivery has the same with Spark, once for each sink. Each
point has a range of offsets, so that what is lost or repeated there is known. See docs/dead-letters.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.lane_pipeline import LaneProcess
from integration.support.letter_lanes import KAFKA, SINKS, STAGING, Content, LetterLanes, fed, letter_lanes
from integration.support.postgres import Database
from integration.support.two_clusters import TwoClusters
from waiting import ANSWER, wait_until

EACH = 40  # offsets of a range
KILLED = 137
NOTHING, EVERYTHING = False, True


class Point(NamedTuple):
    """A fault point, and what is visible of the range of the first partition there. None: a part, perhaps."""

    name: str
    letters: bool | None
    rows: bool | None
    loses: bool = False  # whether a killed driver loses the rest of the range


def points_of(sink: str, guarantee: str) -> Sequence[Point]:
    """In the order in which a batch passes them, and in which dead letters and rows become visible."""
    match guarantee:
        case "exactly-once":
            return _exactly_once(sink)
        case "at-least-once":
            return _at_least_once(sink)
    return _at_most_once(sink)


def _exactly_once(sink: str) -> Sequence[Point]:
    after = Point("after-commit", EVERYTHING, EVERYTHING)
    if sink in (*KAFKA, "postgres"):  # one transaction
        return Point("mid-produce", NOTHING, NOTHING), Point("before-commit", NOTHING, NOTHING), after
    first = Point("staged" if sink in STAGING else "mid-produce", NOTHING, NOTHING)
    middle = [Point("letters-written", EVERYTHING, NOTHING), Point("before-commit", EVERYTHING, NOTHING)]
    if sink == "files":  # of one lane of the task, and not of the other
        middle.append(Point("file-created", EVERYTHING, EVERYTHING))
    return first, *middle, after


def _at_least_once(sink: str) -> Sequence[Point]:
    last = [Point(name, EVERYTHING, EVERYTHING) for name in ("before-advance", "after-advance")]
    if sink in KAFKA:  # a row is written after the dead letters before it
        return Point("mid-produce", EVERYTHING, None), *last
    first = Point("staged" if sink in STAGING else "mid-produce", NOTHING, NOTHING)
    return first, *([] if sink == "postgres" else [Point("letters-written", EVERYTHING, NOTHING)]), *last


def _at_most_once(sink: str) -> Sequence[Point]:
    claim = [Point("after-read", NOTHING, NOTHING), Point("claimed", NOTHING, NOTHING, loses=True)]
    if sink in KAFKA:  # what is sent without acknowledgements may arrive
        return *claim, Point("mid-produce", None, None, loses=True)
    claim.append(Point("staged" if sink in STAGING else "mid-produce", NOTHING, NOTHING, loses=True))
    return (*claim, *([] if sink == "postgres" else [Point("letters-written", EVERYTHING, NOTHING, loses=True)]))


GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")


@dataclass
class Servers:
    """Fixtures, each of which starts its server when it is first used."""

    request: pytest.FixtureRequest

    @property
    def kafka(self) -> EmbeddedKafka:
        cluster: EmbeddedKafka = self.request.getfixturevalue("kafka")
        return cluster

    @property
    def two_clusters(self) -> TwoClusters:
        clusters: TwoClusters = self.request.getfixturevalue("two_clusters")
        return clusters

    @property
    def database(self) -> Database:
        database: Database = self.request.getfixturevalue("database")
        return database


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Servers:
    return Servers(request)


def marks_of(sink: str) -> Sequence[pytest.MarkDecorator]:
    """Those of fixtures that Servers uses (tests/integration/conftest.py)."""
    return [pytest.mark.postgres] if sink == "postgres" else []


SINK = [pytest.param(sink, marks=marks_of(sink)) for sink in SINKS]


# ------------------------------------------------ what a fault leaves


def violations(
    lanes: LetterLanes, guarantee: str, actual: Content, expected: Content, *, loses: bool = False
) -> list[str]:
    """What the guarantee excludes. loses: whether rows and dead letters of the range may be lost."""
    problems = []
    for what, has, must in (("rows", actual.rows, expected.rows), ("letters", actual.letters, expected.letters)):
        lost, more = _difference(must, has), _difference(has, must)
        if lost and not (guarantee == "at-most-once" and loses):
            problems.append(f"{len(lost)} {what} are lost, for instance {min(lost, key=repr)!r}")
        if unknown := [x for x in more if x not in must]:
            problems.append(f"{what} of no record: {unknown[0]!r}")
        if more and (guarantee != "at-least-once" or (what == "letters" and lanes.keyed)):
            problems.append(f"{len(more)} {what} are there twice, for instance {min(more, key=repr)!r}")
    if guarantee == "at-most-once" and any(count > 1 for count in actual.records.values()):
        problems.append("letters were written twice")
    return problems


def _difference(one: Counter[Any], other: Counter[Any]) -> list[Any]:
    return [x for x, count in one.items() if count > other[x]]


def assert_visible(lanes: LetterLanes, point: Point, start: int) -> None:
    """Asserts what of the first partition's range is visible while its task is at the point."""
    expected = fed(start, start + EACH, partition=0)

    def differences() -> list[str]:
        actual = lanes.content().between(start, start + EACH, partition=0)
        parts = (
            ("letters", point.letters, set(actual.letters), set(expected.letters)),
            ("rows", point.rows, set(actual.rows), set(expected.rows)),
        )
        return [what for what, full, has, all_ in parts if full is not None and has != (all_ if full else set())]

    if point.letters or point.rows:  # a transaction of Kafka is answered before its readers get it
        wait_until(lambda: not differences(), f"everything is visible at {point.name}", ANSWER)
    assert differences() == [], f"{lanes.sink}, {point.name}"


def at_point(lanes: LetterLanes, point: str, until: int, unsafe: str | None = None) -> LaneProcess:
    """A driver that hangs at the point, in the batch that ends at `until`."""
    driver = lanes.drive(until, {"taken": "hang"}, unsafe)
    driver.arrived("taken")  # its takeover passes some of the points as well
    driver.arm(point, "hang")
    driver.release("taken")
    driver.arrived(point)
    return driver


def assert_guaranteed(lanes: LetterLanes, guarantee: str, points: Sequence[Point]) -> None:
    """Asserts what is in the sink of the range of each point; those before and behind them have to be complete."""
    end = (len(points) + 2) * EACH
    lanes.deliver(end)
    # Producers of at-most-once do not wait for acknowledgements.
    wait_until(lambda: lanes.content().between(end - EACH, end) == fed(end - EACH, end), "the last range is there")
    content = lanes.content()
    assert content.between(0, EACH) == fed(0, EACH)
    lanes.assert_keys()
    for n, point in enumerate(points, 1):
        start, until = n * EACH, (n + 1) * EACH
        problems = violations(lanes, guarantee, content.between(start, until), fed(start, until), loses=point.loses)
        assert problems == [], f"{lanes.sink}, {guarantee}, {point.name}"


# ------------------------------------------------ the proof


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("sink", SINK)
def test_a_driver_killed_between_dead_letters_and_rows(
    servers: Servers, tmp_path: Path, sink: str, guarantee: str
) -> None:
    """At each point; the next driver delivers the rest."""
    points = points_of(sink, guarantee)
    with letter_lanes(servers, tmp_path, sink, guarantee) as lanes:
        lanes.deliver(EACH)
        for n, point in enumerate(points, 1):
            driver = at_point(lanes, point.name, (n + 1) * EACH)
            assert_visible(lanes, point, n * EACH)
            driver.kill()
            assert driver.result().code == KILLED
            lanes.deliver((n + 1) * EACH)
        assert_guaranteed(lanes, guarantee, points)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("sink", SINK)
def test_a_driver_that_returns_with_dead_letters_after_it_was_replaced(
    servers: Servers, tmp_path: Path, sink: str, guarantee: str
) -> None:
    """It was suspended at each point, and its successor has delivered the same range by then."""
    points = points_of(sink, guarantee)
    with letter_lanes(servers, tmp_path, sink, guarantee) as lanes:
        lanes.deliver(EACH)
        for n, point in enumerate(points, 1):
            zombie = at_point(lanes, point.name, (n + 1) * EACH)
            lanes.deliver((n + 1) * EACH)
            zombie.release(point.name)
            result = zombie.result()
            if guarantee == "exactly-once" and point.name != "after-commit":
                assert result.code not in (0, KILLED), f"{point.name}: {result}"
        assert_guaranteed(lanes, guarantee, points)


# ------------------------------------------------ negative controls: with a rule off, the same judgement fails

IN_ONE_TRANSACTION = (*KAFKA, "postgres")
IN_A_TOPIC = tuple(sink for sink in SINKS if sink not in IN_ONE_TRANSACTION)  # with keys
LOST, TWICE = "letters are lost", "letters are there twice"
CONTROLS = [  # a rule that is off, the point of the kill, what it does, and to which sinks
    ("exactly-once", "letters-late", "after-commit", LOST, SINKS),
    ("at-least-once", "letters-late", "after-advance", LOST, SINKS),
    ("exactly-once", "letters-early", "before-commit", TWICE, IN_ONE_TRANSACTION),
    ("at-most-once", "letters-early", "after-read", "letters were written twice", SINKS),
    ("exactly-once", "letters-unacknowledged", "after-commit", LOST, IN_A_TOPIC),
    ("at-least-once", "letters-unacknowledged", "after-advance", LOST, (*KAFKA, *IN_A_TOPIC)),
    ("exactly-once", "letters-with-random-keys", "before-commit", TWICE, IN_A_TOPIC),
    ("at-least-once", "letters-with-random-keys", "before-advance", TWICE, IN_A_TOPIC),
]


@pytest.mark.parametrize(
    ("sink", "guarantee", "unsafe", "point", "problem"),
    [
        pytest.param(sink, *control, marks=marks_of(sink), id=f"{sink}-{control[0]}-{control[1]}")
        for *control, sinks in CONTROLS
        for sink in sinks
    ],
)
def test_control_a_kill_damages_dead_letters_without_the_rule(
    servers: Servers, tmp_path: Path, *, sink: str, guarantee: str, unsafe: str, point: str, problem: str
) -> None:
    """With the rules in place, the same kill at the same point does not: see the first test."""
    assert point in [p.name for p in points_of(sink, guarantee)]
    with letter_lanes(servers, tmp_path, sink, guarantee) as lanes:
        at_point(lanes, point, EACH, unsafe).kill()
        lanes.deliver(EACH, unsafe=unsafe if unsafe == "letters-with-random-keys" else None)
        problems = violations(lanes, guarantee, lanes.content(), fed(0, EACH))
    assert any(problem in p for p in problems), problems
