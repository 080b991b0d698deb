"""Ends what drivers of earlier releases may still do: their transactions are fenced by transactional ids alone.

They had a transactional.id for each lane and committed without a membership, which brokers accept beside a member. A
position that such a driver has committed is committed once more through its lane's own id, in the form of this release.
After that the lane's older owners are fenced. Tasks and drivers of those releases that start later find another topic
in the position, and end (offsets.py; variant member-upgrade-settled of the model).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from confluent_kafka import KafkaException, Producer, TopicPartition

from ackwright_stream.connection import positions_consumer, translate
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.base import Membership
from ackwright_stream.sinks.kafka import offsets
from ackwright_stream.sinks.kafka.sent_offsets import SentOffsets
from ackwright_stream.sinks.kafka.transactions import SlotTransactions

_THREADS = 16


def take_from_older_release(
    job: JobSpec, transactions: SlotTransactions, membership: Membership, committed: Iterable[TopicPartition]
) -> None:
    """Takes each lane whose offset a driver of an earlier release has committed, or may be about to. Raises JobError.

    committed: all lanes' offsets, read after the join.
    """
    by_lane = {Lane(x.topic, x.partition): x for x in committed}
    numbers = {lane: position.driver for lane, x in by_lane.items() if (position := offsets.to_position(x))}
    old = {lane for lane, number in numbers.items() if number and offsets.slots_of(by_lane[lane]) is None}
    if not old:
        return
    names = job.sink_of(KafkaSink).positions
    highest = max(numbers.values())
    reader = positions_consumer(job)
    timeout = job.operation_timeout_ms / 1000

    def take(lane: Lane) -> None:
        producer: Producer = transactions.initialised(f"{names.lane_transactional_id_prefix}{lane}")
        try:
            (current,) = offsets.read_committed(reader, [lane], timeout)
            position = offsets.to_position(current)
            if position is None or position.is_foreign or offsets.slots_of(current) is not None:
                return  # its older owners are fenced all the same
            target_position = replace(position, driver=max(highest, position.driver) + 1)
            target = offsets.to_offset(job, lane, target_position, "")  # whether the lane has a record is not known
            producer.begin_transaction()
            SentOffsets(producer, [target], membership, timeout).wait()
            producer.commit_transaction(timeout)
        except KafkaException as e:
            raise translate(e.args[0], f"taking lane {lane} from an older release") from e
        finally:
            transactions.release(producer)

    # Advances of at-least-once came with the driver's own id.
    transactions.release(transactions.initialised(names.driver_transactional_id))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="old lanes") as pool:
        # Lanes without a position last: an old driver that gives one its first position now finds the others taken.
        for lanes in (old, by_lane.keys() - numbers.keys()):
            list(pool.map(take, lanes))
