"""The judgement of a campaign: each kind of damage is counted, and what a person has decided is not damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chaos.account import Account, Counts, FedLane, moves_back

LANE = FedLane("a.1", 0)


def account(records: int = 6) -> Account:
    a = Account()
    a.sent(LANE, records)
    return a


def output(*numbers: int, lane: FedLane = LANE) -> Iterable[tuple[int, bytes]]:
    return [(lane.partition, lane.value(n)) for n in numbers]


def test_each_record_once_and_in_order_is_right() -> None:
    assert account().judge(output(0, 1, 2, 3, 4, 5)) == Counts(expected=6)


def test_lost_duplicated_unexpected_and_disordered_records_are_counted() -> None:
    assert account().judge(output(0, 1, 3, 4, 5)) == Counts(expected=6, lost=1)
    assert account().judge(output(0, 1, 1, 2, 3, 4, 5)) == Counts(expected=6, duplicated=1)
    assert account().judge(output(0, 2, 1, 3, 4, 5)) == Counts(expected=6, disordered=1)
    assert account().judge(output(0, 1, 2, 3, 4, 5, 6)) == Counts(expected=6, unexpected=1)


def test_records_of_another_partition_topic_or_program_are_unexpected() -> None:
    strays = [(1, LANE.value(0)), *output(0, lane=FedLane("a.2", 0)), (0, b"something"), (0, None)]
    assert account().judge([*output(0, 1, 2, 3, 4, 5), *strays]) == Counts(expected=6, unexpected=4)


def test_after_offsets_were_set_back_and_accepted_the_records_between_are_expected_twice() -> None:
    a = account()
    a.moved(LANE, at=4, to=2)
    assert a.judge(output(0, 1, 2, 3, 2, 3, 4, 5)) == Counts(expected=8)
    assert a.judge(output(0, 1, 2, 3, 4, 5)) == Counts(expected=8, lost=2)
    assert a.judge(output(0, 1, 2, 3, 2, 3, 3, 4, 5)) == Counts(expected=8, duplicated=1)
    assert a.judge(output(0, 1, 2, 3, 3, 2, 4, 5)).disordered == 1


def test_after_offsets_were_set_forwards_and_accepted_the_records_between_are_not_expected() -> None:
    a = account()
    a.moved(LANE, at=2, to=4)
    assert a.judge(output(0, 1, 4, 5)) == Counts(expected=4)
    assert a.judge(output(0, 1, 2, 4, 5)) == Counts(expected=4, duplicated=1)
    assert a.judge(output(0, 1, 5)) == Counts(expected=4, lost=1)


def test_of_a_recreated_topic_the_records_up_to_the_position_are_expected() -> None:
    a, new = account(), FedLane("a.2", 0)
    a.ended(LANE, at=3)
    a.sent(new, 2)
    assert a.judge([*output(0, 1, 2), *output(0, 1, lane=new)]) == Counts(expected=5)
    assert a.judge([*output(0, 1, 2, 3), *output(1, lane=new)]) == Counts(expected=5, lost=1, duplicated=1)


def test_decisions_add_up() -> None:
    a = account(4)
    a.moved(LANE, at=3, to=1)
    a.sent(LANE, 4)
    a.moved(LANE, at=2, to=6)
    a.ended(LANE, at=7)
    assert a.judge(output(0, 1, 2, 1, 6)) == Counts(expected=5)


def test_positions_move_back_only_on_purpose() -> None:
    commits = {0: [0, 5, 9], 1: [0, 5, 2, 6, 2]}
    assert moves_back(commits, Counter()) == ["1: 5 -> 2", "1: 6 -> 2"]
    assert moves_back(commits, Counter({(1, 5, 2): 1})) == ["1: 6 -> 2"]
