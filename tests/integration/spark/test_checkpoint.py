"""The cost of Spark's own logs of a batch: processes that Hadoop starts without its native library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.planning.guarantees import TERMS
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.spark_internals.session import disable_local_checksums
from integration.support.spark_local import session
from minimal_job import minimal_job

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BATCHES = 3
_LOGS = 2  # that are written for each batch: of its offsets before, of its commit after


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    spark_ = session()
    local = spark_._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark_._jsc.hadoopConfiguration())
    before = spark_.conf.get(_MANAGER, None)
    local.setWriteChecksum(True)
    yield spark_
    local.setWriteChecksum(True)
    spark_.conf.set(_MANAGER, before) if before else spark_.conf.unset(_MANAGER)


@contextmanager
def processes(spark: SparkSession, place: Path) -> Iterator[list[str]]:
    """The commands of processes that the driver's JVM started for batch 1's entries; filled when the context ends."""
    jvm, started = spark._jvm, list[str]()
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart")
    recording.start()
    try:
        yield started
    finally:
        recording.stop()
        file = jvm.java.io.File(str(place.parent / "recording.jfr")).toPath()
        recording.dump(file)
        recording.close()
    commands = [event.getString("command") for event in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(file)]
    entries = [f"{place}/{log}/.{dot}1." for log in ("offsets", "commits") for dot in ("", ".")]
    started += [c for c in commands if any(e in c for e in entries)]


def batches(spark: SparkSession, place: Path, count: int = _BATCHES, options: Mapping[str, str] | None = None) -> None:
    numbers: list[int] = []
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.foreachBatch(lambda batch, number: numbers.append(number)).options(**(options or {}))
    query = writer.option("checkpointLocation", str(place)).start()
    try:
        while len(numbers) < count and query.isActive:
            query.awaitTermination(0.1)
    finally:
        query.stop()
    assert len(numbers) >= count, query.exception()


def test_an_unbounded_stream_writes_no_log_between_batches(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    with processes(spark, place) as started:
        batches(spark, place, options=minimal_job().stream_options)
    assert started == []
    assert {p.name for log in ("offsets", "commits") for p in (place / log).iterdir() if p.name.isdigit()} <= {"0"}


def test_a_log_written_from_time_to_time_disturbs_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    """As after hours: entries far apart, and older ones removed."""
    place = tmp_path / "checkpoint"
    every = {"asyncProgressTrackingCheckpointIntervalMs": "1500"}
    batches(spark, place, 100, {**minimal_job().stream_options, **every})
    logged = [int(p.name) for p in (place / "offsets").iterdir() if p.name.isdigit()]
    assert len(logged) > 1
    assert any(later - entry > 1 for entry, later in zip(sorted(logged), sorted(logged)[1:], strict=False)), (
        "none was left out"
    )


def test_a_log_entry_starts_one_process(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    settings = {s.name: s.value for s in TERMS[Guarantee.EXACTLY_ONCE].spark}
    spark.conf.set(_MANAGER, settings[_MANAGER])
    disable_local_checksums(spark)
    with processes(spark, place) as started:
        batches(spark, place)
    assert [c.split()[0] for c in started] == ["chmod"] * _LOGS
    assert not list(place.rglob("*.crc"))


def test_control_sparks_default_manager_starts_ten_processes(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    with processes(spark, place) as started:
        batches(spark, place)
    assert len(started) > 4 * _LOGS, started
