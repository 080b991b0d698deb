"""The records of the windowed count, and how its measurements are reported."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bench import state
from bench.context import Context
from bench.figures import Throughput
from bench.runs import EXACTLY_ONCE, SPARK_SINK

CONTEXT = Context("127.0.0.1:1", (), Path("nowhere"), lambda _: None, EXACTLY_ONCE)


def test_ten_million_records_of_a_hundred_thousand_keys() -> None:
    case = state.case_of(CONTEXT)
    assert (case.batch * case.batches, case.keys) == (10_000_000, 100_000)
    assert state.case_of(replace(CONTEXT, batches=1)).batches == state.WARM_UP + 4


def test_a_batch_has_every_key_equally_often_within_one_window() -> None:
    case = state.Case(keys=10, batch=40, batches=2)
    per_batch = case.batch // state.PARTITIONS
    for window in range(2):
        numbers = range(window * per_batch, (window + 1) * per_batch)
        records = [json.loads(case.value(p, n)) for p in range(state.PARTITIONS) for n in numbers]
        assert Counter(record["id"] for record in records) == {str(key): 4 for key in range(10)}
        assert {record["at"][:17] for record in records} == {f"2026-01-01T00:0{window}:"}
        assert max(record["at"] for record in records) > f"2026-01-01T00:0{window}:{state.WATERMARK_S}Z"


def test_kafka_streams_counts_the_same_keys_and_times() -> None:
    case = state.Case(keys=10, batch=40, batches=2)
    for partition, n in ((0, 0), (3, 9), (2, 17)):
        key, value, time_ms = case.record(partition, n)
        parsed = json.loads(value)
        assert (key.decode(), value) == (parsed["id"], case.value(partition, n))
        assert time_ms == datetime.fromisoformat(parsed["at"]).timestamp() * 1000


def test_a_large_key_is_of_one_record() -> None:
    keys = [json.loads(state.large_value(p, n))["id"] for p in range(2) for n in range(3)]
    assert len(set(keys)) == 6
    assert state.large_value(1, 2) == state.large_value(1, 2)


def run(rate: float, jvm: int, python: int) -> state.Run:
    return state.Run(Throughput(rate, 500.0, {"jvm": 9.0, "python": 1.0}), [0.25], {"jvm": jvm, "python": python})


def test_the_rate_is_relative_to_sparks_own_sink_in_each_round() -> None:
    runs = {
        SPARK_SINK: [run(100, 2**30, 0), run(200, 2**30, 0)],
        EXACTLY_ONCE: [run(90, 2**30, 2**28), run(140, 2**31, 2**28)],
    }
    reported = state.figures("count", runs)
    assert (reported[-1].value, reported[-1].meets_target) == (0.8, True)
    memory = {f.name.removeprefix("count: "): f.value for f in reported if "memory" in f.name}
    assert memory == {
        f"{SPARK_SINK}, peak memory, JVM": 1024,
        f"{EXACTLY_ONCE}, peak memory, JVM": 1536,
        f"{EXACTLY_ONCE}, peak memory, driver in Python with its workers": 256,
    }
