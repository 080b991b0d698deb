"""The consumer of a simulation as a process: it reads commands, and can be killed or suspended between them.

poll, process and commit answer with the record's value; finish executes the steps that are left. One line each.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS = 60


class SimulatedConsumer:
    """Reads one record at a time and writes its value to the output topic."""

    def __init__(self, spec: dict[str, str]) -> None:
        self.spec, self.commit_mode = spec, spec["commit"]
        servers = {"bootstrap.servers": spec["servers"]}
        identity = {"transactional.id": f"{spec['group']}-output"} if self.commit_mode == "transaction" else {}
        self.producer = Producer({**servers, "enable.idempotence": True, **identity})
        if identity:
            self.producer.init_transactions(SECONDS)
        self.consumer = Consumer(
            {
                **servers,
                "group.id": spec["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": spec["isolation"],
                # The next instance replaces this member at once, although its session lasts (KIP-345).
                "group.instance.id": "simulated",
                "session.timeout.ms": 120_000,
                "max.poll.interval.ms": 600_000,
            }
        )
        self.consumer.subscribe([spec["source"]])
        self.record: Message | None = None
        self.steps: list[str] = []

    def poll(self) -> None:
        while True:
            record = self.consumer.poll(1)
            if record is not None and record.error() is None:
                break
        self.record = record
        self.steps = ["commit", "process"] if self.commit_mode == "before" else ["process", "commit"]

    def process(self) -> None:
        record = self._held()
        if self.commit_mode == "transaction":
            self.producer.begin_transaction()
        self.producer.produce(self.spec["output"], record.value())
        if self.producer.flush(SECONDS):
            raise TimeoutError("the output is not acknowledged")

    def commit(self) -> None:
        record = self._held()
        offsets = [TopicPartition(record.topic(), record.partition(), record.offset() + 1)]
        if self.commit_mode == "transaction":
            self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), SECONDS)
            self.producer.commit_transaction(SECONDS)
        else:
            (committed,) = self.consumer.commit(offsets=offsets, asynchronous=False)
            if committed.error:
                raise KafkaException(committed.error)

    def _held(self) -> Message:
        if self.record is None:
            raise RuntimeError("no record is held")
        return self.record

    def execute(self, command: str) -> dict[str, Any]:
        """Executes a command; what it did, and the error that stopped it."""
        if command != "finish":
            getattr(self, command)()
            self.steps = [s for s in self.steps if s != command]
            return {"value": (self._held().value() or b"").decode()}
        while self.steps:
            try:
                getattr(self, self.steps[0])()
            except KafkaException as e:
                return {"error": e.args[0].name(), "in": self.steps[0]}
            self.steps.pop(0)
        return {}


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("spec")
    consumer = SimulatedConsumer(json.loads(p.parse_args().spec))
    for line in sys.stdin:
        print(json.dumps(consumer.execute(line.strip())), flush=True)


if __name__ == "__main__":
    main()
