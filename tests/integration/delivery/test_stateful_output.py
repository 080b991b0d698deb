"""Stateful pipelines whose output does not fit into the memory that the driver has for it, and is in files until then.

One step of the watermark ends windows whose rows are far more than that memory. In the other tests there is no memory
for output at all. See docs/stateful.md#what-it-costs.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import JobSpec, KafkaSink
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import read
from integration.support.postgres import Database
from integration.support.stateful_pipelines import Counted, StatefulPipeline, stateful_pipeline
from integration.support.stateful_windows import feed_seconds, timed_windows
from waiting import wait_until

WINDOWS = 60
OF_WINDOW = 10  # records, and seconds
MEMORY = 4_000  # bytes for the output of a batch; each window's row is half of it
ROWS = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, rpad(CAST(count(*) AS STRING), 2000, '.') AS value
    FROM source GROUP BY window(at, '10 seconds')
"""
EXPECTED = Counter({(window * OF_WINDOW, OF_WINDOW): 1 for window in range(WINDOWS)})
# A piece has about three rows.
_SMALL_PIECES = f"""
from ackwright_stream import encoded_output

encoded_output.PIECE_BYTES = {MEMORY}
"""


def with_small_memory(pipeline: DriverLives, memory: int) -> None:
    """Gives the driver so many bytes for the output of a batch."""
    (pipeline.directory / "sitecustomize.py").write_text(_SMALL_PIECES)
    pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    assert pipeline.spec.state is not None
    pipeline.spec = replace(pipeline.spec, state=replace(pipeline.spec.state, batch_bytes=memory))


def open_windows(servers: str, directory: Path, job: JobSpec) -> DriverLives:
    """A pipeline whose records are in windows that no watermark has passed yet."""
    assert job.state is not None
    state = replace(job.state, watermark_delay="1000000 milliseconds")
    source = replace(job.source, max_offsets_per_trigger=1_000)
    job = replace(job, state=state, source=source, transform=replace(job.transform, sql=ROWS))
    pipeline = DriverLives(servers, directory, job, partitions=1)
    with_small_memory(pipeline, MEMORY)
    feed_seconds(job, range(WINDOWS * OF_WINDOW))
    pipeline.fed = WINDOWS * OF_WINDOW
    return pipeline


def stored(directory: Path) -> list[Path]:
    """The files of output."""
    return [path for path in (directory / "state" / "output").rglob("*") if path.is_file()]


def killed_amid_output(pipeline: DriverLives, rows: Callable[[], Counter[tuple[int, int]]], at_least: int = 0) -> None:
    """A run that is killed when it has passed the first rows to the sink. at_least: how many are visible by then."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        assert rows() == Counter()
        hit = job.arm("mid-produce")
        feed_seconds(pipeline.spec, [3_599])  # the watermark passes the other windows all at once
        pipeline.fed += 1
        job.arrived(hit)
        assert len(stored(pipeline.directory)) > 10
        wait_until(lambda: rows().total() >= at_least, "rows are in the sink")
        assert rows().total() < WINDOWS
        job.job.kill()


def delivered(pipeline: DriverLives, rows: Callable[[], Counter[tuple[int, int]]]) -> Counter[tuple[int, int]]:
    """What is in the sink after a run until all windows are there, without files that are left."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        wait_until(lambda: rows().keys() >= EXPECTED.keys(), "all windows are output")
        # Spark 4.1.1 ends once behind a batch that was in its log when it started (SPARK-55271).
        assert job.progress()["restarts"] <= 1
        pipeline.drain(job)
    assert stored(pipeline.directory) == []
    return rows()


def in_topic(pipeline: DriverLives) -> Counter[tuple[int, int]]:
    """When each window of the output begins, and its count."""
    records = read(pipeline.servers, str(pipeline.spec.sink_of(KafkaSink).topic))
    return Counter((int(r.key or b""), int((r.value or b"").rstrip(b"."))) for r in records)


def test_windows_that_end_at_once_are_output_once_over_a_kill_amid_the_output(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    pipeline = open_windows(servers, tmp_path, timed_windows(servers, f"at-once-{uuid.uuid4().hex[:8]}", tmp_path))
    killed_amid_output(pipeline, lambda: in_topic(pipeline))
    assert delivered(pipeline, lambda: in_topic(pipeline)) == EXPECTED


def test_windows_that_end_at_once_are_in_a_table_once_over_a_kill_amid_the_output(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE counts (key text, value text)")
    servers, sink = kafka.bootstrap_servers, database.spec("counts", mode="append")
    name = f"at-once-{uuid.uuid4().hex[:8]}"
    job = timed_windows(servers, name, tmp_path, of_sink=sink, secrets=database.secrets)
    pipeline = open_windows(servers, tmp_path, job)

    def rows() -> Counter[tuple[int, int]]:
        return Counter((int(key), int(value.rstrip("."))) for key, value in database.sql("SELECT * FROM counts"))

    killed_amid_output(pipeline, rows)
    assert delivered(pipeline, rows) == EXPECTED


def test_at_least_once_repeats_windows_that_end_at_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, f"at-once-{uuid.uuid4().hex[:8]}"
    job = timed_windows(servers, name, tmp_path, guarantee="at-least-once")
    pipeline = open_windows(servers, tmp_path, job)
    killed_amid_output(pipeline, lambda: in_topic(pipeline), at_least=1)
    rows = delivered(pipeline, lambda: in_topic(pipeline))
    assert rows.keys() == EXPECTED.keys()
    assert rows.total() > WINDOWS


def test_at_most_once_loses_windows_that_end_at_once_and_repeats_none(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, f"at-once-{uuid.uuid4().hex[:8]}"
    job = timed_windows(servers, name, tmp_path, guarantee="at-most-once")
    pipeline = open_windows(servers, tmp_path, job)
    killed_amid_output(pipeline, lambda: in_topic(pipeline))
    with pipeline.life() as driver:
        feed_seconds(pipeline.spec, [3_599])  # the first batch removes what the killed driver has left
        pipeline.fed += 1
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    rows = in_topic(pipeline)
    assert rows.keys() < EXPECTED.keys()
    assert set(rows.values()) <= {1}
    assert stored(pipeline.directory) == []


@contextmanager
def counts_in_files(kafka: EmbeddedKafka, directory: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, directory, f"in-files-{uuid.uuid4().hex[:8]}") as pipeline:
        with_small_memory(pipeline, 0)
        yield pipeline


def test_output_that_is_lost_before_it_is_read_is_not_delivered_from_another_evaluation(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with counts_in_files(kafka, tmp_path) as pipeline:
        with pipeline.life() as job:
            pipeline.caught_up(job)
            hit = job.arm("evaluated")
            pipeline.feed()
            job.arrived(hit)
            lost = stored(tmp_path)
            lost[-1].unlink()
            job.release("evaluated")
            pipeline.caught_up(job)
            assert job.progress()["restarts"] == 1
            assert "is not there any more" in job.job.log.read_text()
            assert not [file for file in lost if file.exists()]
            pipeline.drain(job)
        assert pipeline.counted() == Counted()


def test_a_task_that_runs_again_after_it_has_stored_its_output(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with counts_in_files(kafka, tmp_path) as pipeline:
        with pipeline.life() as job:
            pipeline.caught_up(job)
            pipeline.kill_tasks(job, "stored", "stored")
            pipeline.drain(job)
        assert pipeline.counted() == Counted()
        assert stored(tmp_path) == []


def test_a_driver_that_was_suspended_amid_the_output_does_not_commit_beside_its_successor(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """The successor has removed its files."""
    with counts_in_files(kafka, tmp_path) as pipeline:
        with pipeline.overtaken("mid-produce") as driver:
            pipeline.feed()
            pipeline.caught_up(driver)
            pipeline.drain(driver)
        assert pipeline.counted() == Counted()
        assert stored(tmp_path) == []
