"""Real pipelines: a job process against real brokers, its input, its output, and a concurrent reader."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from ackwright.api.spec import DeliveryPipeline, examine
from ackwright.errors import InvalidSpec
from ackwright.local.supervise import Job, spark_settings
from ackwright.local.watch import Watch
from ackwright.planning.plan import plan as make_plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.fault_points import VARIABLE
from ackwright_stream.jobspec import JobSpec
from integration.support.positions_log import committed
from integration.support.processes import program
from waiting import ANSWER, WAIT, wait_until

LANES = "ackwright-lanes"


# ---------------------------------------------------------------- topics and records


def create_topics(bootstrap: str, *names: str, partitions: int = 4, replication: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    missing = [NewTopic(n, partitions, replication) for n in names]
    if LANES not in admin.list_topics(timeout=ANSWER).topics:
        missing.append(NewTopic(LANES, 1, replication, config={"cleanup.policy": "compact"}))
    for topic, future in (admin.create_topics(missing) if missing else {}).items():
        try:
            future.result(ANSWER)
        except Exception as e:
            if "ALREADY_EXISTS" not in str(e):
                raise AssertionError(f"{topic}: {e}") from e
    wait_until_known(bootstrap, *names)


def wait_until_known(bootstrap: str, *names: str) -> None:
    """Each broker learns of a new topic by itself, and a client may ask any of them."""
    for server in bootstrap.split(","):
        wait_until(partial(_knows, server, set(names)), f"topics {names} on {server}")


def _knows(server: str, topics: set[str]) -> bool:
    """Whether a broker knows the topics, or is down."""
    try:
        return topics <= set(AdminClient({"bootstrap.servers": server}).list_topics(timeout=5).topics)
    except KafkaException:
        return True


def feed(bootstrap: str, topic: str, partitions: int, start: int, count: int) -> None:
    """Records start … start+count-1 into each partition: key "p<partition>", value "<partition>:<n>"."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "enable.idempotence": True})
    for n in range(start, start + count):
        for p in range(partitions):
            producer.produce(topic, f"{p}:{n}".encode(), f"p{p}".encode(), partition=p)
        if n % 500 == 0:
            producer.poll(0)
    assert producer.flush(ANSWER) == 0


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read(bootstrap: str, *topics: str, isolation: str = "read_committed", timeout: float = ANSWER) -> list[Record]:
    """All records of the topics up to their present ends, for a reader of that isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test-reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        reading = {(t, p) for t in topics for p in consumer.list_topics(t, timeout=ANSWER).topics[t].partitions}
        consumer.assign([TopicPartition(t, p, 0) for t, p in reading])
        records = []
        deadline = time.monotonic() + timeout
        while reading:
            assert time.monotonic() < deadline, f"{reading} could not be read to the end: an open transaction?"
            for m in consumer.consume(1000, 0.5):
                if m.error():
                    reading.discard((m.topic(), m.partition()))
                else:
                    headers = tuple((k, v) for k, v in m.headers() or ())
                    records.append(Record(m.topic(), m.partition(), m.offset(), m.key(), m.value(), headers))
        return sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
    finally:
        consumer.close()


def positions_of(bootstrap: str, group: str, topic: str, partitions: int, settle: float = 5.0) -> dict[int, int]:
    """The committed offsets, without partitions that have none.

    A commit's reply comes before its markers, so this waits up to `settle` seconds for transactions that are ending
    and then ignores open ones. A consumer asks, because the admin client can end the process when a broker is
    killed during its request.
    """
    partitions_ = [TopicPartition(topic, p) for p in range(partitions)]
    answers = None
    if settle:
        with suppress(KafkaException):
            answers = _reader_of(bootstrap, group, "read_committed").committed(partitions_, timeout=settle)
    if answers is None or any(x.error for x in answers):
        answers = _reader_of(bootstrap, group, "read_uncommitted").committed(partitions_, timeout=ANSWER)
    return {x.partition: x.offset for x in answers if x.error is None and x.offset >= 0}


@lru_cache(maxsize=8)
def _reader_of(bootstrap: str, group: str, isolation: str) -> Consumer:
    quiet = {"log_level": 0}  # it outlives brokers that a test kills
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            **quiet,
        }
    )


# ---------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Verdict:
    lost: int
    duplicated: int
    unexpected: int
    disordered: int  # records that come after a later one of the same source partition, in the same sink partition

    @property
    def exactly_once(self) -> bool:
        return self == Verdict(0, 0, 0, 0)


def judge(records: Sequence[Record], partitions: int, count: int, start: int = 0) -> Verdict:
    """Compares the input of feed(), start … count-1 per partition, with the output: values and order."""
    expected = Counter(f"{p}:{n}".encode() for p in range(partitions) for n in range(start, count))
    actual = Counter(r.value for r in records if r.value is not None)
    surplus = actual - expected
    disordered = 0
    last: dict[tuple[int, int], int] = {}
    for r in records:
        assert r.value is not None
        p, n = map(int, r.value.split(b":"))
        if n < last.get((p, r.partition), -1):
            disordered += 1
        last[p, r.partition] = max(n, last.get((p, r.partition), -1))
    return Verdict(
        lost=(expected - actual).total(),
        duplicated=sum(n for v, n in surplus.items() if v in expected),
        unexpected=sum(c for v, c in actual.items() if v not in expected),
        disordered=disordered,
    )


def hanging(bootstrap: str, *topics: str) -> list[str]:
    """Partitions in which an open transaction blocks read_committed readers: last stable offset < high watermark."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    parts = [TopicPartition(t, p) for t in topics for p in admin.list_topics(t, timeout=ANSWER).topics[t].partitions]

    def ends(level: IsolationLevel) -> dict[str, int]:
        answers = admin.list_offsets({p: OffsetSpec.latest() for p in parts}, isolation_level=level)
        return {f"{p.topic}-{p.partition}": f.result(ANSWER).offset for p, f in answers.items()}

    stable, high = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
    return [p for p in high if stable[p] < high[p]]


def assert_nothing_hangs(bootstrap: str, *topics: str) -> None:
    """Asserts that no transaction stays open. Markers take up to ten seconds; the coordinator's time-out is 60."""
    wait_until(lambda: not hanging(bootstrap, *topics), f"no open transaction holds back readers of {topics}", 30)


class Watcher:
    """A concurrent read_committed reader of the sink, which also detects positions that moved backwards."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, partitions: int) -> None:
        self.records: list[Record] = []
        self._end = threading.Event()
        self._args = (bootstrap, group, source)
        conf = {
            "bootstrap.servers": bootstrap,
            "group.id": "test-watcher",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer({**conf, "isolation.level": "read_committed"})
        self._parts = [TopicPartition(sink, p, 0) for p in range(partitions)]
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watcher:
        self._consumer.assign(self._parts)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(ANSWER)

    def _read(self) -> None:
        while not self._end.is_set():
            for m in self._consumer.consume(1000, 0.2):
                if not m.error():
                    self.records.append(Record(m.topic(), m.partition(), m.offset(), m.key(), m.value(), ()))
        self._consumer.close()

    @property
    def backwards(self) -> list[str]:
        """Every move of a position backwards, in the order of the log."""
        bootstrap, group, source = self._args
        commits = committed(bootstrap, group, source)
        assert commits, "no position was ever committed"
        steps = ((p, pair) for p, offsets in commits.items() for pair in itertools.pairwise(offsets))
        return [f"{source}-{p}: {before} -> {after}" for p, (before, after) in steps if after < before]


# ---------------------------------------------------------------- the job


def document(bootstrap: str, name: str, guarantee: str, source: str, sink: str, **spec: Any) -> dict[str, Any]:
    """A DeliveryPipeline as a user writes it; spec overrides its parts."""
    parts: dict[str, Any] = {
        "guarantee": guarantee,
        "kafka": {"bootstrapServers": bootstrap},
        "source": {"topics": [source], "format": "binary", "maxOffsetsPerTrigger": 2000},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": sink, "format": "binary", "preservePartition": True}},
        "trigger": {"interval": "100ms"},
    }
    parts.update(spec)
    metadata = {"name": name, "namespace": "test"}
    return {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": metadata, "spec": parts}


def job_of(
    document: Mapping[str, Any], directory: Path, *, resource: type[DeliveryPipeline] = DeliveryPipeline, **more: Any
) -> JobSpec:
    """The jobspec that `ackwright run` would create. resource: the model of the document."""
    pipeline, violations = examine(document, resource)
    if pipeline is None or violations:
        raise InvalidSpec(violations)
    return jobspec(
        make_plan(pipeline),
        master="local[2]",
        identity="pipeline-of-the-tests",
        secrets=more.pop("secrets", None),
        spark_extra=spark_settings(directory),
    )


@dataclass
class Running:
    """One job process and its fault points."""

    job: Job
    points: Path
    spec: JobSpec
    group: str = field(init=False)

    def __post_init__(self) -> None:
        self.group = self.spec.group

    def progress(self) -> Mapping[str, Any]:
        report = self.job.progress()
        return report.as_json() if report else {}

    def until(
        self, condition: Callable[[Mapping[str, Any]], Any], what: str, timeout: float = WAIT
    ) -> Mapping[str, Any]:
        """Waits until the job's progress satisfies the condition. Fails at once if the job ends."""

        def has_happened() -> Mapping[str, Any] | None:
            now = self.progress()
            if now and condition(now):
                return now
            assert self.job.poll() is None, (
                f"the job ended ({self.job.poll()}) while waiting for {what}: {self.job.failure()}"
            )
            return None

        with self.explained():
            progress: Mapping[str, Any] = wait_until(has_happened, what, timeout)
            return progress

    def until_position(self, partitions: int, offset: int, timeout: float = WAIT) -> None:
        topic = self.spec.source.topics[0]
        self.until(
            lambda p: (
                len(p["positions"].get(topic, {})) >= partitions
                and all(x >= offset for x in p["positions"][topic].values())
            ),
            f"positions at {offset}",
            timeout,
        )

    def arm(self, point: str, action: str = "hang", lane: str | None = None) -> Path:
        """Arms a fault point; returns the file that appears with the process id when a process reaches it."""
        name = f"{point}@{lane}" if lane else point
        hit = self.points / f"{name}.hit"
        hit.unlink(missing_ok=True)
        (self.points / f"{name}.release").unlink(missing_ok=True)
        fresh = self.points / f".{name}"
        fresh.write_text(action)
        fresh.rename(self.points / name)
        return hit

    def arrived(self, hit: Path, timeout: float = WAIT) -> int:
        """Waits for a process at the fault point; returns its process id."""

        def has_happened() -> int | None:
            try:
                return int(hit.read_text())
            except (FileNotFoundError, ValueError):
                return None

        with self.explained():
            return int(wait_until(has_happened, f"a process at {hit.name}", timeout))

    def jvms(self) -> list[int]:
        """The process ids of its Java programs: the driver, and executors if it has some."""
        return [pid for pid in self.job.processes() if program(pid) == "java"]

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Adds the job's progress, its log, and the stacks of Spark's threads to a failed assertion."""
        try:
            yield
        except AssertionError as e:
            if self.job.poll() is None:
                for pid in self.jvms():
                    os.kill(pid, signal.SIGQUIT)  # Java writes its stacks
                with suppress(AssertionError):  # of a JVM that is suspended
                    wait_until(lambda: "JNI global refs" in self._log(), "the stacks are written", 10)
            log, _, stacks = self._log().partition("Full thread dump")
            of_spark = [s for s in stacks.split("\n\n") if "at org.apache.spark" in s]
            e.add_note(f"progress: {self.progress()}")
            e.add_note("\n".join(["the end of its log:", *log.splitlines()[-100:]]))
            e.add_note("\n\n".join(["the threads of Spark:", *of_spark]))
            raise

    def _log(self) -> str:
        return self.job.log.read_text(errors="replace")

    def release(self, point: str, lane: str | None = None) -> None:
        (self.points / f"{f'{point}@{lane}' if lane else point}.release").touch()

    def signal_all(self, number: int) -> None:
        """Sends a signal to the driver, its JVM and their Python workers: one session."""
        self.job.signal_all(number)

    def suspend(self) -> None:
        self.signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal_all(signal.SIGCONT)


@contextmanager
def running(spec: JobSpec, directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Starts the job, and kills it at the end if it still runs."""
    points = directory / "points"
    points.mkdir(parents=True, exist_ok=True)
    with Watch() as watch:
        started = Running(
            Job(spec, directory, watch, environment={VARIABLE: str(points), **(environment or {})}), points, spec
        )
        try:
            yield started
        finally:
            started.job.kill()
