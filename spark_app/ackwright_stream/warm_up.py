"""Runs the pipeline's plan once and throws the output away: a standby's first batch then takes no longer than others.

What makes a first batch slow is class loading, generated code, the start of Python workers and new connections. Nothing
is written and no position moves. The transform runs on the last record of each partition.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import checkpoint, delivery, source
from ackwright_stream.cluster import Cluster
from ackwright_stream.delivery.batch import Batch, Work, drain, in_tasks, run
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Task
from ackwright_stream.query import sink_columns
from ackwright_stream.ranges import tasks
from ackwright_stream.sinks.base import Rows, Sink
from ackwright_stream.spark_internals.execution import running_execution

# The standby follows no driver meanwhile. A first batch takes up to 38 s on a busy machine (docs/performance.md); one
# that takes longer hangs, in the transform or for want of executors.
_LIMIT_S = 60
log = logging.getLogger(__name__)


def warm_up(spark: SparkSession, job: JobSpec, cluster: Cluster, sink: Sink, *, headers: bool) -> None:
    """Runs the plan on at most a few records of each lane, for a limited time.

    Failures are logged: the query would report them, too.
    """
    if job.state is not None:  # it would run on state that is thrown away, and load none of the decided state
        return
    started = time.monotonic()
    try:
        topology = cluster.topology()
        starting: dict[str, dict[str, int]] = {}
        for lane, end in topology.latest.items():
            starting.setdefault(lane.topic, {})[str(lane.partition)] = max(topology.earliest[lane], end - 1)
        raw = source.read_stream(spark, job, json.dumps(starting), headers=headers)
        lanes = Lanes(job, sink, b"", 0, topology.topic_ids)
        output = in_tasks(sink.worker_columns(sink_columns(spark, raw, job, sink)), lanes, discard)
        with checkpoint.throwaway(checkpoint.parent(job.checkpoint)) as place:
            writer = output.writeStream.foreachBatch(lambda rows, _: _run(spark, rows)).option(
                "checkpointLocation", place
            )
            query = writer.trigger(availableNow=True).start()
            try:
                if not query.awaitTermination(_LIMIT_S):
                    raise TimeoutError(f"it did not end within {_LIMIT_S} s")
            finally:
                query.stop()
        sink.peek(topology.lanes)
    except Exception as e:
        log.warning("the standby could not be warmed up, so its first batch takes longer: %s", cause(e).message)
    log.info("warmed up in %.1f s", time.monotonic() - started)


def start_workers(spark: SparkSession, slots: int) -> None:
    """Starts Spark's Python workers, which the first batch then need not wait for. Returns at once.

    They start while the driver takes the pipeline and Spark plans the query. Failures are logged: the first batch would
    report them, too.
    """

    def unchanged(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows

    def run_tasks() -> None:
        started = time.monotonic()
        try:
            spark.range(0, slots, 1, slots).mapInArrow(unchanged, "id long").collect()
        except Exception as e:
            log.warning("Python workers could not be started early: %s", cause(e).message)
        log.info("started Python workers in %.1f s", time.monotonic() - started)

    threading.Thread(target=run_tasks, name="start workers", daemon=True).start()


def _run(spark: SparkSession, rows: DataFrame) -> None:
    execution = running_execution(rows, spark.streams.active[0])  # start() may not have returned yet
    batch_tasks = tasks(execution)
    if batch_tasks:
        run(Batch(rows, execution, batch_tasks))


def discard(work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows = ()) -> tuple[Outcome, int]:
    """One task, whose rows go nowhere."""
    work.lanes(transactional=delivery.for_job(work.job).transactional)
    drain(rows)
    return Outcome.DONE, 0
