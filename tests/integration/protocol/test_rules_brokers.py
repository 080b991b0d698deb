"""docs/protocol.md#rule-9 to #rule-14 on real brokers: requirements on brokers, and limits of their answers.

The part of docs/protocol.md#rule-13 that needs Spark (aborted and filtered records) is in test_job_features.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import broker_requirements
from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import positions_consumer
from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Position, Range
from ackwright_stream.sinks.kafka import offsets
from ackwright_stream.sinks.kafka import sink as kafka_sink
from integration.support.members import join
from integration.support.rules import NewPipe, Pipe, is_pending, reason_of, rows, with_short_session
from integration.support.wire import Wire
from waiting import ANSWER, wait_until


def test_rule_09_a_read_waits_for_a_pending_position(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    with pytest.raises(ValueError, match=r"isolation\.level is 'read_uncommitted' and must be 'read_committed'"):
        replace(p.job, positions_consumer={**p.job.positions_consumer, "isolation.level": "read_uncommitted"})
    lax = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "isolation.level": "read_uncommitted"})

    def pending() -> Iterator[pa.RecordBatch]:
        # Brokers accept another transactional.id here; the slot's own would first end the transaction
        # (docs/protocol.md#rule-3).
        wait_until(lambda: is_pending(p), "the new position is pending")
        with pytest.raises(JobError) as caught:
            offsets.read(positions_consumer(p.job), [p.lane()], 1.0)
        assert caught.value.reason is Reason.BROKERS_UNREACHABLE  # unknown; not the old position and not none
        assert offsets.read(lax, [p.lane()], ANSWER)[p.lane()] == Position(
            0, p.ids()[p.source], 1, p.job.identity
        )  # the control: an old position
        yield from ()

    assert owned.lanes.advance(0, [Range(p.lane(), 0, 5)], pending())[0] is Outcome.DONE
    assert p.positions()[0] == 5


def consumer_of(p: Pipe, **settings: str) -> Consumer:
    """A consumer of another program."""
    base = {"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": "false"}
    return Consumer({**base, **settings})


@pytest.mark.parametrize("member", ["classic", "consumer"])
def test_rule_10_a_group_with_another_member_is_refused(pipe: NewPipe, member: str) -> None:
    p = with_short_session(pipe())
    p.take()
    p.require_sole_use()  # the control: the driver's own member is accepted
    other = consumer_of(p, **{"group.protocol": member})
    join(other, p.source)
    assert reason_of(p.check) is Reason.GROUP_IN_USE
    assert reason_of(p.require_sole_use) is Reason.GROUP_IN_USE
    other.close()
    p.require_sole_use()
    assert p.positions() == {0: 0, 1: 0}


@pytest.mark.parametrize("member", ["classic", "consumer"])
def test_rule_10_a_group_is_adopted_after_its_consumer_has_ended(pipe: NewPipe, member: str) -> None:
    p = pipe()
    consumer = consumer_of(p, **{"group.protocol": member})
    join(consumer, p.source)
    consumer.commit(offsets=[TopicPartition(p.source, n, 3) for n in (0, 1)], asynchronous=False)
    assert reason_of(p.check) is Reason.GROUP_IN_USE
    consumer.close()
    p.check()
    owned = p.take()
    assert owned.positions == {p.lane(0): 3, p.lane(1): 3}
    assert owned.lanes.advance(0, [Range(p.lane(), 3, 5)], rows(b"a")) == (Outcome.DONE, 1)


def test_rule_11_brokers_without_verification_are_refused(kafka: EmbeddedKafka, pipe: NewPipe) -> None:
    p = pipe()
    p.check()
    setting = "transaction.partition.verification.enable"
    node = kafka.coordinator(p.job.group).node

    def verify(value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        p.admin.incremental_alter_configs([resource])[resource].result(ANSWER)
        asked = ConfigResource(ResourceType.BROKER, str(node))
        wait_until(
            lambda: p.admin.describe_configs([asked])[asked].result(ANSWER)[setting].value == value,
            f"{setting}={value}",
        )

    try:
        verify("false")
        with pytest.raises(JobError) as caught:
            p.check()
        assert caught.value.reason is Reason.BROKERS_UNSUPPORTED
        assert f"broker {node} has {setting}=false" in caught.value.message
        with Wire(p.servers) as wire:  # the control: why it is refused
            owner = wire.init(f"{p.job.group}/late")
            wait_until(lambda: wire.commit_offset(owner, p.job.group, p.source, 2) == 0, "a late commit is taken")
            assert is_pending(p)  # and no marker will ever end it
            # Only its owner can end it, if it still runs. Other tests read this log partition, and an open
            # transaction would block them.
            assert wire.add_offsets(owner, p.job.group) == 0
            assert wire.end(owner) == 0
        wait_until(lambda: not is_pending(p), "the late commit has ended")
    finally:
        verify("true")


def test_rule_11_brokers_that_are_too_old_are_refused(pipe: NewPipe, monkeypatch: pytest.MonkeyPatch) -> None:
    p = pipe()
    monkeypatch.setattr(broker_requirements, "_SINCE_3_7", ("a.setting.that.no.broker.has",))
    with pytest.raises(JobError) as caught:
        p.check()
    assert caught.value.reason is Reason.BROKERS_UNSUPPORTED
    assert "older than Kafka 3.7" in caught.value.message


# ------------------------------------------------ docs/protocol.md#rule-12 to #rule-14

SMALL_QUEUE = {"queue.buffering.max.messages": "100", "linger.ms": "200"}
MANY = [b"%04d" % i for i in range(250)]


def test_rule_12_a_full_queue_loses_nothing(pipe: NewPipe) -> None:
    p = pipe()
    p = replace(p, job=replace(p.job, producer={**p.job.producer, **SMALL_QUEUE}))
    work = p.work(p.take(), Range(p.lane(), 0, 5))
    assert process_and_advance(work, work.task, rows(*MANY)) == (Outcome.DONE, 250)
    assert p.written() == MANY


class Naive:
    """An enqueuer that takes produce_batch() at its word."""

    def __init__(self, producer: Producer, topic: str, *_: object, **__: object) -> None:
        self._producer, self._topic = producer, topic

    def __call__(self, batch: pa.RecordBatch) -> int:
        return int(self._producer.produce_batch(self._topic, batch.select(["value"]).to_pylist()))

    def close(self) -> None:
        return


def test_rule_12_control_produce_batch_alone_loses_and_the_commit_succeeds(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pipe()
    p = replace(p, job=replace(p.job, producer={**p.job.producer, **SMALL_QUEUE}))
    work = p.work(p.take(), Range(p.lane(), 0, 5))
    monkeypatch.setattr(kafka_sink, "enqueuer", Naive)
    assert process_and_advance(work, work.task, rows(*MANY)) == (Outcome.DONE, 100)
    assert len(p.written()) == 100
    assert p.positions()[0] == 5


@pytest.mark.parametrize("task", [process_and_advance, claim_and_process])
def test_rule_13_a_range_without_rows_commits(pipe: NewPipe, task: Callable[..., tuple[Outcome, int]]) -> None:
    p = pipe("exactly-once" if task is process_and_advance else "at-most-once")
    work = p.work(p.take(), Range(p.lane(), 0, 5))
    assert task(work, work.task, iter(())) == (Outcome.DONE, 0)
    assert p.positions() == {0: 5, 1: 0}
    assert task(work, work.task, iter(())) == (Outcome.SKIPPED, 0)


def test_rule_13_rows_are_not_counted_by_offsets(pipe: NewPipe) -> None:
    """The source's last offset may be a marker's; the ends that count are those of a read_committed reader."""
    p = pipe(records=0)
    writer = Producer({"bootstrap.servers": p.servers, "transactional.id": f"{p.source}-writer"})
    writer.init_transactions(ANSWER)
    for value, finish in ((b"gone", writer.abort_transaction), (b"here", writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(p.source, value, partition=0)
        writer.flush(ANSWER)
        finish(ANSWER)
    writer.begin_transaction()
    writer.produce(p.source, b"open", partition=0)
    writer.flush(ANSWER)
    end_of = {TopicPartition(p.source, 0): OffsetSpec.latest()}

    def end(level: IsolationLevel) -> int:
        return int(next(iter(p.admin.list_offsets(end_of, isolation_level=level).values())).result(ANSWER).offset)

    wait_until(lambda: end(IsolationLevel.READ_COMMITTED) == 4, "the markers")
    assert end(IsolationLevel.READ_UNCOMMITTED) == 5
    owned = p.take()
    assert Cluster(p.job).topology().latest[p.lane()] == 4
    work = p.work(owned, Range(p.lane(), 0, 4))
    assert process_and_advance(work, work.task, rows(b"here")) == (Outcome.DONE, 1)
    assert p.positions()[0] == 4
    assert p.take().positions[p.lane()] == 4  # not "beyond the end"
    writer.abort_transaction(ANSWER)
