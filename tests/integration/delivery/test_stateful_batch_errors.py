"""What Spark is passed of the error with which a batch ends, and what the driver reports.

Spark gets a short text, and the driver's report has the reason. tests/integration/spark/test_batch_ended.py has why.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from confluent_kafka import Producer, TopicPartition

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.connection import positions_consumer
from ackwright_stream.jobspec import ExitCode, Reason
from integration.support.stateful_pipelines import StatefulPipeline, stateful_pipeline
from waiting import ANSWER, WAIT


def set_positions(pipeline: StatefulPipeline, offset: int) -> None:
    """Sets offsets as another program can while a driver is a member: in a transaction without a membership."""
    producer = Producer({"bootstrap.servers": pipeline.servers, "transactional.id": f"{pipeline.source}-other-program"})
    producer.init_transactions(ANSWER)
    producer.begin_transaction()
    positions = [TopicPartition(pipeline.source, p, offset) for p in range(pipeline.partitions)]
    producer.send_offsets_to_transaction(positions, positions_consumer(pipeline.spec).consumer_group_metadata(), ANSWER)
    producer.commit_transaction(ANSWER)


def test_spark_gets_a_short_error_of_a_batch_and_the_driver_reports_the_reason(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Another program sets the positions while the driver evaluates a batch."""
    with (
        stateful_pipeline(kafka, tmp_path, f"errors-{uuid.uuid4().hex[:8]}", limit=2_000) as pipeline,
        pipeline.life() as driver,
    ):
        pipeline.caught_up(driver)
        hit = driver.arm("evaluated")
        pipeline.feed(300)
        driver.arrived(hit)
        set_positions(pipeline, 100)
        driver.release("evaluated")
        assert driver.job.wait(WAIT) == ExitCode.HALTED, driver.job.failure()
        failure, log = driver.job.failure(), driver.job.log.read_text(errors="replace")
    assert failure is not None
    assert failure.reason is Reason.POSITIONS_MOVED
    assert f"{pipeline.source}-0: 100" in failure.message
    assert "accept it with ackwright accept-positions" in failure.message
    spark, _, report = log.rpartition("ackwright: PositionsMoved: ")
    assert failure.message in report
    assert "BatchEnded: the driver has the error" in spark
    assert "PositionsMoved" not in spark
    assert "StackOverflowError" not in log
