"""The lanes topic: which lanes of a pipeline were ever initialised, and where they were at its last orderly stop.

The key of a lane's record is "<group>/<topic>-<partition>", that of the final positions "<group>/". Two more are no
lanes, because no topic has an @ in its name: the fingerprint of the positions that were accepted last has
"<group>/@accepted", the last driver's member id, address and number "<group>/@driver". Reads only; all are written in
the driver's transactions, together with the positions (driver_transactions.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message

from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Records
from ackwright_stream.sinks.kafka import compacted

_DRIVER = "@driver"
_ACCEPTED = "@accepted"


def records(job: JobSpec) -> Records:
    """The records of this pipeline. Raises JobError.

    As compacted.read_to_end(): a lane whose record is overlooked would start again.
    """
    read = Records()
    lanes_topic = job.sink_of(KafkaSink).positions.lanes_topic
    compacted.read_to_end(
        job,
        lanes_topic,
        lambda message: _apply(read, job.group, message),
        lambda message: _group_and_name(message)[0] == job.group,
    )
    return read


def _group_and_name(message: Message) -> tuple[str, str]:
    """The two parts of a record's key. Neither a topic nor a partition has a slash in it."""
    group, _, name = message.key().decode().rpartition("/")
    return group, name


def _apply(read: Records, group: str, message: Message) -> None:
    """Applies one record of the compacted topic."""
    of_group, name = _group_and_name(message)
    if of_group != group:
        return
    value = None if message.value() is None else json.loads(message.value())
    if not name:
        read.final.clear()
        read.final.update(final_positions(value) if value else {})
        return
    if name == _ACCEPTED:
        read.accepted = str(value or "")
        return
    if name == _DRIVER:
        read.addresses.clear()
        if value:
            read.driver = int(value.get("number", 0))  # earlier releases recorded none
            read.source = str(value.get("source", ""))
            if value["address"]:
                read.addresses[str(value["member"])] = str(value["address"])
        return
    lane = to_lane(name)
    if lane is None:
        return
    if value is None:
        read.lanes.pop(lane, None)
    else:
        read.lanes[lane] = str(value["topicId"])


def final_positions(value: Mapping[str, Any]) -> dict[Lane, Position]:
    """From the value of the record that final_value() made."""
    batch = value.get("batch")
    return {
        lane: Position(int(offset), str(topic_id), int(value["driver"]), batch=batch)
        for name, (offset, topic_id) in value["final"].items()
        if (lane := to_lane(name))
    }


def final_value(positions: Mapping[Lane, Position]) -> dict[str, Any]:
    """The value of the record of final positions, which are of one driver."""
    final = {str(lane): [position.offset, position.topic_id] for lane, position in positions.items()}
    batches = {position.batch for position in positions.values()} - {None}
    of_batch = {"batch": max(b for b in batches if b is not None)} if batches else {}
    driver = max((position.driver for position in positions.values()), default=0)
    return {"driver": driver, "final": final, **of_batch}


def to_lane(name: str) -> Lane | None:
    """The lane with this text; None if it is not the text of a lane."""
    topic, _, partition = name.rpartition("-")
    return Lane(topic, int(partition)) if partition.isdigit() else None


def record_key(group: str, lane: Lane) -> bytes:
    """The key of a lane's record."""
    return f"{group}/{lane}".encode()


def accepted_key(group: str) -> bytes:
    """The key of the record of the fingerprint that was accepted last."""
    return f"{group}/{_ACCEPTED}".encode()


def final_key(group: str) -> bytes:
    """The key of the record of final positions."""
    return f"{group}/".encode()


def driver_key(group: str) -> bytes:
    """The key of the record of the driver that has taken the pipeline."""
    return f"{group}/{_DRIVER}".encode()


def driver_value(member: str, address: str | None, number: int, source: str = "") -> dict[str, Any]:
    """The value of the record of the driver. member: the id under which it has joined. address: as announced.

    source: the id of the source's cluster, if the sink has its own.
    """
    of_source = {"source": source} if source else {}
    # Earlier releases require an address.
    return {"member": member, "address": address or "", "number": number, **of_source}
