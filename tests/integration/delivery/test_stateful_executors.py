"""Stateful pipelines on several executors, of which one is lost when its task has stored its state.

In a chain of two stateful operators the first one is in a map stage: Spark runs its finished task again, in the same
attempt of the stage, because the output was on the executor. So a partition has two states, of which Spark would take
the first. In the last stage a task that runs again lacks its input instead. The executors are processes of Spark's
master local-cluster, and share a directory or only a bucket, as those in a cluster do. See
docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import s3a_classes, spark_settings
from integration.support.local_cluster import executors, spark_home
from integration.support.pipelines import Running
from integration.support.s3_server import SECRET, S3Server
from integration.support.state_buckets import bucket_pipeline
from integration.support.stateful_pipelines import Counted, StatefulPipeline, stateful_pipeline
from waiting import wait_until

EXECUTORS = 2
_MEMORY_MB = 512  # of each

# Each record is in the input of the deduplication once more, with a record that has come 250 records earlier. Behind
# the deduplication, in the same stage, a task stops at a fault point if the task of the source ran in its executor.
TRANSFORM = """
import os
from pathlib import Path

from ackwright_stream.fault_points import VARIABLE, fault_point
from pyspark.sql import functions as F


def counts(source):
    number = F.split(F.col("value").cast("string"), ":")[1].cast("int")
    read = source.select(F.col("key").cast("string"), number.alias("n")).mapInArrow(at_source, "key STRING, n INT")
    twice = read.select("key", F.explode(F.array("n", F.col("n") - 250)).alias("n")).where("n >= 0")
    name = F.concat_ws("/", "key", F.floor(F.col("n") / 100))
    once = twice.select(name.alias("name"), F.concat_ws(":", "key", "n").alias("record")).dropDuplicates(["record"])
    marked = once.select("name", F.rand().alias("mark")).mapInArrow(deduplicated, "name STRING, mark DOUBLE")
    counts = marked.groupBy("name").agg(F.count("*").alias("count"), F.first("mark").alias("mark"))
    return counts.select(F.col("name").alias("key"), F.concat_ws(" ", "count", "mark").alias("value"))


def at_source(batches):
    yield from batches
    fault_point("read")


def deduplicated(batches):
    yield from batches
    hit = Path(os.environ[VARIABLE], "read.hit")
    if hit.exists() and _parent(int(hit.read_text())) == os.getppid():
        fault_point("deduplicated")


def _parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
"""

# Of the driver: the file `stages` has how many tasks of each active stage have finished.
STAGES = """
import json, os, sys, threading, time

{change}

def report():
    from pyspark import SparkContext

    while True:
        context = SparkContext._active_spark_context
        if getattr(context, "_jsc", None) is not None:  # it is complete
            tracker = context.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = [[info.numCompletedTasks, info.numActiveTasks] for info in infos if info]
            with open({file!r} + ".new", "w") as file:
                json.dump(done, file)
            os.replace({file!r} + ".new", {file!r})
        time.sleep(0.05)


if "--jobspec" in sys.orig_argv:
    threading.Thread(target=report, daemon=True).start()
"""

# A driver that takes the first state of a partition, as Spark does.
TAKES_FIRST = """
from ackwright_stream import decisions


def state_of(entries, operators, batch, partitions, before):
    first = {}
    for e in entries:
        first.setdefault((e.operator, e.partition), e.ids)
    return {o: tuple(first[o, p] for p in range(partitions)) for o in operators}


if "--jobspec" in sys.orig_argv:
    decisions.state_of = state_of
"""


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"executors-{uuid.uuid4().hex[:8]}", partitions=1) as created:
        run_on_executors(created, tmp_path)
        count_in_a_chain(created, tmp_path)
        yield created


def count_in_a_chain(pipeline: StatefulPipeline, directory: Path) -> None:
    (directory / "counts_on_executors.py").write_text(TRANSFORM)
    pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    transform = replace(pipeline.spec.transform, sql=None, module="counts_on_executors", function="counts")
    pipeline.spec = replace(pipeline.spec, transform=transform)


def run_on_executors(pipeline: StatefulPipeline, directory: Path) -> None:
    pipeline.environment |= spark_home(directory)
    classes = [spark_settings(directory)["spark.driver.extraClassPath"], *s3a_classes(pipeline.spec.state).values()]
    spark = {
        **pipeline.spec.spark,
        "spark.master": f"local-cluster[{EXECUTORS},1,{_MEMORY_MB}]",
        "spark.executor.memory": f"{_MEMORY_MB}m",
        "spark.executor.extraClassPath": os.pathsep.join(classes),
    }
    pipeline.spec = replace(pipeline.spec, spark=spark)


def lose_executor(pipeline: StatefulPipeline, job: Running, directory: Path) -> None:
    """The executor is killed whose task of the first operator has finished, while the other one's has not."""
    job.arm("read", "note")
    hit = job.arm("deduplicated")
    pipeline.feed()
    stopped = job.arrived(hit)
    stages = directory / "stages"

    def has_finished(tasks: int) -> Any:
        return stages.exists() and [tasks, 1] in json.loads(stages.read_text())

    wait_until(lambda: has_finished(1), "the other task of the stage has finished")
    [lost] = [process for process in executors(directory) if process not in ancestors(stopped)]
    os.kill(lost, signal.SIGKILL)
    wait_until(lambda: has_finished(2), "that task has finished again, in another executor")
    job.release("deduplicated")


def ancestors(process: int) -> list[int]:
    """The ids of the processes that have started this one, and of those that have started them."""
    result = []
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        result.append(process)
    return result


@pytest.mark.parametrize("takes_first", [False, True], ids=["refused", "control"])
def test_a_batch_whose_task_has_stored_two_states_is_not_decided(
    pipeline: StatefulPipeline, tmp_path: Path, takes_first: bool
) -> None:
    """Control: a driver that takes the first of the two decides the batch."""
    deliver_over_a_loss(pipeline, tmp_path, takes_first=takes_first)
    if not takes_first:
        assert pipeline.counted() == Counted()


def test_output_in_files_outlives_the_executors_that_have_stored_it(pipeline: StatefulPipeline, tmp_path: Path) -> None:
    assert pipeline.spec.state is not None
    pipeline.spec = replace(pipeline.spec, state=replace(pipeline.spec.state, batch_bytes=0))
    with pipeline.life() as job:
        pipeline.caught_up(job)
        hit = job.arm("evaluated")
        pipeline.feed()
        job.arrived(hit)
        assert [file for file in (pipeline.state / "output").rglob("*") if file.is_file()]
        for process in executors(tmp_path):
            os.kill(process, signal.SIGKILL)
        job.release("evaluated")
        pipeline.caught_up(job)
        assert job.progress()["restarts"] == 0
        pipeline.drain(job)
    assert pipeline.counted() == Counted()


def test_executors_that_share_a_bucket_and_no_directory(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    name = f"executors-{uuid.uuid4().hex[:8]}"
    with S3Server(tmp_path / "s3") as server, bucket_pipeline(kafka, server, tmp_path, name, partitions=1) as pipeline:
        run_on_executors(pipeline, tmp_path)
        count_in_a_chain(pipeline, tmp_path)
        deliver_over_a_loss(pipeline, tmp_path, takes_first=False)
        assert pipeline.counted() == Counted()
        assert [name for name in pipeline.names() if name.endswith(".changelog")]


def test_a_batch_whose_input_was_on_a_lost_executor_is_evaluated_again(
    kafka: EmbeddedKafka, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The stage is not: it would store its state again. The driver names the cause, and continues by itself."""
    name, elsewhere = f"executors-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("s3")
    with S3Server(elsewhere) as server, bucket_pipeline(kafka, server, tmp_path, name) as pipeline:
        run_on_executors(pipeline, tmp_path)
        with pipeline.life() as job:
            pipeline.caught_up(job)
            hit = job.arm("stored")
            pipeline.feed()
            stopped = job.arrived(hit)
            [lost] = [process for process in executors(tmp_path) if process in ancestors(stopped)]
            assert files_with(SECRET, tmp_path) == [tmp_path / "login" / "password"]
            os.kill(lost, signal.SIGKILL)
            pipeline.caught_up(job)
            assert job.progress()["restarts"] > 0
            assert "an executor is gone whose output the batch needs" in job.job.log.read_text()
            pipeline.drain(job)
        assert pipeline.counted() == Counted()


def files_with(text: str, directory: Path) -> list[Path]:
    """The files below a directory that contain a text; some may disappear meanwhile."""
    done = subprocess.run(["grep", "-rlF", text, directory], capture_output=True, text=True, check=False)
    return [Path(line) for line in done.stdout.splitlines()]


def deliver_over_a_loss(pipeline: StatefulPipeline, tmp_path: Path, *, takes_first: bool) -> None:
    """A run that loses an executor, and then delivers what it is fed."""
    change = TAKES_FIRST if takes_first else ""
    (tmp_path / "sitecustomize.py").write_text(STAGES.format(change=change, file=str(tmp_path / "stages")))
    with pipeline.life() as job:
        pipeline.caught_up(job)
        assert job.progress()["restarts"] == 0
        lose_executor(pipeline, job, tmp_path)
        pipeline.caught_up(job)
        assert (job.progress()["restarts"] > 0) is not takes_first
        refusals = job.job.log.read_text().count("states of partition")
        assert (refusals > 0) is not takes_first
        pipeline.feed()
        pipeline.caught_up(job)
        pipeline.drain(job)
