"""One lane's task, or a whole driver, without Spark: a process that lives for a second and can be killed anywhere.

It runs the job's own protocol (ownership.take, delivery.*, lanes.Lanes) against real brokers, or with --partitions
against another store of positions. Only Spark is missing:
this module creates the rows of a range as Arrow batches. Offset n of partition p is "p:n", which is what
pipelines.feed() writes; with --read the rows are read from the source instead. So hundreds of kills take as long as a
few starts of Spark. In the job, Spark writes the rows of at-least-once; here an idempotent producer does, followed by
the job's own advance.

lane_pipeline.py starts it. --unsafe switches one rule off in this process, for the negative controls: without the rule
the output must be damaged.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from integration.support import lane_letters, lane_rules
from waiting import ANSWER

ROWS = 25  # of an Arrow batch


def environment() -> dict[str, str]:
    """The environment of a process that runs a module of the tests: this process' own, with its path for imports."""
    path = (str(Path(__file__).resolve().parents[2]), *filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def rows_of(lane: int, start: int, until: int, source: int = 0) -> Iterator[Any]:
    """Yields the rows of [start, until) as Spark passes them to a task. source: the number of the range."""
    import pyarrow as pa

    from ackwright_stream.positions import UNMERGED

    for first in range(start, until, ROWS):
        values = [f"{lane}:{n}".encode() for n in range(first, min(first + ROWS, until))]
        yield pa.RecordBatch.from_pydict(
            {
                "key": [f"p{lane}".encode()] * len(values),
                "value": values,
                UNMERGED: pa.array([source] * len(values), pa.int32()),
            }
        )


def rows_of_task(task: Any) -> Iterator[Any]:
    """Yields the rows of all ranges of a task."""
    for r, source in zip(task.ranges, task.sources, strict=True):
        yield from rows_of(r.lane.partition, r.start, r.until, source)


def rows_with_lanes(task: Any) -> Iterator[Any]:
    """As rows_of_task(), with the column of a sink that writes a file for each lane."""
    from ackwright_stream.positions import LANE, UNMERGED

    for batch in rows_of_task(task):
        yield batch.rename_columns([LANE if name == UNMERGED else name for name in batch.schema.names])


def columns_of(rows: str) -> Any:
    """The columns of the rows, for a sink that compares them with its table. rows: as the option."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    partition = [StructField("partition", IntegerType())] if rows == "partition" else []
    return StructType([StructField("key", BinaryType()), StructField("value", BinaryType()), *partition])


def without_brokers(topic: str, partitions: int, end: int) -> Any:
    """The cluster of a source that exists in this process only: each partition has the records [0, end)."""
    from ackwright_stream import topic_ids
    from ackwright_stream.cluster import Topology
    from ackwright_stream.positions import Lane

    ids = {topic: "topic-id"}
    topic_ids.reader = lambda job, cluster=None: lambda topics: ids
    lanes = [Lane(topic, p) for p in range(partitions)]
    return SimpleNamespace(topology=lambda: Topology(ids, dict.fromkeys(lanes, 0), dict.fromkeys(lanes, end)))


class Process:
    """The part that runs in the process, with the job's own code."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ackwright_stream.cluster import Cluster
        from ackwright_stream.jobspec import KafkaSink, from_json

        self._options = options
        self._job = from_json(Path(options.jobspec).read_text())
        if options.transaction_timeout_ms:  # a process that was stopped for long needs time left
            short = str(options.transaction_timeout_ms)
            # librdkafka requires socket.timeout.ms <= transaction.timeout.ms
            producer, sink = self._job.producer, self._job.sink_of(KafkaSink)
            limits = {"transaction.timeout.ms": short, "delivery.timeout.ms": short, "socket.timeout.ms": short}
            self._job = replace(
                self._job,
                operation_timeout_ms=max(self._job.operation_timeout_ms, options.transaction_timeout_ms),
                sink=replace(sink, positions=replace(sink.positions, producer={**sink.positions.producer, **limits})),
                producer={**producer, **limits} if "transaction.timeout.ms" in producer else producer,
            )
        topic = self._job.source.topics[0]
        simulated = options.partitions and without_brokers(topic, options.partitions, options.until)
        self._cluster = simulated or Cluster(self._job)
        self._rows: Callable[[Any], Iterator[Any]] = rows_with_lanes if options.rows == "lane" else rows_of_task
        if options.read:
            from integration.support.source_rows import SourceRows

            self._rows = SourceRows(self._job).of_task
        self._letters = lane_letters.Letters(
            self._job, lambda: bytes.fromhex(self.report["membership"]), written=options.letters, unsafe=options.unsafe
        )
        if options.letters:
            self._rows = lane_letters.well_formed(self._rows)
        self.report: dict[str, Any] = {
            "driver": options.driver,
            "outcomes": Counter(),
            "failed": Counter(),
            "error": None,
        }

    def run(self) -> int:
        """Exit code as the job has it."""
        from ackwright_stream.errors import JobError

        try:
            self._task() if self._options.what == "task" else self._drive()
        except JobError as e:
            self.report |= {"error": e.reason.value, "message": e.message, "fingerprint": e.fingerprint}
            self.report["lost_topic_id"] = e.lost_topic and e.lost_topic.id
            return e.exit_code
        return 0

    def _task(self) -> None:
        """Runs one lane's ranges in order. With --again a failed one is retried, as Spark does."""
        from ackwright_stream.delivery.batch import Work
        from ackwright_stream.errors import JobError
        from ackwright_stream.positions import Lane, Range, Task

        options, ids = self._options, self._cluster.topology().topic_ids
        lane = Lane(self._job.source.topics[0], options.lane)
        at = options.start
        while at < options.until:
            range_ = Range(lane, at, min(at + options.step, options.until))
            try:
                work = Work(self._job, options.driver, ids, bytes.fromhex(options.membership))
                self._process(work, Task(options.lane, (range_,), (0,)))
            except JobError as e:
                self.report["failed"][e.reason.value] += 1
                if not options.again:
                    raise
                continue
            at = range_.until

    def _drive(self) -> None:
        """Takes over the pipeline and resumes from its positions.

        With --again it restarts when it fails or is superseded, as a supervisor does.
        """
        from ackwright_stream import ownership
        from ackwright_stream.errors import JobError
        from ackwright_stream.fault_points import fault_point
        from ackwright_stream.sinks import registry

        previous: int | None = None
        fault_point("started")
        sink = registry.for_driver(self._job, self._cluster)
        if self._options.rows:
            from integration.support.staged_drivers import Frame

            frame: Any = Frame(columns_of(self._options.rows))
            sink.prepare(frame)
        while True:
            try:
                owned = ownership.take(self._job, self._cluster, sink, previous)
                self.report["driver"] = previous = owned.driver
                self.report["membership"] = owned.lanes.membership.hex()
                if self._options.rows == "lane":
                    of_files: Any = sink
                    of_files.record_columns(columns_of("lane"))  # of the claims' files, which have no rows
                # Points that are armed later stop tasks, not the takeover of the lanes.
                fault_point("taken")
                self._deliver(owned)
                return
            except JobError as e:
                self.report["failed"][e.reason.value] += 1
                if not self._options.again or e.reason.value not in (
                    "Superseded",
                    "PositionConflict",
                    "BrokersUnreachable",
                    "SinkUnreachable",
                    "BatchFailed",
                    "TransactionTimedOut",
                    "AuthorizationFailed",
                ):
                    raise
                if e.reason.value == "Superseded":
                    previous = None
            time.sleep(random.uniform(0.1, 1.0))  # jitter, so that one of two gets through

    def _deliver(self, owned: Any) -> None:
        from ackwright_stream.delivery.batch import Work
        from ackwright_stream.jobspec import Guarantee
        from ackwright_stream.positions import Range, Task

        at = dict(owned.positions)
        end = self._options.until
        ends = self._cluster.topology().latest if end is None else dict.fromkeys(at, end)
        while lanes := sorted(lane for lane, offset in at.items() if offset < ends.get(lane, 0)):
            ranges = tuple(Range(lane, at[lane], min(at[lane] + self._options.step, ends[lane])) for lane in lanes)
            work = Work(self._job, owned.driver, owned.topic_ids, owned.lanes.membership)
            self._letters.before(ranges)
            if owned.lanes.sink.staging is not None:
                self._stage_and_commit(work, ranges, owned.lanes)
            elif self._job.guarantee is Guarantee.AT_LEAST_ONCE:
                task = Task(0, ranges, tuple(range(len(ranges))))
                self._write_and_advance(work, task, owned.lanes)
            else:
                size = -(-len(ranges) // self._job.slots)
                for slot, first in enumerate(range(0, len(ranges), size)):
                    own = ranges[first : first + size]
                    self._process(work, Task(slot, own, tuple(range(len(own)))))
            self._letters.after(ranges)
            at.update({r.lane: r.until for r in ranges})

    def _process(self, work: Any, task: Any) -> None:
        from ackwright_stream.delivery.at_most_once import claim_and_process
        from ackwright_stream.delivery.batch import with_partitions
        from ackwright_stream.delivery.exactly_once import process_and_advance
        from ackwright_stream.jobspec import Guarantee

        process = claim_and_process if self._job.guarantee is Guarantee.AT_MOST_ONCE else process_and_advance
        rows = with_partitions(self._rows(task), task)
        outcome, _ = process(work, task, rows, self._letters.of_ranges(task.ranges))
        self.report["outcomes"][outcome.value] += 1

    def _stage_and_commit(self, work: Any, ranges: Any, lanes: Any) -> None:
        """One batch of a sink whose driver commits, in the guarantee's own order; a task for each lane."""
        from ackwright_stream import delivery
        from ackwright_stream.delivery import at_least_once, at_most_once, exactly_once
        from ackwright_stream.delivery.batch import Batch, stage, with_partitions
        from ackwright_stream.delivery.dead_letters import Counts
        from ackwright_stream.positions import Task
        from ackwright_stream.sinks.base import StagedRows

        def run_staged(batch: Any) -> tuple[StagedRows, Counts]:
            answers = [
                stage(work, task, with_partitions(self._rows(task), task), self._letters.of_ranges(task.ranges))
                for task in batch.tasks
            ]
            return StagedRows(tuple(staged for *_, staged in answers), sum(n for _, n, _ in answers)), Counts()

        orders: Any = (at_least_once, at_most_once, exactly_once)
        for order in orders:
            order.run_staged = run_staged  # in place of Spark
        nothing: Any = None
        tasks = tuple(Task(slot, (r,), (0,)) for slot, r in enumerate(ranges))
        result = delivery.for_job(self._job).deliver(Batch(nothing, nothing, tasks), lanes)
        self.report["outcomes"]["skipped" if result.skipped else "done"] += 1

    def _write_and_advance(self, work: Any, task: Any, lanes: Any) -> None:
        from ackwright_stream.delivery.at_least_once import write
        from ackwright_stream.delivery.batch import with_partitions
        from ackwright_stream.fault_points import fault_point

        if lanes.sink.spark_writer is None:
            write(work, task, with_partitions(self._rows(task), task), self._letters.of_ranges(task.ranges))
        else:
            self._letters.write(self._letters.of_ranges(task.ranges))  # as delivery/dead_letters.py does before a row
            self._produce(task)
        fault_point("before-advance")
        lanes.advance_all(task.ranges)
        fault_point("after-advance")
        self.report["outcomes"]["done"] += len(task.ranges)

    def _produce(self, task: Any) -> None:
        """Writes the rows, in place of Spark's own Kafka sink."""
        from confluent_kafka import Producer

        from ackwright_stream.connection import settings
        from ackwright_stream.delivery.batch import with_partitions
        from ackwright_stream.errors import JobError
        from ackwright_stream.fault_points import fault_point
        from ackwright_stream.jobspec import KafkaSink, Reason

        sink = self._job.sink_of(KafkaSink)
        safe = {"acks": "all", "enable.idempotence": "true", "retry.backoff.ms": "20"}
        producer, topic = Producer(settings(sink.brokers(self._job.cluster), safe)), sink.topic
        refusals: list[str] = []

        def report(error: Any, _: Any) -> None:
            if error is not None:
                refusals.append(str(error))

        for rows in with_partitions(self._rows(task), task):
            columns = (rows[name].to_pylist() for name in ("key", "value", "partition"))
            for key, value, partition in zip(*columns, strict=True):
                producer.produce(topic, value, key, partition=partition, on_delivery=report)
            fault_point("mid-produce", *task.lanes)
        if producer.flush(ANSWER):
            raise JobError(Reason.BROKERS_UNREACHABLE, "not all records were acknowledged")
        if refusals:
            raise JobError(Reason.BATCH_FAILED, f"not all records were accepted: {refusals[0]}")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=["task", "drive"])
    arguments.add_argument("--jobspec", required=True)
    arguments.add_argument("--driver", type=int, default=1)
    arguments.add_argument("--membership", default="", help="of that driver, as hexadecimal digits")
    arguments.add_argument("--lane", type=int, default=0)
    arguments.add_argument("--start", type=int, default=0)
    arguments.add_argument("--until", type=int, help="of every lane; default, for drive: where each ends at the start")
    arguments.add_argument("--partitions", type=int, help="of a source without brokers, for a sink outside of Kafka")
    arguments.add_argument(
        "--rows",
        choices=["partition", "lane"],
        help="prepare the sink for rows with the column partition, or for rows by lane",
    )
    arguments.add_argument("--read", action="store_true", help="read the rows from the source")
    arguments.add_argument("--step", type=int, default=1 << 30)
    arguments.add_argument("--again", action="store_true")
    arguments.add_argument("--letters", action="store_true", help="one record of ten is malformed (lane_letters.py)")
    arguments.add_argument("--unsafe", choices=[*lane_rules.UNSAFE, *lane_letters.UNSAFE])
    arguments.add_argument("--transaction-timeout-ms", type=int)
    options = arguments.parse_args(argv)
    faulthandler.dump_traceback_later(60)  # a stuck process writes its stacks to its log
    if options.unsafe in lane_rules.UNSAFE:
        from ackwright_stream.jobspec import from_json

        lane_rules.disarm(options.unsafe, from_json(Path(options.jobspec).read_text()))
    process = Process(options)
    code = process.run()
    print(json.dumps(process.report), flush=True)
    return code


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # librdkafka's threads must not delay the end of the process
