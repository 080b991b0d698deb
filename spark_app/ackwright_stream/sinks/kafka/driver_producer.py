"""The producer of the pipeline's own transactional.id: it fences older drivers, and advances all lanes at once.

Its advances are the one case in which an epoch carries several transactions. A late copy of one can at worst commit a
position whose records were delivered: one that is ahead, or one of an earlier advance, after which records are
delivered again (docs/protocol.md#rule-2; variant alo-driver of the model).
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

from ackwright_stream.connection import calling, positions_consumer, settings, translate
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka.offsets import to_offset


class DriverProducer:
    """Initialised on creation: from then on, the advances of older drivers fail."""

    def __init__(self, job: JobSpec) -> None:
        self._timeout = job.operation_timeout_ms / 1000
        self._group = positions_consumer(job).consumer_group_metadata()
        self._producer = Producer(
            settings(job.cluster, job.positions_producer, {"transactional.id": job.driver_transactional_id})
        )
        calling(f"taking pipeline {job.group}", lambda: self._producer.init_transactions(self._timeout))

    def commit(self, positions: Mapping[Lane, Position]) -> None:
        """One transaction of positions alone.

        After a JobError this producer must not be used again: the driver restarts.
        """
        try:
            self._producer.begin_transaction()
            offsets = [to_offset(lane, position) for lane, position in positions.items()]
            self._producer.send_offsets_to_transaction(offsets, self._group, self._timeout)
            self._producer.commit_transaction(self._timeout)
        except KafkaException as e:
            raise translate(e.args[0], f"advancing {len(positions)} positions") from e
