"""The guarantees with real Parquet files: real brokers, real Spark, processes that are killed.

tests/integration/files proves the protocol without Spark, with its controls. The reader shares no code with the sink.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.files_pipelines import EACH, PARTITIONS, pipeline
from integration.support.files_stores import Files
from integration.support.pipelines import create_topics
from integration.support.produce import produce
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from waiting import WAIT


def test_killed_before_and_after_the_file_is_created_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """One task has both partitions: after a kill between its two files the driver restarts from the positions."""
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.spec = replace(p.spec, slots=1)
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        for point in ("after-read", "mid-produce", "before-commit", "file-created", "after-commit"):
            hit = job.arm(point, "kill")
            p.feed()
            job.arrived(hit)
            p.caught_up(job)
        p.assert_exactly_once()
        hit = job.arm("batch-end", "kill")  # the driver
        p.feed()
        job.arrived(hit)
        job.job.wait(WAIT)
    with p.life() as job:
        p.caught_up(job)
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    p.assert_exactly_once()


def test_an_overtaken_driver_ends_and_its_file_meets_that_of_its_successor_exactly_once(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Its task is suspended when it has compared the generation, and is about to create its file."""
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.feed()
    with p.life() as zombie:
        p.caught_up(zombie)
        hit = zombie.arm("before-commit", lane=f"{p.source}-0")
        p.feed()
        zombie.arrived(hit)
        zombie.suspend()
        with p.life() as driver:
            p.caught_up(driver)
            zombie.release("before-commit", lane=f"{p.source}-0")
            zombie.resume()
            assert zombie.job.wait(WAIT) == ExitCode.SUPERSEDED, zombie.job.failure()
            p.feed()
            p.caught_up(driver)
            driver.job.drain()
            assert driver.job.wait(WAIT) == ExitCode.OK, driver.job.failure()
    p.assert_exactly_once()


@pytest.mark.parametrize(
    ("guarantee", "point", "lost", "duplicated"),
    [
        ("at-least-once", "before-advance", {0}, PARTITIONS * EACH),
        # Spark cancels the other task, which may have claimed its range as well.
        ("at-most-once", "claimed", {EACH, PARTITIONS * EACH}, 0),
    ],
)
def test_the_other_guarantees_keep_their_order(
    kafka: EmbeddedKafka, tmp_path: Path, *, guarantee: str, point: str, lost: set[int], duplicated: int
) -> None:
    """One process is killed between the two steps; a bounded run completes."""
    p = pipeline(kafka, tmp_path, guarantee, trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill(point)
    verdict = p.verdict()
    assert verdict.lost in lost
    assert (verdict.duplicated, verdict.unexpected) == (duplicated, 0)
    assert {end for chain in p.chains() for _, end in chain} == ({p.fed} if guarantee == "at-most-once" else set())
    assert {entry["position"]["offset"] for entry in p.files.state()["lanes"]} == {p.fed}


def test_two_topics_whose_partitions_share_a_task_in_a_bucket(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Each row is in the file of its lane, also if the partitions of two topics have equal numbers."""
    with S3Server(tmp_path / "s3") as server:
        login = tmp_path / "lake-login"
        login.mkdir()
        (login / "username").write_text(KEY)
        (login / "password").write_text(SECRET)
        s3 = {"endpoint": server.endpoint, "region": "us-east-1", "credentialsSecret": {"name": "lake-login"}}
        p = pipeline(
            kafka,
            tmp_path,
            "exactly-once",
            sink={"files": {"path": f"s3://{BUCKET}/orders", "s3": s3}},
            transform={
                "sql": "SELECT kafka.topic, kafka.partition AS p, kafka.offset AS n FROM source WHERE value <> X'00'"
            },
            trigger={"availableNow": True},
        )
        other = f"{p.source}-other"
        create_topics(kafka.bootstrap_servers, other, partitions=PARTITIONS)
        p.spec = replace(p.spec, slots=1, source=replace(p.spec.source, topics=(p.source, other)))
        for topic in (p.source, other):
            for partition in range(PARTITIONS):
                for value in (b"1", b"\0", b"2"):
                    produce(kafka.bootstrap_servers, topic, value, partition=partition)
        produce(kafka.bootstrap_servers, other, b"\0", partition=0)
        for _ in range(2):
            with p.life() as job:
                assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
        files = Files(f"{BUCKET}/orders", server.files())
        contents = {}
        for name in files.names():
            footer = files.footer(name)
            rows = files.rows_of(name)
            contents[footer["topic"], int(footer["partition"])] = (int(footer["until"]), [row["n"] for row in rows])
            assert {(row["topic"], row["p"]) for row in rows} <= {(footer["topic"], int(footer["partition"]))}
        assert contents == {
            (p.source, 0): (3, [0, 2]),
            (p.source, 1): (3, [0, 2]),
            (other, 0): (4, [0, 2]),
            (other, 1): (3, [0, 2]),
        }


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_the_record_whose_row_is_refused_is_named(kafka: EmbeddedKafka, tmp_path: Path, guarantee: str) -> None:
    """The transform drops records. Its rows do not name the records that they are of."""
    p = pipeline(
        kafka,
        tmp_path,
        guarantee,
        transform={"sql": "SELECT CAST(value AS STRING) AS text FROM source WHERE kafka.offset % 2 = 0"},
        trigger={"availableNow": True},
    )
    for value in (b"0", b"\xff", b"2", b"3", b"\xfe"):
        produce(kafka.bootstrap_servers, p.source, value, partition=1)
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "RowRefused"
    assert failure.message.startswith(f"record {p.source}-1@4: column 'text' has text that is not UTF-8")
    assert p.files.rows() == []
    assert p.chains() == [[], [(0, 5)] if guarantee == "at-most-once" else []]
