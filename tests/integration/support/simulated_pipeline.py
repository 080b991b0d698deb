"""Replays the actions of a simulation (tests/simulator) on real brokers, with real clients.

Requests and acknowledgements are lost in a proxy, brokers are killed or suspended, and the consumer is a process that
is killed or suspended. Replica n of the simulation is broker n. Followers copy records by themselves, so they are
suspended wherever the leader dies before they may.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.local.kafka import EmbeddedKafka
from integration.support import simulated_consumer
from integration.support.holding_proxy import Held, HoldingProxy
from integration.support.lane_process import environment
from integration.support.simulated_partition import SECONDS, SimulatedPartition, without_errors
from simulator.counts import Counts, inversions, readable
from simulator.state import Settings, State, initial
from simulator.step import step
from waiting import wait_until


class SimulatedPipeline:
    """A producer, a topic and a consumer with the settings of a simulation."""

    def __init__(self, kafka: EmbeddedKafka, settings: Settings, directory: Path) -> None:
        self.kafka, self.s, self.t = kafka, settings, initial(settings)
        self.directory = directory
        self.name = f"simulated-{uuid.uuid4().hex[:8]}"
        self.source, self.output = f"{self.name}-in", f"{self.name}-out"
        self.partition = SimulatedPartition(kafka, self.source)
        self._create_topics()
        self.proxy = HoldingProxy(kafka.brokers)
        self.outcomes: dict[str, str] = {}
        self.zombie_requests: list[Held] = []
        self.instances: list[Producer] = []
        self.producer = self._new_producer()
        self.consumer: subprocess.Popen[str] | None = None
        self.zombie: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self.consumer, self.zombie):
            if process:
                _kill(process)
        for producer in self.instances:
            producer.purge()
        self.proxy.__exit__(kind, value, trace)
        for broker in self.kafka.brokers:
            if broker.alive:
                broker.resume()
            broker.start(wait=False)
        for broker in self.kafka.brokers:
            broker.wait_until_ready()
        self.partition.admin.delete_topics([self.source, self.output], operation_timeout=SECONDS)
        self.kafka.wait_until_in_sync(120)

    def _create_topics(self) -> None:
        config = {
            "min.insync.replicas": str(self.s.min_insync),
            "unclean.leader.election.enable": str(self.s.unclean).lower(),
        }
        replicas = [list(range(1, self.s.replicas + 1))]
        source = NewTopic(self.source, len(replicas), replica_assignment=replicas, config=config)
        for result in self.partition.admin.create_topics(
            [source, NewTopic(self.output, 1)], request_timeout=SECONDS
        ).values():
            result.result(SECONDS)
        self.partition.wait_for(self.t)

    # ------------------------------------------------------------ actions
    def replay(self, actions: tuple[str, ...]) -> None:
        """Executes the actions, and follows them in the model."""
        for i, action in enumerate(actions):
            after = step(self.s, self.t, action).state
            verb, _, number = action.rpartition("-")
            if number.isdigit():
                {"lag": self.lag, "return": self.come_back}[verb](after, int(number))
            elif action == "deliver":
                self.deliver(after, actions[i + 1 :])
            else:
                getattr(self, action.replace("-", "_"))(after)
            self.t = after

    def send(self, after: State) -> None:
        held = len(self.proxy.requests())
        if self.s.transactions and not self.t.transaction:
            self.producer.begin_transaction()
        self._produce(self.value(len(after.outcomes)))
        wait_until(lambda: len(self.proxy.requests()) > held, "the request is on its way")

    def deliver(self, after: State, following: tuple[str, ...]) -> None:
        leader = self.partition.leader()
        rest = ("replicate", "kill-leader")
        if next((a for a in following if a in rest), "") == "kill-leader" and after.brokers != self.t.brokers:
            self.partition.suspend_followers(leader, self.t.isr)
        request = self.proxy.next_request(exclude=self.zombie_requests)
        value = next(r.value for r in self.t.requests if r.phase == "request")
        copies = self.partition.copies(leader, self.value(value))
        request.forward_request()
        waits = next((r.phase for r in after.requests if r.value == value), "reply") != "request"
        if after.brokers != self.t.brokers:
            wait_until(
                lambda: self.partition.copies(leader, self.value(value)) > copies,
                "the record is in the leader's log",
            )
        if not waits:  # refused: the client gets the error at once
            self.proxy.next_reply().forward_reply()

    def lose_request(self, _: State) -> None:
        self.proxy.next_request(exclude=self.zombie_requests).connection.close()

    def lose_ack(self, _: State) -> None:
        self.proxy.next_reply().connection.close()

    def deliver_ack(self, after: State) -> None:
        self.proxy.next_reply().forward_reply()
        expected = [self.value(i + 1) for i, o in enumerate(after.outcomes) if o == "acknowledged"]
        self._poll_until(lambda: all(self.outcomes.get(v) == "acknowledged" for v in expected), "acknowledged")

    def replicate(self, after: State) -> None:
        partition = TopicPartition(self.source, 0)
        settings = {"group.id": self.name, "isolation.level": "read_uncommitted", "log_level": 0}
        reader = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, **settings})

        def is_reached() -> bool:
            return bool(reader.get_watermark_offsets(partition, 10)[1] == after.high_watermark)

        try:
            wait_until(lambda: without_errors(is_reached), f"the high watermark is {after.high_watermark}")
        finally:
            reader.close()

    def commit_transaction(self, _: State) -> None:
        self.producer.commit_transaction(SECONDS)

    def replace_producer(self, after: State) -> None:
        self.zombie_requests = self.proxy.requests()
        self.producer = self._new_producer()
        if self.s.transactions and after.transaction:
            self.producer.begin_transaction()
        for r in after.requests:
            self._produce(self.value(r.value))
        count = len(self.zombie_requests) + len(after.requests)
        wait_until(lambda: len(self.proxy.requests()) == count, "the new instance's requests are on their way")

    def zombie_produces(self, _: State) -> None:
        request = self.zombie_requests.pop(0)
        request.forward_request()
        self.proxy.next_reply().forward_reply()

    def kill_leader(self, after: State) -> None:
        self.partition.leader().kill()
        self.partition.resume_followers()
        self.partition.wait_for(after)

    def lag(self, after: State, broker: int) -> None:
        self.partition.suspend(broker)
        self.partition.wait_for(after)

    def come_back(self, after: State, broker: int) -> None:
        if broker in self.partition.suspended:
            self.partition.resume_followers()
        self.kafka.broker(broker).start()
        self.partition.wait_for(after)

    def poll(self, after: State) -> None:
        self._expect(after, "poll")

    def process(self, _: State) -> None:
        self._expect(self.t, "process")

    def commit(self, _: State) -> None:
        self._expect(self.t, "commit")

    def kill_consumer(self, _: State) -> None:
        if self.consumer:
            _kill(self.consumer)
        self.consumer = None

    def pause_consumer(self, _: State) -> None:
        self.zombie, self.consumer = self.consumer, None
        if self.zombie:
            os.kill(self.zombie.pid, signal.SIGSTOP)

    def zombie_consumer(self, _: State) -> None:
        if self.zombie:
            os.kill(self.zombie.pid, signal.SIGCONT)
            self._ask(self.zombie, "finish")

    # ------------------------------------------------------------ results
    def value(self, number: int) -> str:
        """The content of the simulation's record with this number; unique in the brokers' log files."""
        return f"{self.name}/{number}/"

    def counts(self) -> Counts:
        """The counter, from what a read_committed reader of the output gets and from the producer's reports."""
        self._poll_until(lambda: len(self.outcomes) >= len(self.t.outcomes), "all records are reported")
        sent = range(1, len(self.t.outcomes) + 1)
        output = [int(v.split("/")[1]) for v in self._read(self.output)]
        lost = [v for v in sent if v not in output]
        return Counts(
            sent=len(sent),
            delivered=len(set(output)),
            pending=0,
            lost=len(lost),
            reported=sum(self.outcomes[self.value(v)] == "failed" for v in lost),
            duplicated=len(output) - len(set(output)),
            out_of_order=inversions(output),
        )

    def topic(self) -> list[int]:
        """The records of the source topic, as its consumer gets them."""
        return [int(v.split("/")[1]) for v in self._read(self.source)]

    def expected_topic(self) -> list[int]:
        return [value for _, value in readable(self.s, self.t)]

    def _read(self, topic: str) -> list[str]:
        reader = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": self.name + "-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        values: list[str] = []
        reader.assign([TopicPartition(topic, 0, 0)])

        def is_at_end() -> bool:
            message = reader.poll(1)
            if message is None:
                return False
            if message.error():
                return bool(message.error().code() == KafkaError._PARTITION_EOF)
            values.append((message.value() or b"").decode())
            return False

        try:
            wait_until(is_at_end, f"the end of {topic}", pause=0)
        finally:
            reader.close()
        return values

    # ------------------------------------------------------------ producer
    def _new_producer(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.proxy.bootstrap_servers,
            "acks": self.s.acks,
            "enable.idempotence": self.s.idempotence,
            "linger.ms": 0,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 300_000,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "log_level": 0,
        }
        settings |= {} if self.s.retries else {"retries": 0}
        if self.s.transactions:
            settings |= {"transactional.id": self.name, "transaction.timeout.ms": 300_000}
        producer = Producer(settings)
        if self.s.transactions:
            producer.init_transactions(SECONDS)
        self.instances.append(producer)
        return producer

    def _produce(self, value: str) -> None:
        current = self.producer

        def report(error: KafkaError | None, message: Message) -> None:
            if current is self.producer:
                self.outcomes[(message.value() or b"").decode()] = "failed" if error else "acknowledged"

        current.produce(self.source, value.encode(), partition=0, on_delivery=report)

    def _poll_until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            self.producer.poll(0)
            return condition()

        wait_until(holds, what)

    # ------------------------------------------------------------ consumer
    def _expect(self, t: State, command: str) -> None:
        if self.consumer is None:
            self.consumer = self._start_consumer()
        answer = self._ask(self.consumer, command)
        assert answer["value"] == self.value(t.consumer.held), f"{command}: {answer}"

    @staticmethod
    def _ask(process: subprocess.Popen[str], command: str) -> dict[str, Any]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(command + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the consumer has ended at {command}"
        return dict(json.loads(line))

    def _start_consumer(self) -> subprocess.Popen[str]:
        spec = {
            "servers": self.kafka.bootstrap_servers,
            "group": self.name,
            "source": self.source,
            "output": self.output,
            "commit": self.s.commit,
            "isolation": "read_committed" if self.s.transactions else "read_uncommitted",
        }
        with (self.directory / "consumer.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, simulated_consumer.__file__, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
            )


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
