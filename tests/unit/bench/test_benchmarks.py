"""Which cases the benchmarks measure, and how they judge what they have measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench import __main__ as command
from bench import acks, dead_letters, latency, memory, resume, start
from bench.context import Context, in_turn
from bench.figures import Figure, Throughput
from bench.latency import Window
from bench.registry import BENCHMARKS, BY_NAME, Benchmark, listing
from bench.runs import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SPARK_SINK, SPARK_SINK_ASYNC, Copy, last_error
from bench.throughput import cases, figures

from ackwright_stream.reports import StartPart

CONTEXT = Context("127.0.0.1:1", (), Path("nowhere"), lambda _: None, EXACTLY_ONCE)


def judged(figures: list[Figure]) -> dict[str, bool]:
    """The figures that have a target, and whether they meet it."""
    return {f.name: f.meets_target for f in figures if f.meets_target is not None}


def test_candidates_take_turns_in_reversed_order() -> None:
    assert [in_turn(("a", "b"), n) for n in range(3)] == [("a", "b"), ("b", "a"), ("a", "b")]


def test_throughput_is_measured_for_each_size_and_number_of_partitions() -> None:
    full = cases(CONTEXT)
    assert {(c.size, c.partitions) for c in full} == {(s, p) for s in (100, 1000) for p in (4, 32, 256)}
    assert [(c.size, c.partitions) for c in cases(replace(CONTEXT, quick=True))] == [(100, 4)]
    assert {c.partitions for c in cases(replace(CONTEXT, quick=True, partitions=(7,)))} == {7}


def test_every_partition_has_the_same_number_of_records_in_a_batch() -> None:
    assert {c.partitions: c.batch for c in cases(CONTEXT)} == {4: 100_000, 32: 100_000, 256: 99_840}


def test_throughput_always_measures_two_batches_after_the_warm_up() -> None:
    assert {c.batches for c in cases(replace(CONTEXT, batches=1))} == {5}


def runs(*rates: float) -> list[Throughput]:
    return [Throughput(rate, 1000.0, {"jvm": 20.0}) for rate in rates]


@pytest.mark.parametrize(
    ("guarantee", "verdicts"), [(EXACTLY_ONCE, [False]), (AT_LEAST_ONCE, [True]), (AT_MOST_ONCE, [])]
)
def test_throughput_has_a_target_for_each_guarantee(guarantee: str, verdicts: list[bool]) -> None:
    reported = figures("copy", guarantee, {SPARK_SINK: runs(100, 200), guarantee: runs(120, 240)}, [0.5])
    assert reported[-1].value == 1.2
    assert list(judged(reported).values()) == verdicts
    assert "500 ms in foreachBatch" in reported[1].note
    assert "foreachBatch" not in reported[0].note


def test_a_guarantee_is_compared_with_each_baseline_and_judged_by_the_first() -> None:
    measured = {"a": runs(100), "b": runs(200), EXACTLY_ONCE: runs(300)}
    reported = figures("copy", EXACTLY_ONCE, measured, [], {EXACTLY_ONCE: 1.5})
    assert {f.name: (f.value, f.meets_target) for f in reported if "÷" in f.name} == {
        f"copy: {EXACTLY_ONCE} ÷ a": (3.0, True),
        f"copy: {EXACTLY_ONCE} ÷ b": (1.5, None),
    }


def windows(p50: float, p99: float, cpu: float) -> list[Window]:
    return [Window(p50 * drift, p99 * drift, 1000, cpu, 0.1) for drift in (1.0, 3.0)]


def test_latency_and_cpu_are_relative_to_sparks_own_sink_in_each_window() -> None:
    measured = {SPARK_SINK: windows(600, 1000, 0.3), EXACTLY_ONCE: windows(630, 1300, 0.5)}
    reported = latency.summary("4", EXACTLY_ONCE, measured, (1.1, 1.2), 1.1, with_brokers=True)
    ratios = {f.name: (f.value, f.meets_target) for f in reported if f.target is not None}
    assert ratios == {
        f"4: p50, {EXACTLY_ONCE} ÷ {SPARK_SINK}": (1.05, True),
        f"4: p99, {EXACTLY_ONCE} ÷ {SPARK_SINK}": (1.3, False),
        f"4: CPU per second, {EXACTLY_ONCE} ÷ {SPARK_SINK}": (1.5, False),  # 0.6 to 0.4, with the brokers' 0.1
    }


def test_another_baseline_is_compared_without_a_target() -> None:
    measured = {name: windows(600, 1000, 0.3) for name in (SPARK_SINK, SPARK_SINK_ASYNC, EXACTLY_ONCE)}
    reported = latency.summary("4", EXACTLY_ONCE, measured, (1.1, 1.2), 1.1, with_brokers=True)
    compared = {f.name: f.target for f in reported if "÷" in f.name and "p99" in f.name}
    assert compared == {
        f"4: p99, {EXACTLY_ONCE} ÷ {SPARK_SINK}": 1.2,
        f"4: p99, {EXACTLY_ONCE} ÷ {SPARK_SINK_ASYNC}": None,
    }


def test_the_pauses_after_kills_are_reported_with_their_p99() -> None:
    pauses = {SPARK_SINK: [resume.Pause(4.0, 5.0)] * 2, EXACTLY_ONCE: [resume.Pause(6.0, 7.0), resume.Pause(9.0, 10.0)]}
    values = {f.name.split(": ")[1]: f.value for f in resume.summary(4, EXACTLY_ONCE, pauses)}
    assert values[f"{EXACTLY_ONCE}, median"] == 8.5
    assert values[f"{EXACTLY_ONCE}, p99"] == 10.0
    assert values[f"{EXACTLY_ONCE} ÷ {SPARK_SINK}"] == 1.7


def test_the_start_of_many_partitions_is_compared_with_that_of_few() -> None:
    lines = [
        {"partitions": count, "candidate": name, "start": kind, "seconds": seconds}
        for name in (SPARK_SINK, EXACTLY_ONCE)
        for kind in ("first", "restart")
        for count, seconds in ((4, 1.0), (256, 2.0 if (name, kind) == (EXACTLY_ONCE, "first") else 1.2))
    ]
    assert list(judged(start.query_summary(lines, (4, 256), EXACTLY_ONCE)).values()) == [False, True]


def test_the_launch_is_compared_with_a_bare_session_of_the_same_java_options() -> None:
    seconds = {start.BARE: [4.0, 5.0], EXACTLY_ONCE: [8.0, 10.0], start.BARE_DEFAULT: [8.0, 8.0]}
    parts = [{StartPart.JVM: 2.0, StartPart.SPARK: 5.0}, {StartPart.JVM: 3.0, StartPart.SPARK: 5.0}]
    reported = start.launch_summary(seconds, parts, EXACTLY_ONCE, 4)
    title = "launch of a job to its first committed batch"
    assert judged(reported) == {f"{title}: {EXACTLY_ONCE} ÷ {start.BARE}": False}
    values = {figure.name: figure.value for figure in reported}
    assert (values[f"{title}: jvm"], values[f"{title}: spark"]) == (2.5, 5.0)


def samples(size: Callable[[int], int]) -> list[memory.Sample]:
    """One worker of a constant size, and one of `size` MiB after n batches."""
    return [(n, {1: 64 << 20, 2: size(n) << 20}) for n in range(0, 101, 5)]


def test_a_worker_that_grows_in_the_second_half_misses_the_target_beside_one_that_does_not() -> None:
    assert list(judged(memory.summary(samples(lambda n: 64), 100, 4)).values()) == [True]
    assert list(judged(memory.summary(samples(lambda n: 64 + n), 100, 4)).values()) == [False]
    assert list(judged(memory.summary(samples(lambda n: min(64 + n, 110)), 100, 4)).values()) == [True]


def test_workers_that_are_replaced_are_not_measured() -> None:
    replaced = [(n, {n: 1 << 20}) for n in range(100)]
    with pytest.raises(RuntimeError, match="no Python worker"):
        memory.growths(replaced, 100)


def test_acknowledgements_are_measured_under_each_guarantee_that_allows_them() -> None:
    assert list(acks.VARIANTS) == [
        "at-most-once, acks=0",
        "at-most-once, acks=1",
        "at-least-once, acks=1",
        "at-least-once, acks=all",
        "exactly-once, acks=all",
    ]
    copy = Copy("127.0.0.1:1", "source", "sink", 10, 1, Path("nowhere"))
    for variant in acks.VARIANTS.values():
        job = variant.job(copy, {"availableNow": True})
        assert f"'acks': '{variant.acks}'" in str(job)
        assert job.guarantee == variant.guarantee


def test_acknowledgements_are_compared_in_each_round() -> None:
    rounds = {
        f"acks={a}": [acks.Sent(rate, 0.5, 1), acks.Sent(3 * rate, 1.5, 3)] for a, rate in (("0", 200), ("all", 100))
    }
    values = {f.name: f.value for f in acks.producer_figures(rounds)}
    assert values["producer: records/s, acks=0"] == 400
    assert values["producer: records/s, acks=0 ÷ acks=all"] == 2
    assert values["producer: acknowledged, p99, acks=all"] == 2
    measured = {name: (runs(90) if name.startswith("exactly") else runs(180)) for name in acks.VARIANTS}
    latencies = {name: windows(600, 1000, 0.3) for name in acks.VARIANTS}
    reported = [*acks.copy_figures(measured), *acks.latency_figures(latencies)]
    ratios = {f.name: f.value for f in reported if "÷" in f.name}
    assert len(ratios) == 3 * 4
    assert ratios["pipeline: records/s, at-most-once, acks=0 ÷ exactly-once, acks=all"] == 2
    assert ratios["pipeline: latency, p50, at-least-once, acks=1 ÷ exactly-once, acks=all"] == 1


def test_every_benchmark_is_listed_with_its_targets() -> None:
    for benchmark in BENCHMARKS:
        assert benchmark.targets
        assert benchmark.what in listing()
    assert "32 partitions: p50 ≤ 0.7, p99 ≤ 0.7" in listing()


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    options = command.arguments(
        ["latency", "memory", "--quick", "--partitions", "4", "--partitions", "32", "-o", "json"]
    )
    assert options.benchmarks == [BY_NAME["latency"], BY_NAME["memory"]]
    assert (options.partitions, options.output, options.guarantee) == ([4, 32], "json", EXACTLY_ONCE)
    for wrong in (["speed"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            command.arguments(wrong)
    assert "speed is no benchmark; choose from throughput, postgres" in capsys.readouterr().err


def test_a_benchmark_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Context) -> Iterator[Figure]:
        yield before
        raise RuntimeError("no batch was delivered")

    before, figure = Figure("rate of the first case", 2.0, "records/s"), Figure("rate", 1.0, "records/s")
    monkeypatch.setattr("bench.transaction.warm_up", lambda *_: None)
    benchmarks = [Benchmark("first", "", (), fail), Benchmark("second", "", (), lambda _: [figure])]
    assert command.measure(CONTEXT, benchmarks) == (
        [before, figure],
        {"first": "RuntimeError: no batch was delivered"},
    )


def test_the_last_error_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("WARN slow\njava.lang.OutOfMemoryError: Java heap space\n\tat org.Error.of(X)\nstopping\n\n")
    assert last_error(log) == "java.lang.OutOfMemoryError: Java heap space"
    log.write_text("stopping\n")
    assert last_error(log) == "stopping"


def test_one_record_of_a_hundred_is_malformed_and_as_long_as_the_others() -> None:
    malformed = []
    for n in range(200):
        value, well_formed = dead_letters.malformed_value(1, n), dead_letters.value(1, n)
        assert len(value) == len(well_formed)
        assert json.loads(well_formed)["id"] == n
        try:
            json.loads(value)
        except ValueError:
            malformed.append(n)
    assert malformed == [0, 100]
