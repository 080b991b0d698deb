"""The driver's group member ends without close(), which can hold up the whole process."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
from confluent_kafka import KafkaError

from ackwright_stream.errors import JobError
from ackwright_stream.sinks.kafka import membership
from ackwright_stream.sinks.kafka.membership import Member
from minimal_job import minimal_job
from waiting import wait_until


class Group:
    """A stand-in for confluent_kafka's Consumer, of which one is created."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses, self.closed = refuses, False
        self.consumer: weakref.ref[Any] = lambda: None  # type: ignore[assignment]

    def __call__(self, settings: Any) -> Any:
        group = self

        class Consumer:
            def subscribe(self, topics: Any, *, on_assign: Any, **_: Any) -> None:
                self.on_assign = on_assign

            def poll(self, timeout: float) -> Any:
                if group.refuses:
                    return Refusal()
                threading.Event().wait(0.01)
                self.on_assign, assigned = None, self.on_assign
                if assigned:
                    assigned(self, [])
                return None

            def assign(self, partitions: Any) -> None: ...

            def consumer_group_metadata(self) -> bytes:
                return b""

            def memberid(self) -> str:
                return "ackwright-1"

            def close(self) -> None:
                group.closed = True

        consumer = Consumer()
        self.consumer = weakref.ref(consumer)
        return consumer


class Refusal:
    def error(self) -> KafkaError:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("refuses", [False, True])
def test_its_consumer_is_destroyed_and_not_closed(monkeypatch: pytest.MonkeyPatch, *, refuses: bool) -> None:
    """Whether it was a member, or could not join."""
    group = Group(refuses=refuses)
    monkeypatch.setattr(membership, "Consumer", group)
    try:
        Member(minimal_job()).release()
    except JobError:
        assert refuses
    wait_until(lambda: group.consumer() is None, "the consumer is destroyed", 10)
    assert not group.closed
