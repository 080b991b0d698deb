"""The guarantees with rows and positions in a real Iceberg table: real brokers, real Spark, processes that are killed.

tests/integration/iceberg proves the commits without Spark, with controls. The reader shares no code with the sink.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.iceberg_pipelines import EACH, PARTITIONS, pipeline
from integration.support.produce import produce
from waiting import WAIT

GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")


@pytest.mark.parametrize(
    ("of_tasks", "of_driver"),
    [
        ("staged", ("after-commit",)),
        ("staged", ("before-commit", "after-commit")),
        ("mid-produce", ("after-read", "batch-end")),
    ],
    ids=["after", "commit", "batch"],
)
def test_killed_before_and_after_the_commit_exactly_once(
    kafka: EmbeddedKafka, tmp_path: Path, *, of_tasks: str, of_driver: tuple[str, ...]
) -> None:
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        p.kill_tasks(job, of_tasks)
        p.assert_exactly_once()
        assert p.table.orphans() or of_tasks != "staged", "what a killed task has written is in no snapshot"
        p.kill_driver(job, of_driver[0])
    for point in of_driver[1:]:
        with p.life() as job:
            p.caught_up(job)
            p.kill_driver(job, point)
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    p.assert_exactly_once()


def test_an_overtaken_driver_ends_and_writes_nothing_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """It is suspended between the decision and its commit."""
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.feed()
    with p.overtaken("before-commit") as driver:
        p.feed()
        p.caught_up(driver)
        p.drain(driver)
    p.assert_exactly_once()


@pytest.mark.parametrize(
    ("guarantee", "point", "lost", "duplicated"),
    [
        ("at-least-once", "before-advance", 0, PARTITIONS * EACH),
        ("at-most-once", "claimed", PARTITIONS * EACH, 0),
    ],
)
def test_the_other_guarantees_keep_their_order(
    kafka: EmbeddedKafka, tmp_path: Path, *, guarantee: str, point: str, lost: int, duplicated: int
) -> None:
    """The driver is killed between the two commits; a bounded run completes."""
    p = pipeline(kafka, tmp_path, guarantee, trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill(point)
    verdict = p.verdict()
    assert (verdict.lost, verdict.duplicated, verdict.unexpected) == (lost, duplicated, 0)
    assert p.positions() == [p.fed] * PARTITIONS


def test_partitioned_rows_in_the_types_of_a_wider_table(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """A column named partition has what the transform returns."""
    p = pipeline(
        kafka,
        tmp_path,
        "exactly-once",
        sink={"partitionColumns": ["partition"], "createTable": False},
        transform={
            "sql": "SELECT kafka.partition AS partition, CAST(CAST(value AS STRING) AS SMALLINT) AS n FROM source"
        },
        trigger={"availableNow": True},
    )
    p.table.create(
        Schema(NestedField(1, "partition", IntegerType()), NestedField(2, "n", LongType())),
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition")),
    )
    for partition in range(PARTITIONS):
        for n in range(3):
            produce(kafka.bootstrap_servers, p.source, b"%d" % (10 * partition + n), partition=partition)
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    rows = sorted((row["partition"], row["n"]) for row in p.table.rows())
    assert rows == [(0, 0), (0, 1), (0, 2), (1, 10), (1, 11), (1, 12)]
    assert sorted(file["partition"]["partition"] for file in p.table.files().values()) == [0, 1]
    assert p.table.handle().scan("partition = 1").to_arrow().num_rows == 3


def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    p = pipeline(kafka, tmp_path, "exactly-once", trigger={"availableNow": True})
    p.table.create(Schema(NestedField(1, "key", IntegerType())))
    p.feed()
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.UNAVAILABLE
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "TableUnsuitable"
    for words in ("'key' is binary in the output and int in the table", "no column 'value'"):
        assert words in failure.message
    assert "ackwright" not in str(p.table.properties())


@pytest.mark.parametrize(
    ("guarantee", "value", "why"),
    [
        ("exactly-once", b"no number, either", "a row has null in n, which is NOT NULL"),
        *((guarantee, b"4\xff", "column 's' has text that is not UTF-8") for guarantee in GUARANTEES),
    ],
    ids=["null", *GUARANTEES],
)
def test_the_record_whose_row_is_refused_is_named(
    kafka: EmbeddedKafka, tmp_path: Path, *, guarantee: str, value: bytes, why: str
) -> None:
    """The transform drops records. Its rows do not name the records that they are of."""
    p = pipeline(
        kafka,
        tmp_path,
        guarantee,
        transform={
            "sql": "SELECT TRY_CAST(substring(CAST(value AS STRING), 1, 1) AS INT) AS n, CAST(value AS STRING) AS s "
            "FROM source WHERE kafka.offset % 2 = 0"
        },
        trigger={"availableNow": True},
    )
    p.table.create(Schema(NestedField(1, "n", IntegerType(), required=True), NestedField(2, "s", StringType())))
    for record in (b"0", b"not a number", b"2", b"\xff", value):
        produce(kafka.bootstrap_servers, p.source, record, partition=1)
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "RowRefused"
    assert failure.message.startswith(f"record {p.source}-1@4: {why}")
    assert list(p.table.rows()) == []
    assert p.positions()[1] == (5 if guarantee == "at-most-once" else 0)
