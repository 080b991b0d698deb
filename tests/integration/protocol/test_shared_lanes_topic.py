"""All pipelines share the lanes topic, where one's open transaction hides what others write after it.

See docs/protocol.md#rule-4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import compacted
from integration.support.pipelines import LANES
from integration.support.rules import NewPipe, Pipe, reason_of
from waiting import ANSWER


@contextmanager
def open_transaction(p: Pipe) -> Iterator[None]:
    """Another pipeline's driver has written a record and neither commits nor aborts."""
    producer = Producer({"bootstrap.servers": p.servers, "transactional.id": f"{p.source}-other-pipeline"})
    producer.init_transactions(ANSWER)
    producer.begin_transaction()
    producer.produce(LANES, b"{}", f"{p.job.group}-other/topic-0".encode())
    assert producer.flush(ANSWER) == 0
    try:
        yield
    finally:
        producer.abort_transaction(ANSWER)


def impatient(p: Pipe) -> Pipe:
    return replace(p, job=replace(p.job, operation_timeout_ms=5000))


def test_another_pipelines_open_transaction_does_not_delay_a_first_start(pipe: NewPipe) -> None:
    p = impatient(pipe())
    with open_transaction(p):
        assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_control_a_reader_that_waits_for_every_transaction_is_delayed(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = impatient(pipe())
    monkeypatch.setattr(compacted, "_hides", lambda job, start, end, *_: start.offset < end)
    with open_transaction(p):
        assert reason_of(p.take) is Reason.BROKERS_UNREACHABLE


def test_hidden_records_of_the_pipeline_itself_are_waited_for(pipe: NewPipe) -> None:
    """Overlooking them, the start would take its lanes for new ones."""
    p = impatient(pipe())
    with open_transaction(p):
        p.take()
        p.forget_positions()
        assert reason_of(p.take) is Reason.BROKERS_UNREACHABLE
    assert reason_of(p.take) is Reason.POSITION_LOST
