"""All lanes' fetches have a bounded part of the memory of the process that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright_stream.source import fetch_limit
from minimal_job import minimal_job

MIB = 1024 * 1024
LOCAL = {"spark.master": "local[2,4]", "spark.driver.memory": "1g", "spark.executor.memory": "64g"}
CLUSTER = {
    **LOCAL,
    "spark.master": "k8s://https://k",
    "spark.executor.instances": "4",
    "spark.executor.memory": "2048m",
}


def limit(spark: Mapping[str, str], lanes: int, declared: str = str(4 * MIB)) -> int | None:
    job = minimal_job()
    return fetch_limit(replace(job, spark=spark, consumer={"max.partition.fetch.bytes": declared}), lanes)


@pytest.mark.parametrize(
    ("spark", "lanes", "expected"),
    [
        (LOCAL, 4, 4 * MIB),
        (LOCAL, 32, 4 * MIB),
        (LOCAL, 256, MIB // 2),
        ({**LOCAL, "spark.executor.instances": "4"}, 256, MIB // 2),  # local tasks run in the driver
        (CLUSTER, 256, 4 * MIB),
        (CLUSTER, 1024, MIB),
        ({**CLUSTER, "spark.executor.instances": "0"}, 256, MIB // 2),
        (LOCAL, 1_000_000, 16 * 1024),
    ],
)
def test_the_limit_of_a_lane(spark: Mapping[str, str], lanes: int, expected: int) -> None:
    assert limit(spark, lanes) == expected


def test_the_jobs_setting_is_never_exceeded_and_nothing_is_limited_without_one() -> None:
    assert limit(LOCAL, 1, "1000") == 1000
    assert limit({}, 1000, "5000") == 5000
    assert fetch_limit(replace(minimal_job(), spark=LOCAL, consumer={}), 1000) is None


@given(st.integers(1, 8000))
def test_two_fetches_of_every_lane_are_a_quarter_of_the_memory_at_most(lanes: int) -> None:
    bytes_of_a_lane = limit(LOCAL, lanes)
    assert bytes_of_a_lane is not None
    assert 2 * lanes * bytes_of_a_lane <= 256 * MIB
