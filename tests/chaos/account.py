"""What a campaign expects in the sink, and the judgement of what is there. Pure; it shares no code with the job.

A lane's records are numbered from 0. The account says in which *passes* the pipeline delivers them: one pass from the
start to the end, unless a person moves the position. If the true position was `at` and delivery resumes at `to`, one
pass ends at `at` and another begins at `to`. So exactly-once has an exact output also after a reset that was accepted:
the passes, one after the other. A recreated topic is another lane, and the last pass of the old one ends where its
position was.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class FedLane:
    """One partition of one incarnation of a topic. tag: identifies the incarnation, and is in each of its records."""

    tag: str
    partition: int

    def value(self, number: int) -> bytes:
        """The value of the lane's record with this number."""
        return f"{self.tag}:{self.partition}:{number}".encode()


@dataclass(frozen=True)
class Sent:
    """What one lane has been sent, and how the pipeline must deliver it."""

    records: int = 0
    passes: tuple[tuple[int, int], ...] = ()  # complete ones, as (start, end)
    start: int = 0  # of the pass under way
    ended: bool = False  # the topic is gone: no pass is under way

    def all_passes(self) -> tuple[tuple[int, int], ...]:
        return self.passes if self.ended else (*self.passes, (self.start, self.records))

    def numbers(self) -> list[int]:
        """The records in the order in which exactly-once delivers them."""
        return [n for start, end in self.all_passes() for n in range(start, end)]


@dataclass(frozen=True)
class Counts:
    """The comparison of the output with the account, in records."""

    expected: int = 0
    lost: int = 0
    duplicated: int = 0
    unexpected: int = 0  # never sent, or in another partition
    disordered: int = 0  # steps backwards that no pass explains

    def __add__(self, other: Counts) -> Counts:
        names = ("expected", "lost", "duplicated", "unexpected", "disordered")
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass
class Account:
    """The records sent and the decisions made so far."""

    lanes: dict[FedLane, Sent] = field(default_factory=dict)

    def sent(self, lane: FedLane, records: int) -> None:
        """So many further records were acknowledged."""
        before = self.lanes.get(lane, Sent())
        self.lanes[lane] = Sent(before.records + records, before.passes, before.start, before.ended)

    def moved(self, lane: FedLane, at: int, to: int) -> None:
        """The position was `at`, and a person has accepted `to`."""
        before = self.lanes[lane]
        self.lanes[lane] = Sent(before.records, (*before.passes, (before.start, at)), to)

    def ended(self, lane: FedLane, at: int) -> None:
        """The topic was deleted when the position was `at`; the records from there on are lost with it."""
        before = self.lanes[lane]
        self.lanes[lane] = Sent(before.records, (*before.passes, (before.start, at)), at, ended=True)

    def judge(self, output: Iterable[tuple[int, bytes | None]]) -> Counts:
        """Compares the sink's records, as (partition, value) in the order of each partition's log."""
        delivered: dict[FedLane, list[int]] = {lane: [] for lane in self.lanes}
        unexpected = 0
        for partition, value in output:
            lane, number = _parsed(value)
            if lane in delivered and lane.partition == partition and 0 <= number < self.lanes[lane].records:
                delivered[lane].append(number)
            else:
                unexpected += 1
        each = (_judge_lane(sent.numbers(), delivered[lane]) for lane, sent in self.lanes.items())
        return sum(each, Counts(unexpected=unexpected))


def _parsed(value: bytes | None) -> tuple[FedLane, int]:
    try:
        tag, partition, number = (value or b"").decode().split(":")
        return FedLane(tag, int(partition)), int(number)
    except ValueError:
        return FedLane("", -1), -1


def _judge_lane(expected: Sequence[int], delivered: Sequence[int]) -> Counts:
    missing, surplus = Counter(expected) - Counter(delivered), Counter(delivered) - Counter(expected)
    disordered = (_steps_back(delivered) - _steps_back(expected)).total()
    if not (missing or surplus or disordered):
        disordered = int(list(delivered) != list(expected))
    return Counts(len(expected), missing.total(), surplus.total(), 0, disordered)


def _steps_back(numbers: Sequence[int]) -> Counter[tuple[int, int]]:
    return Counter((before, after) for before, after in itertools.pairwise(numbers) if after < before)


def moves_back(commits: Mapping[int, Sequence[int]], allowed: Counter[tuple[int, int, int]]) -> list[str]:
    """The moves of positions backwards that nobody made on purpose, as text.

    commits: the committed offsets of a topic by partition, in the order of the log. allowed: (partition, from, to).
    """
    moves = Counter(
        (partition, before, after)
        for partition, offsets in commits.items()
        for before, after in itertools.pairwise(offsets)
        if after < before
    )
    return [f"{partition}: {before} -> {after}" for partition, before, after in sorted((moves - allowed).elements())]
