"""What the driver and its executors use, as Spark itself reports it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ackwright_stream.spark_internals.memory import memory_use
from waiting import wait_until


def test_the_use_of_the_driver_is_known_at_once_and_its_peak_after_a_heartbeat(spark: SparkSession) -> None:
    use = memory_use(spark)
    assert 0 < use.heap_bytes <= use.heap_max_bytes
    [driver] = use.executors
    assert driver.name == "driver"

    def reported() -> bool:
        [driver] = memory_use(spark).executors
        return 0 < driver.heap_peak_bytes <= use.heap_max_bytes and driver.off_heap_peak_bytes > 0

    wait_until(reported, "a heartbeat")


def test_failed_tasks_are_counted(spark: SparkSession) -> None:
    before = memory_use(spark).executors[0].failed_tasks
    with pytest.raises(Exception, match="no luck"):
        spark.sql("SELECT raise_error('no luck')").collect()
    wait_until(lambda: memory_use(spark).executors[0].failed_tasks > before, "the failed task")
