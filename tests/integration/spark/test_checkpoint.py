"""What Spark's own logs of a batch cost where they are written: processes, which Hadoop starts where its native library is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.planning.guarantees import TERMS
from ackwright_stream import checkpoint
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.spark_internals.session import disable_local_checksums
from integration.support.spark_local import session

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BATCHES = 3
_LOGS = 2  # that are written for each batch: of its offsets before, of its commit after


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    found = session()
    local = found._jvm.org.apache.hadoop.fs.FileSystem.getLocal(found._jsc.hadoopConfiguration())
    before = found.conf.get(_MANAGER, None)
    local.setWriteChecksum(True)
    yield found
    local.setWriteChecksum(True)
    found.conf.set(_MANAGER, before) if before else found.conf.unset(_MANAGER)


@contextmanager
def processes(spark: SparkSession, place: Path) -> Iterator[list[str]]:
    """The commands of the processes that the driver's JVM has started for batch 1's entries, once the context is left."""
    jvm, found = spark._jvm, list[str]()
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart")
    recording.start()
    try:
        yield found
    finally:
        recording.stop()
        file = jvm.java.io.File(str(place.parent / "recording.jfr")).toPath()
        recording.dump(file)
        recording.close()
    commands = [event.getString("command") for event in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(file)]
    entries = [f"{place}/{log}/.{dot}1." for log in ("offsets", "commits") for dot in ("", ".")]
    found += [c for c in commands if any(e in c for e in entries)]


def batches(spark: SparkSession, place: Path, count: int = _BATCHES, options: Mapping[str, str] | None = None) -> None:
    seen: list[int] = []
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.foreachBatch(lambda batch, number: seen.append(number)).options(**(options or {}))
    query = writer.option("checkpointLocation", str(place)).start()
    try:
        while len(seen) < count and query.isActive:
            query.awaitTermination(0.1)
    finally:
        query.stop()
    assert len(seen) >= count, query.exception()


def test_a_stream_without_end_has_no_log_on_its_path(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    with processes(spark, place) as started:
        batches(spark, place, options=checkpoint.RARELY_LOGGED)
    assert started == []
    assert {p.name for log in ("offsets", "commits") for p in (place / log).iterdir() if p.name.isdigit()} <= {"0"}


def test_a_log_that_is_written_now_and_then_disturbs_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    """As after hours: entries far apart, and older ones removed."""
    place = tmp_path / "checkpoint"
    every = {"asyncProgressTrackingCheckpointIntervalMs": "1500"}
    batches(spark, place, 100, {**checkpoint.RARELY_LOGGED, **every})
    logged = [int(p.name) for p in (place / "offsets").iterdir() if p.name.isdigit()]
    assert len(logged) > 1
    assert any(later - entry > 1 for entry, later in zip(sorted(logged), sorted(logged)[1:], strict=False)), (
        "none was left out"
    )


def test_an_entry_of_a_log_costs_one_process(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    settings = {s.name: s.value for s in TERMS[Guarantee.EXACTLY_ONCE].spark}
    spark.conf.set(_MANAGER, settings[_MANAGER])
    disable_local_checksums(spark)
    with processes(spark, place) as started:
        batches(spark, place)
    assert [c.split()[0] for c in started] == ["chmod"] * _LOGS
    assert not list(place.rglob("*.crc"))


def test_with_sparks_own_manager_it_costs_ten(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    with processes(spark, place) as started:
        batches(spark, place)
    assert len(started) > 4 * _LOGS, started
