"""The membership of the driver in its consumer group, on real brokers: the fence between drivers.

docs/protocol.md#rule-1 and #rule-8. Drivers of releases without a membership: test_older_release.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import positions_consumer
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import KafkaSink, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.base import Membership
from ackwright_stream.sinks.kafka import offsets
from ackwright_stream.sinks.kafka.membership import Member
from ackwright_stream.sinks.kafka.transactions import SlotTransactions
from integration.support.members import delete_group, describe, end_membership, join
from integration.support.pipelines import assert_nothing_hangs
from integration.support.rules import (
    NewPipe,
    Pipe,
    add_partitions,
    is_pending,
    reason_of,
    rows,
    torn,
    with_short_session,
)
from minimal_job import with_member
from waiting import ANSWER, wait_until


def at(p: Pipe, owned: Ownership, *offsets: int) -> dict[Lane, Position]:
    """These offsets as positions of the first lanes."""
    return {p.lane(n): Position(offset, p.ids()[p.source], owned.driver) for n, offset in enumerate(offsets)}


def joined_only(p: Pipe) -> None:
    """Another driver joins and does nothing else: the transactional.ids of the slots are not fenced."""
    end_membership(Member(p.job))


def without_membership(p: Pipe) -> Membership:
    """What a consumer that is no member passes to a transaction."""
    return bytes(positions_consumer(p.job).consumer_group_metadata())


def member_id(p: Pipe) -> str:
    (member,) = describe(p.admin, p.job.group).members
    return str(member.member_id)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_transaction_that_was_open_before_another_driver_joined_cannot_commit(pipe: NewPipe, partitions: int) -> None:
    p = pipe()
    owned = p.take()
    positions = at(p, owned, *[5] * partitions)
    transaction = owned.lanes.sink.open(0, list(positions), owned.lanes.membership)
    joined_only(p)
    with pytest.raises(JobError) as caught:
        transaction.commit(positions, rows(b"a"))
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert "FENCED_INSTANCE_ID" in caught.value.message
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}
    assert p.written() == []
    assert_nothing_hangs(p.servers, p.sink)


def test_control_without_the_membership_the_older_driver_commits_beside_the_younger(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    transaction = owned.lanes.sink.open(0, [p.lane()], without_membership(p))
    joined_only(p)
    assert transaction.commit(at(p, owned, 5), rows(b"a")) == 1
    assert (p.positions()[0], p.written()) == (5, [b"a"])


def test_a_driver_that_is_overtaken_while_it_joins_has_lost_a_conflict(pipe: NewPipe) -> None:
    """It starts again and learns of its successor. As an unknown failure it would end at once."""
    p = pipe()
    settings = {"bootstrap.servers": p.servers, "group.id": p.job.group}
    silent = Consumer(settings)  # it does not answer the rebalances that follow, so they wait for it
    join(silent, p.source)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Member, p.job)
        wait_until(lambda: describe(p.admin, p.job.group).state is ConsumerGroupState.PREPARING_REBALANCING, "a join")
        second = pool.submit(Member, p.job)
        with pytest.raises(JobError) as caught:
            first.result(ANSWER)
        silent.close()
        end_membership(second.result(ANSWER))
    assert caught.value.reason is Reason.POSITION_CONFLICT, caught.value


def test_a_driver_waits_for_offsets_that_were_sent_before_it_joined(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    before = member_id(p)
    successors: list[Future[Ownership]] = []
    # Beyond the slots of its driver: the younger one does not end it, and has to wait.
    transaction = owned.lanes.sink.open(p.job.slots, [p.lane()], owned.lanes.membership)

    with ThreadPoolExecutor(1) as pool:

        def overtaken() -> Iterator[pa.RecordBatch]:
            wait_until(lambda: is_pending(p), "the offset is pending")
            successors.append(pool.submit(p.take))
            wait_until(lambda: member_id(p) != before, "the younger driver has joined")
            assert not successors[0].done()
            yield from rows(b"a")

        assert transaction.commit(at(p, owned, 5), overtaken()) == 1
        assert successors[0].result(ANSWER).positions == {p.lane(0): 5, p.lane(1): 0}
    assert p.written() == [b"a"]


def test_a_driver_ends_what_the_slots_of_the_older_one_left_open(pipe: NewPipe) -> None:
    """So it need not wait for the time-out of a transaction whose task is gone."""
    p = pipe()
    owned = p.take()
    transaction = owned.lanes.sink.open(0, [p.lane()], owned.lanes.membership)
    successors: list[Ownership] = []

    def overtaken() -> Iterator[pa.RecordBatch]:
        wait_until(lambda: is_pending(p), "the offset is pending")
        successors.append(p.take())
        yield from rows(b"a")

    assert reason_of(lambda: transaction.commit(at(p, owned, 5), overtaken())) is Reason.POSITION_CONFLICT
    assert successors[0].positions == {p.lane(0): 0, p.lane(1): 0}
    assert p.written() == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_driver_ends_what_the_older_one_left_open_in_its_slots_and_while_it_settled(
    pipe: NewPipe, by_hand: bool
) -> None:
    """Otherwise it waits for their time-outs. Offsets that were set by hand do not tell how many slots there are."""
    p = pipe()
    p = replace(p, job=replace(p.job, operation_timeout_ms=10_000))
    owned = p.take()
    names = p.job.sink_of(KafkaSink).positions
    for n, transactional_id in enumerate((names.driver_transactional_id, f"{names.slot_transactional_id_prefix}1")):
        producer = p.sinks[-1].transactions.initialised(transactional_id)
        producer.begin_transaction()
        offset = TopicPartition(p.source, n, 3)
        producer.send_offsets_to_transaction([offset], owned.lanes.membership, ANSWER)
    assert is_pending(p)
    if by_hand:
        p.set_positions(0)
        p = p.accepting(0)
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_offsets_cannot_be_set_by_hand_while_a_driver_is_a_member(pipe: NewPipe) -> None:
    p = pipe()
    p.take()
    plain = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": False})
    by_hand: dict[Callable[[], object], int] = {
        lambda: plain.commit(
            offsets=[TopicPartition(p.source, 0, 3)], asynchronous=False
        ): KafkaError.UNKNOWN_MEMBER_ID,
        lambda: p.alter_positions(4): KafkaError.UNKNOWN_MEMBER_ID,
        lambda: delete_group(p.admin, p.job.group): KafkaError.NON_EMPTY_GROUP,
    }
    for call, code in by_hand.items():
        with pytest.raises(KafkaException) as caught:
            call()
        assert caught.value.args[0].code() == code
        assert p.positions() == {0: 0, 1: 0}
    p.empty_group()
    for call, positions in zip(by_hand, ({0: 3, 1: 0}, {0: 4, 1: 4}, {}), strict=True):
        call()  # the control
        assert p.positions() == positions


def test_several_lanes_of_one_task_commit_all_or_nothing(pipe: NewPipe) -> None:
    p = pipe()
    work = p.work(p.take(), Range(p.lane(0), 0, 5), Range(p.lane(1), 0, 4))

    assert reason_of(lambda: process_and_advance(work, work.task, torn(p))) is Reason.BATCH_FAILED
    assert process_and_advance(work, work.task, rows(b"0", b"1")) == (Outcome.DONE, 2)
    assert (p.positions(), p.written()) == ({0: 5, 1: 4}, [b"0", b"1"])
    assert process_and_advance(work, work.task, rows(b"again")) == (Outcome.SKIPPED, 0)


def test_an_attempt_that_failed_moved_none_of_its_lanes(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    ranges = [Range(p.lane(0), 0, 5), Range(p.lane(1), 0, 4)]

    def failing() -> Iterator[pa.RecordBatch]:
        wait_until(lambda: is_pending(p), "the offsets are pending")
        raise JobError(Reason.BATCH_FAILED, "torn")
        yield

    assert reason_of(lambda: owned.lanes.advance(0, ranges, failing())) is Reason.BATCH_FAILED
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


# ------------------------------------------------ what the driver knows of its membership


def is_no_member_soon(owned: Ownership) -> None:
    """Waits until the driver knows that its membership has ended; its tasks are then refused."""
    wait_until(lambda: not owned.lanes.sink.is_member(), "the driver knows that it is no member", 60)


def test_an_older_driver_notices_within_seconds_that_another_has_joined(pipe: NewPipe) -> None:
    p = pipe()
    older = p.take()
    assert older.lanes.sink.is_member()
    younger = p.take()
    is_no_member_soon(older)
    assert younger.lanes.sink.is_member()
    assert younger.lanes.advance(0, [Range(p.lane(), 0, 3)])[0] is Outcome.DONE


def test_partitions_that_are_added_do_not_end_the_membership(pipe: NewPipe) -> None:
    """Nor the running batch. Control: a member that refreshes its metadata notices them, and joins again.

    The group has another generation then, and the coordinator refuses the driver's offsets.
    """
    p, control = pipe(), with_impatient_member(pipe())
    owned, controlled = p.take(), control.take()
    add_partitions(p, 3)
    add_partitions(control, 3)
    is_no_member_soon(controlled)
    assert control.take(controlled.driver).positions == {control.lane(n): 0 for n in range(3)}
    assert owned.lanes.sink.is_member()
    assert owned.lanes.advance(0, [Range(p.lane(), 0, 3)])[0] is Outcome.DONE


def with_impatient_member(p: Pipe) -> Pipe:
    return replace(p, job=with_member(p.job, topic_metadata_refresh_interval_ms="500"))


def test_a_driver_notices_within_seconds_that_another_program_has_joined(pipe: NewPipe) -> None:
    p = with_short_session(pipe())
    owned = p.take()
    other = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": False})
    join(other, p.source)
    is_no_member_soon(owned)
    assert reason_of(lambda: owned.lanes.advance(0, [Range(p.lane(), 0, 3)])) is Reason.POSITION_CONFLICT
    other.close()
    assert p.take(owned.driver).lanes.advance(0, [Range(p.lane(), 0, 3)])[0] is Outcome.DONE


def test_a_start_makes_as_many_requests_for_many_lanes_as_for_few(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One join, and the same reads and transactions: a start with 1,000 partitions does not take long."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)

    count(Member, "_await_join")
    count(offsets, "read_committed")
    count(SlotTransactions, "initialised")
    count(SlotTransactions, "commit")

    def start(p: Pipe) -> Counter[str]:
        calls.clear()
        p.take()
        return Counter(calls)

    few, many = pipe(), pipe()
    add_partitions(many, 200)
    first, restart = start(few), start(few)
    assert first["_await_join"] == restart["_await_join"] == 1
    assert first["commit"] == restart["commit"] == 1
    assert (start(many), start(many)) == (first, restart)
