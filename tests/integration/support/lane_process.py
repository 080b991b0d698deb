"""One lane's task, or a whole driver, without Spark: a process of a second that can be killed anywhere, and the harness that starts it.

It runs the job's own protocol (ownership.take, delivery.*, lanes.Lanes) against real brokers; only Spark is missing: the rows of a range
are made here as Arrow batches, offset n of partition p being "p:n", which is what pipelines.feed() wrote there. So hundreds of kills
fit into the time of a few starts of Spark. At-least-once's write is Spark's in the job; here an idempotent producer stands for it,
followed by the job's own advance.

--unsafe takes one rule out of this process alone, for the negative controls: what the tests call clean must not be clean without it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

UNSAFE = ("position-check", "commit-first", "fencing")
ROWS = 25  # of an Arrow batch


# ---------------------------------------------------------------- the process


def rows_of(lane: int, start: int, until: int) -> Iterator[Any]:
    """The rows of [start, until) as Spark hands them to a task."""
    import pyarrow as pa

    for first in range(start, until, ROWS):
        values = [f"{lane}:{n}".encode() for n in range(first, min(first + ROWS, until))]
        yield pa.RecordBatch.from_pydict({"key": [f"p{lane}".encode()] * len(values), "value": values})


def disarm(rule: str) -> None:
    """Takes one rule out of this process."""
    from ackwright_stream import lanes
    from ackwright_stream.sinks.kafka import transactions

    if rule == "position-check":
        lanes.decide = lambda position, batch: None
    elif rule == "fencing":
        transactions.transactional_id = lambda job, lane: f"{job.group}/{lane}/{os.getpid()}"
    elif rule == "commit-first":
        safe = lanes.Lanes.advance

        def advance(self: Any, batch: Any, rows: Any = ()) -> tuple[Any, int]:
            done, _ = safe(self, batch)  # the position alone …
            if done is not lanes.Outcome.DONE:
                return done, 0
            producer = self.fence(batch.lane)[0].producer
            producer.begin_transaction()
            written = self.sink.enqueue(producer, batch.lane, rows)  # … and then the rows
            producer.commit_transaction(60.0)
            return done, written

        lanes.Lanes.advance = advance  # type: ignore[method-assign]


class Process:
    """What the process does with the job's own code."""

    def __init__(self, given: argparse.Namespace) -> None:
        from ackwright_stream.cluster import Cluster
        from ackwright_stream.jobspec import from_json

        self._given = given
        self._job = from_json(Path(given.jobspec).read_text())
        if given.transaction_timeout_ms:  # a process that is stopped for long must not find all its time gone
            short = str(given.transaction_timeout_ms)
            # librdkafka wants the last one to be no longer than the first
            producer = self._job.producer
            limits = {"transaction.timeout.ms": short, "delivery.timeout.ms": short, "socket.timeout.ms": short}
            self._job = replace(
                self._job,
                operation_timeout_ms=max(self._job.operation_timeout_ms, given.transaction_timeout_ms),
                positions_producer={**self._job.positions_producer, **limits},
                producer={**producer, **limits} if "transaction.timeout.ms" in producer else producer,
            )
        self._cluster = Cluster(self._job)
        self.told: dict[str, Any] = {"driver": given.driver, "outcomes": Counter(), "failed": Counter(), "error": None}

    def run(self) -> int:
        """Exit code as the job has it."""
        from ackwright_stream.errors import JobError

        try:
            self._task() if self._given.what == "task" else self._drive()
        except JobError as e:
            self.told["error"] = e.reason.value
            self.told["message"] = e.message
            return e.exit_code
        return 0

    def _task(self) -> None:
        """One lane's ranges, one after the other. With --again a failed one is tried again, as Spark does."""
        from ackwright_stream.delivery.batch import Work
        from ackwright_stream.errors import JobError
        from ackwright_stream.positions import Lane, Range

        given, ids = self._given, self._cluster.topology().topic_ids
        lane = Lane(self._job.source.topics[0], given.lane)
        at = given.start
        while at < given.until:
            wanted = Range(lane, at, min(at + given.step, given.until))
            try:
                self._process(Work(self._job, given.driver, ids), wanted)
            except JobError as e:
                self.told["failed"][e.reason.value] += 1
                if not given.again:
                    raise
                continue
            at = wanted.until

    def _drive(self) -> None:
        """Takes the pipeline and goes on from its positions. With --again it starts anew when it fails or is superseded, as whoever
        supervises drivers does."""
        from ackwright_stream import ownership
        from ackwright_stream.errors import JobError
        from ackwright_stream.fault_points import fault_point

        previous: int | None = None
        while True:
            try:
                owned = ownership.take(self._job, self._cluster, previous)
                self.told["driver"] = previous = owned.driver
                fault_point(
                    "taken"
                )  # a point of this program: what is armed from here on meets tasks, not the taking of the lanes
                self._deliver(owned)
                return
            except JobError as e:
                self.told["failed"][e.reason.value] += 1
                if not self._given.again or e.reason.value not in (
                    "Superseded",
                    "PositionConflict",
                    "BrokersUnreachable",
                    "BatchFailed",
                ):
                    raise
                if e.reason.value == "Superseded":
                    previous = None
            time.sleep(random.uniform(0.1, 1.0))  # jitter, so that one of two gets through

    def _deliver(self, owned: Any) -> None:
        from ackwright_stream.delivery.batch import Work
        from ackwright_stream.jobspec import Guarantee
        from ackwright_stream.positions import Range

        at = dict(owned.positions)
        while any(offset < self._given.until for offset in at.values()):
            ranges = tuple(
                Range(lane, offset, min(offset + self._given.step, self._given.until))
                for lane, offset in sorted(at.items())
                if offset < self._given.until
            )
            work = Work(self._job, owned.driver, owned.topic_ids)
            if self._job.guarantee is Guarantee.AT_LEAST_ONCE:
                self._write_and_advance(ranges, owned.lanes)
            else:
                for wanted in ranges:
                    self._process(work, wanted)
            at.update({r.lane: r.until for r in ranges})

    def _process(self, work: Any, wanted: Any) -> None:
        from ackwright_stream.delivery.at_most_once import claim_and_process
        from ackwright_stream.delivery.exactly_once import process_and_advance
        from ackwright_stream.jobspec import Guarantee

        task = claim_and_process if self._job.guarantee is Guarantee.AT_MOST_ONCE else process_and_advance
        outcome, _ = task(work, wanted, rows_of(wanted.lane.partition, wanted.start, wanted.until))
        self.told["outcomes"][outcome.value] += 1

    def _write_and_advance(self, ranges: Any, lanes: Any) -> None:
        from confluent_kafka import Producer

        from ackwright_stream.connection import settings
        from ackwright_stream.errors import JobError
        from ackwright_stream.fault_points import fault_point
        from ackwright_stream.jobspec import Reason

        producer = Producer(
            settings(self._job.cluster, {"acks": "all", "enable.idempotence": "true", "retry.backoff.ms": "20"})
        )
        for r in ranges:
            for rows in rows_of(r.lane.partition, r.start, r.until):
                for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
                    producer.produce(self._job.sink.topic, value, key, partition=r.lane.partition)
                fault_point("mid-produce", r.lane)
        if producer.flush(60):
            raise JobError(Reason.BROKERS_UNREACHABLE, "not all records were acknowledged")
        fault_point("before-advance")
        lanes.advance_all({r.lane: r.until for r in ranges})
        fault_point("after-advance")
        self.told["outcomes"]["done"] += len(ranges)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=["task", "drive"])
    arguments.add_argument("--jobspec", required=True)
    arguments.add_argument("--driver", type=int, default=1)
    arguments.add_argument("--lane", type=int, default=0)
    arguments.add_argument("--start", type=int, default=0)
    arguments.add_argument("--until", type=int, required=True)
    arguments.add_argument("--step", type=int, default=1 << 30)
    arguments.add_argument("--again", action="store_true")
    arguments.add_argument("--unsafe", choices=UNSAFE)
    arguments.add_argument("--transaction-timeout-ms", type=int)
    given = arguments.parse_args()
    faulthandler.dump_traceback_later(60)  # a process that is stuck says where, in its log
    if given.unsafe:
        disarm(given.unsafe)
    process = Process(given)
    code = process.run()
    print(json.dumps(process.told), flush=True)
    return code


# ---------------------------------------------------------------- the harness


@dataclass(frozen=True)
class Told:
    """What a process said of itself before it ended. code: 128 + n if signal n killed it. error: a Reason."""

    code: int
    driver: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    message: str | None = None


class LaneProcess:
    """A running process, and the points at which it may be met."""

    def __init__(self, process: subprocess.Popen[bytes], points: Path) -> None:
        self._process, self._points = process, points

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def at(self, point: str) -> bool:
        """Whether it has come by the armed point."""
        return bool((self._points / f"{point}.hit").exists() and (self._points / f"{point}.hit").read_text())

    def arm(self, point: str, action: str) -> None:
        fresh = self._points / f".{point}"
        fresh.write_text(action)
        fresh.rename(self._points / point)

    def arrived(self, point: str) -> None:
        from waiting import wait_until

        def look() -> bool:
            assert self.at(point) or not self.ended, f"ended before {point}: {self.told()}"
            return self.at(point)

        wait_until(look, f"a process at {point}")

    def release(self, point: str) -> None:
        (self._points / f"{point}.release").touch()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if not self.ended:
            self.signal(signal.SIGKILL)
        self._process.wait(30)

    def told(self, timeout: float = 240) -> Told:
        """Waits for its end (seconds)."""
        out, _ = self._process.communicate(timeout=timeout)
        code = self._process.returncode
        if code < 0 or not out:
            return Told(code if code >= 0 else 128 - code)
        return Told(code=code, **json.loads(out.decode().splitlines()[-1]))


@dataclass
class LanePipeline:
    """A pipeline whose source is full and whose sink is empty; partitions of both are equal in number, and kept."""

    bootstrap: str
    directory: Path
    job: Any
    partitions: int
    count: int
    watch: Any
    started: list[LaneProcess] = field(default_factory=list)

    @property
    def source(self) -> str:
        return str(self.job.source.topics[0])

    @property
    def sink(self) -> str:
        return str(self.job.sink.topic)

    def task(
        self, lane: int, start: int, until: int, driver: int, points: Mapping[str, str] | None = None, **options: Any
    ) -> LaneProcess:
        return self._start("task", points, lane=lane, start=start, until=until, driver=driver, **options)

    def drive(self, until: int | None = None, points: Mapping[str, str] | None = None, **options: Any) -> LaneProcess:
        return self._start("drive", points, until=self.count if until is None else until, **options)

    def driven(self, until: int | None = None, **options: Any) -> Told:
        """A fresh driver that takes the pipeline and goes on from the positions until it is there."""
        told = self.drive(until, **options).told()
        assert told.code == 0, told
        return told

    def positions(self) -> dict[int, int]:
        from integration.support.pipelines import positions_of

        return positions_of(self.bootstrap, self.job.group, self.source, self.partitions)

    def _start(self, what: str, points: Mapping[str, str] | None, **options: Any) -> LaneProcess:
        from ackwright_stream.fault_points import VARIABLE

        armed = self.directory / f"points-{len(self.started)}"
        armed.mkdir(parents=True)
        for point, action in (points or {}).items():
            (armed / point).write_text(action)
        argv = [sys.executable, __file__, what, "--jobspec", str(self.directory / "job.json")]
        for name, value in options.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                argv.append(option)
            elif value is not None and value is not False:
                argv += [option, str(value)]
        with (self.directory / f"process-{len(self.started)}.log").open("wb") as log:
            process = self.watch.start(
                argv, env={**os.environ, VARIABLE: str(armed)}, stdout=subprocess.PIPE, stderr=log
            )
        self.started.append(LaneProcess(process, armed))
        return self.started[-1]


@contextmanager
def lane_pipeline(
    bootstrap: str, directory: Path, guarantee: str, partitions: int = 2, count: int = 300
) -> Iterator[LanePipeline]:
    """A pipeline with `count` records in each partition of its source. What still runs at the end is killed."""
    from ackwright.local.watch import Watch
    from ackwright_stream.jobspec import to_json
    from integration.support.pipelines import create_topics, document, feed, job_of

    name = f"lane-{uuid.uuid4().hex[:10]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(bootstrap, source, sink, partitions=partitions)
    feed(bootstrap, source, partitions, 0, count)
    job = job_of(document(bootstrap, name, guarantee, source, sink), directory)
    home = directory / name
    home.mkdir(parents=True)
    (home / "job.json").write_text(to_json(job))
    with Watch() as watch:
        yield LanePipeline(bootstrap, home, job, partitions, count, watch)


def watched(pipeline: LanePipeline) -> Any:
    """A pipelines.Watcher on it."""
    from integration.support.pipelines import Watcher

    return Watcher(pipeline.bootstrap, pipeline.job.group, pipeline.source, pipeline.sink, pipeline.partitions)


def assert_exactly_once(pipeline: LanePipeline, watcher: Any) -> None:
    """Input = output as multisets, in order, for a reader at the end and for one that looked on; positions where the output is, and never
    backwards; nothing hanging."""
    from integration.support.pipelines import Verdict, assert_nothing_hangs, judge, read
    from waiting import wait_until

    everything = pipeline.partitions * pipeline.count
    final = read(pipeline.bootstrap, pipeline.sink)
    assert judge(final, pipeline.partitions, pipeline.count) == Verdict(0, 0, 0, 0)
    wait_until(lambda: len(watcher.records) >= everything, "the reader that looks on sees all", 30)
    assert judge(watcher.records, pipeline.partitions, pipeline.count) == Verdict(0, 0, 0, 0)
    assert pipeline.positions() == dict.fromkeys(range(pipeline.partitions), pipeline.count)
    assert watcher.backwards == []
    assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.source)


def lost_by_lane(pipeline: LanePipeline, records: Any) -> dict[int, int]:
    """How many of each lane's records never came out."""
    seen = {r.value for r in records}
    return {p: sum(f"{p}:{n}".encode() not in seen for n in range(pipeline.count)) for p in range(pipeline.partitions)}


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # librdkafka's threads must not hold up a process that has said what it had to say
