"""Whether a series of samples is flat."""

from __future__ import annotations

import os
from collections.abc import Callable

from chaos.soak import EVERY_S, FEWEST, WARM_UP_S, Sample, judge, judge_transactions, sample, unjudged


def samples(memory: Callable[[int], int], count: int = 400, role: str = "driver", pid: int = 7) -> list[Sample]:
    return [Sample(n * EVERY_S, role, pid, memory(n), 10, 50) for n in range(count)]


def not_flat(measured: list[Sample]) -> set[str]:
    return {series.measurement for series in judge(measured) if not series.flat}


def test_a_constant_series_with_peaks_is_flat() -> None:
    assert not_flat(samples(lambda n: 200 + (300 if n % 10 == 0 else 0))) == set()


def test_a_series_that_grows_all_the_time_is_not_flat() -> None:
    assert not_flat(samples(lambda n: 200 + n // 2)) == {"memory"}


def test_the_start_of_a_process_does_not_count() -> None:
    warm = int(WARM_UP_S / EVERY_S)
    assert not_flat(samples(lambda n: 10 if n < warm else 300)) == set()


def test_generations_are_judged_separately() -> None:
    """A killed process starts small again; both grow."""
    both = samples(lambda n: 200 + n // 2, pid=1) + samples(lambda n: 200 + n // 2, pid=2)
    assert [s.flat for s in judge(both) if s.measurement == "memory"] == [False, False]


def test_a_short_generation_is_not_judged() -> None:
    assert judge(samples(lambda n: n * 1000, count=int(WARM_UP_S / EVERY_S) + FEWEST - 1)) == []


def test_a_jvm_may_fill_its_heap() -> None:
    assert not_flat(samples(lambda n: 300 + n, role="broker 1")) == set()
    assert not_flat(samples(lambda n: 300 + 2 * n, role="broker 1")) == {"memory"}


def test_a_soak_without_a_series_that_it_needs_is_no_proof() -> None:
    """All samples of open transactions fail, or the job's JVM is never seen."""
    sampled = [samples(lambda n: 300, role=role) for role in ("driver", "JVM", "worker daemon", "broker 1")]
    series = [s for one in sampled for s in judge(one)]
    assert unjudged([*series, *judge_transactions([1] * 100)]) == []
    assert [text.split(" was not ")[0] for text in unjudged(series)] == ["brokers"]
    without_jvm = [s for s in series if not s.name.startswith("JVM")]
    assert [text.split(" was not ")[0] for text in unjudged(without_jvm)] == ["JVM", "brokers"]


def test_open_transactions_vary_but_do_not_grow() -> None:
    assert [s.flat for s in judge_transactions([n % 6 for n in range(100)])] == [True]
    assert [s.flat for s in judge_transactions(list(range(100)))] == [False]


def test_a_sample_of_this_process_has_what_the_kernel_shows() -> None:
    own = sample(1.0, "test", os.getpid())
    assert own.memory > 10
    assert own.threads >= 1
    assert own.handles >= 3


def test_the_pools_of_a_jvm_may_grow_and_shrink_but_a_leak_of_each_kill_is_not_flat() -> None:
    def of_threads(threads: Callable[[int], int]) -> list[Sample]:
        return [Sample(n * EVERY_S, "JVM", 7, 600, threads(n), 400) for n in range(400)]

    assert not_flat(of_threads(lambda n: 80 + (150 if n > 200 else 60) * (n % 9) // 8)) == set()
    assert not_flat(of_threads(lambda n: 80 + n // 2 + 60 * (n % 9) // 8)) == {"threads"}
