"""The pipeline of one round: its topics, what they were sent, its drivers without Spark, and its positions."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from ackwright.local.watch import Watch
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.fault_points import VARIABLE
from ackwright_stream.jobspec import Guarantee, JobSpec, KafkaSink, to_json
from chaos.account import Account, Counts, FedLane, moves_back
from chaos.plan import Round
from integration.support.lane_pipeline import LaneProcess, Result
from integration.support.lane_server import LaneServer
from integration.support.members import alter_offsets, empty_group
from integration.support.pipelines import assert_nothing_hangs, create_topics, document, job_of, positions_of, read
from integration.support.positions_log import committed
from minimal_job import with_member
from waiting import wait_until

STEP = 20  # records of a lane in one transaction
SECONDS = 60


@dataclass
class Topic:
    """One source topic as it is now."""

    name: str
    partitions: int
    incarnation: int = 1
    moves_back: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # on purpose: (partition, from, to)

    @property
    def lanes(self) -> list[FedLane]:
        return [FedLane(f"{self.name[-2:]}.{self.incarnation}", p) for p in range(self.partitions)]


class Pipeline:
    """A pipeline that a round breaks. Its processes end with the context of open_pipeline()."""

    def __init__(self, bootstrap: str, job: JobSpec, topics: list[Topic], directory: Path, server: LaneServer) -> None:
        self.bootstrap, self.job, self.topics, self.directory = bootstrap, job, topics, directory
        self.account = Account()
        self.unsafe: str | None = None  # a rule that is off in drivers without Spark (lane_process.UNSAFE)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._server = server
        self._drivers: list[LaneProcess] = []
        self._producer = self._new_producer()
        self._refused: list[str] = []
        self.write_job(job)

    @property
    def sink(self) -> str:
        return str(self.job.sink_of(KafkaSink).topic)

    @property
    def lane_count(self) -> int:
        return sum(t.partitions for t in self.topics)

    def write_job(self, job: JobSpec) -> None:
        """Later drivers run this jobspec."""
        self.job = job
        (self.directory / "job.json").write_text(to_json(job))

    def feed(self, count: int) -> None:
        """Sends so many further records to each partition, and waits until they are acknowledged."""
        lanes = [(topic.name, lane) for topic in self.topics for lane in topic.lanes]
        for name, lane in lanes:
            first = self.account.lanes[lane].records if lane in self.account.lanes else 0
            for n in range(first, first + count):
                self._send(name, lane, n)
            self._producer.poll(0)
            self.account.sent(lane, count)
        assert self._producer.flush(180) == 0, "the source topics accept records"
        assert self._refused == [], "the source topics accept records"

    def _new_producer(self) -> Producer:
        """A producer that knows no topic yet, and learns of new partitions soon."""
        settings = {"acks": "all", "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 500}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0, **settings})

    def _send(self, topic: str, lane: FedLane, number: int) -> None:
        def sent() -> bool:
            key = f"p{lane.partition}".encode()
            try:
                self._producer.produce(
                    topic, lane.value(number), key, partition=lane.partition, on_delivery=self._delivered
                )
            except KafkaException as e:
                if e.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                self._producer.poll(0.1)  # the broker that was asked does not know it yet
                return False
            return True

        wait_until(sent, f"{topic}-{lane.partition} is known", SECONDS)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(f"{message.topic()}-{message.partition()}: {error}")

    # ---- drivers without Spark

    def drive(self, points: Mapping[str, str] | None = None, step: int = STEP) -> LaneProcess:
        """Starts a driver that delivers up to the ends of its lanes, and restarts like a supervised one."""
        armed = self.directory / f"points-{len(self._drivers)}"
        armed.mkdir()
        for point, action in (points or {}).items():
            (armed / point).write_text(action)
        argv = ["drive", "--jobspec", str(self.directory / "job.json"), "--read", "--again", "--step", str(step)]
        argv += ["--unsafe", self.unsafe] if self.unsafe else []
        self._drivers.append(LaneProcess(self._server.start(argv, {VARIABLE: str(armed)}), armed))
        return self._drivers[-1]

    def end_drivers(self) -> None:
        """Kills every driver that still runs."""
        for driver in self._drivers:
            driver.kill()

    def settle(self) -> Result:
        """Runs a driver until everything is delivered; returns its result."""
        return self.drive(step=10 * STEP).result(180)

    # ---- what a person does

    def set_offsets(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Sets the group's offsets as kafka-consumer-groups --reset-offsets does. Raises KafkaException."""
        partitions = [TopicPartition(topic.name, p, offset) for p, offset in offsets.items()]
        alter_offsets(self.admin, self.job.group, partitions)

    def end_membership(self) -> None:
        """Ends the membership of a driver that is gone, as the end of its session does."""
        empty_group(self.admin, self.job)

    def accept_positions(self, halted: Result) -> None:
        """Accepts the offsets that a driver has halted for, as `ackwright accept-positions` does."""
        assert halted.fingerprint, halted
        self.write_job(replace(self.job, accepted_positions=halted.fingerprint))

    def accept_topic(self, topic: Topic, halted: Result) -> None:
        """Accepts the loss of the topic that a driver has halted for, as `ackwright accept-topic` does."""
        assert halted.lost_topic_id, halted
        losses = {**self.job.accepted_losses, topic.name: halted.lost_topic_id}
        self.write_job(replace(self.job, accepted_losses=losses))

    # ---- topics

    def positions(self, topic: Topic) -> dict[int, int]:
        """The topic's committed offsets by partition."""
        return positions_of(self.bootstrap, self.job.group, topic.name, topic.partitions)

    def recreate(self, topic: Topic, positions: Mapping[int, int]) -> None:
        """Deletes the topic and creates it again, empty. positions: where its lanes were."""
        self.admin.delete_topics([topic.name])[topic.name].result(SECONDS)
        wait_until(lambda: topic.name not in self.admin.list_topics(timeout=SECONDS).topics, "the topic is gone")
        for lane in topic.lanes:
            at = positions.get(lane.partition, 0)
            self.account.ended(lane, at)
            if at:
                topic.moves_back[lane.partition, at, 0] += 1
        topic.incarnation += 1
        create_topics(self.bootstrap, topic.name, partitions=topic.partitions)
        self._producer = self._new_producer()

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Adds partitions to the sink, if it has fewer than the topic will have, and then to the topic."""
        desired = topic.partitions + count
        if len(self.admin.list_topics(self.sink, timeout=SECONDS).topics[self.sink].partitions) < desired:
            self._grow(self.sink, desired)
        self._grow(topic.name, desired)
        topic.partitions = desired
        self._producer = self._new_producer()

    def _grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(SECONDS)

        def has_all() -> bool:
            return len(self.admin.list_topics(name, timeout=SECONDS).topics[name].partitions) == partitions

        wait_until(has_all, f"{name} has {partitions} partitions", SECONDS)

    def delete_topics(self) -> None:
        """Deletes the topics as far as the brokers answer: over many rounds they would fill the brokers."""
        for answer in self.admin.delete_topics([self.sink, *(t.name for t in self.topics)]).values():
            with suppress(KafkaException):
                answer.result(SECONDS)

    # ---- judgement

    def judge(self) -> tuple[Counts, list[str]]:
        """What is in the sink compared with the account, and every reason for which the guarantee did not hold."""
        counts = self.account.judge((r.partition, r.value) for r in read(self.bootstrap, self.sink, timeout=120))
        guarantee = self.job.guarantee
        problems = [
            f"{number} records {what}"
            for what, number, allowed in (
                ("lost", counts.lost, guarantee is Guarantee.AT_MOST_ONCE),
                ("duplicated", counts.duplicated, guarantee is Guarantee.AT_LEAST_ONCE),
                ("that were never sent", counts.unexpected, False),
                ("out of order", counts.disordered, guarantee is not Guarantee.EXACTLY_ONCE),
            )
            if number and not allowed
        ]
        try:
            assert_nothing_hangs(self.bootstrap, self.sink, *(t.name for t in self.topics))
        except AssertionError as e:
            problems.append(str(e))
        for topic in self.topics:
            commits = committed(self.bootstrap, self.job.group, topic.name)
            problems += [f"position moved backwards: {topic.name}-{m}" for m in moves_back(commits, topic.moves_back)]
            ends = {lane.partition: self.account.lanes[lane].records for lane in topic.lanes}
            if (positions := self.positions(topic)) != ends:
                problems.append(f"{topic.name}: positions {positions}, the partitions end at {ends}")
        return counts, problems


@contextmanager
def open_pipeline(bootstrap: str, directory: Path, guarantee: Guarantee, shape: Round) -> Iterator[Pipeline]:
    """A new pipeline with empty topics, which are deleted at the end."""
    name = f"chaos-{uuid.uuid4().hex[:10]}"
    topics = [Topic(f"{name}-in-{chr(ord('a') + n)}{n}", shape.partitions) for n in range(shape.topics)]
    names = [t.name for t in topics]
    create_topics(bootstrap, *names, f"{name}-out", partitions=shape.partitions)
    home = directory / name
    home.mkdir(parents=True)
    spec = document(bootstrap, name, guarantee, names[0], f"{name}-out")
    spec["spec"]["source"]["topics"] = names
    job = job_of(spec, home)
    # A driver that was killed stays a member until another joins: no session ends in the middle of a round.
    job = with_member(replace(job, slots=min(4, shape.topics * shape.partitions)), session_timeout_ms="300000")
    with Watch() as watch:
        server = LaneServer(watch, home)
        p = Pipeline(bootstrap, job, topics, home, server)
        try:
            yield p
        finally:
            p.end_drivers()
            server.close()
            p.delete_topics()
