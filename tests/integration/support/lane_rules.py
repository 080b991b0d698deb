"""The rules of the protocol that lane_process.py can switch off, for the negative controls."""

from __future__ import annotations

import os
from typing import Any

UNSAFE = ("position-check", "commit-first", "fencing", "row-locks", "positions-at-source")


def disarm(rule: str, job: Any) -> None:
    """Switches one rule off in this process, which works for the job."""
    from ackwright_stream import lanes
    from ackwright_stream.sinks.kafka import markers, transactions

    if rule == "position-check":
        lanes.decide = lambda *_: None
    elif rule == "fencing":
        commit = transactions.SlotTransactions.commit

        def without_membership(self: Any, producer: Any, target: Any, membership: Any, *rest: Any, **names: Any) -> int:
            group = markers.membership_with(
                markers.of_membership(job, membership)[0], self._reader.consumer_group_metadata()
            )
            return commit(self, producer, target, group, *rest, **names)

        transactions.SlotTransactions.commit = without_membership  # type: ignore[method-assign]
        transactions.transactional_id = lambda job, slot: f"{job.group}/{slot}/{os.getpid()}"
    elif rule == "row-locks":
        from ackwright_stream.sinks.postgres import positions
        from ackwright_stream.sinks.postgres.sink import PostgresStore

        PostgresStore.locks = False
        positions.terminate = lambda *_, **__: None
    elif rule == "commit-first":
        safe = lanes.Lanes.advance

        def advance(self: Any, slot: int, ranges: Any, rows: Any = (), letters: Any = ()) -> tuple[Any, int]:
            done, _ = safe(self, slot, ranges)  # the positions alone …
            if done is not lanes.Outcome.DONE:
                return done, 0
            own = markers.of_membership(job, self.membership)[0]
            producer = self.sink.transactions.open(slot, [r.lane for r in ranges], own)[0]
            producer.begin_transaction()
            written = self.sink.enqueue(producer, rows)  # … and then the rows
            producer.commit_transaction(60.0)
            return done, written

        lanes.Lanes.advance = advance  # type: ignore[method-assign]
    elif rule == "positions-at-source":
        commit_positions_at_source(job)


def commit_positions_at_source(job: Any) -> None:
    """Positions of a sink with its own cluster are on the source's cluster: a plain commit, after that of the rows."""
    from confluent_kafka import Consumer

    from ackwright_stream.connection import settings
    from ackwright_stream.fault_points import fault_point
    from ackwright_stream.positions import Lane
    from ackwright_stream.sinks.kafka import offsets, transactions

    at_source = Consumer(settings(job.cluster, job.positions_consumer))
    read = offsets.read_committed

    def read_committed(consumer: Any, lanes: Any, timeout_s: float, *_: Any) -> Any:
        return read(at_source, lanes, timeout_s)

    def commit(
        self: Any, producer: Any, target: Any, membership: Any, write: Any = None, *, next_slot: Any = None, **_: Any
    ) -> int:
        lanes = [Lane(x.topic, x.partition) for x in target]
        producer.begin_transaction()
        rows: int = write(producer) if write else 0
        producer.commit_transaction(60)
        fault_point("after-commit", *lanes)
        at_source.commit(offsets=list(target), asynchronous=False)
        self.release(producer, next_slot, committed=True)
        return rows

    offsets.read_committed = read_committed  # type: ignore[assignment]
    transactions.SlotTransactions.commit = commit  # type: ignore[method-assign]
