"""The limit of a batch: as declared, smaller after transaction time-outs, and as declared again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from ackwright.planning.guarantees import OFFSETS_PER_TRANSACTION, RESTART, SMALLEST_BATCH
from ackwright.planning.plan import load, plan
from ackwright.render.jobspec import jobspec
from ackwright_stream import delivery
from ackwright_stream.connection import timed_out, translate
from ackwright_stream.delivery.batch import Delivery
from ackwright_stream.delivery.batch_size import QUICK_BATCHES, BatchSize
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Autoscaling, Guarantee, Reason
from minimal_job import minimal_job
from unit.documents import ROOT

TIMEOUT = 60.0


def of(guarantee: Guarantee, max_offsets: int | None = None, slots: int = 4) -> Delivery:
    return delivery.for_job(minimal_job(guarantee, max_offsets_per_trigger=max_offsets, slots=slots))


@pytest.mark.parametrize(
    ("lanes", "slots", "transactions"),
    [(4, 4, 4), (4, 16, 4), (256, 4, 4), (1, 4, 1), (0, 4, 1), (3, 1, 1)],
)
def test_a_batch_has_what_its_transactions_can_carry(lanes: int, slots: int, transactions: int) -> None:
    assert of(Guarantee.EXACTLY_ONCE, slots=slots).batch_limit(lanes) == transactions * OFFSETS_PER_TRANSACTION


def test_a_backlog_is_read_in_parts_if_something_ends_long_transactions() -> None:
    """Of Kafka's those of exactly-once; PostgreSQL has transactions under each guarantee."""
    assert of(Guarantee.EXACTLY_ONCE).batch_limit(4) == 1_000_000
    assert of(Guarantee.AT_LEAST_ONCE).batch_limit(4) is of(Guarantee.AT_MOST_ONCE).batch_limit(4) is None
    into_postgres, _ = load(ROOT / "examples" / "orders-to-postgres.yaml")
    for guarantee in Guarantee:
        spec = into_postgres.spec.model_copy(update={"guarantee": guarantee})
        declared = into_postgres.model_copy(update={"spec": spec})
        job = jobspec(plan(declared), master="local[4]", secrets="/secrets")
        assert (job.source.offsets_per_transaction, job.source.smallest_batch) == (250_000, SMALLEST_BATCH)
        assert delivery.for_job(replace(job, slots=4)).batch_limit(4) == 1_000_000


@pytest.mark.parametrize(
    ("instances", "cores", "lanes", "transactions"), [(1, 1, 256, 1), (2, 3, 256, 6), (2, 3, 4, 4), (1, 1, 0, 1)]
)
def test_with_autoscaling_a_batch_is_that_of_the_smallest_number_of_executors(
    instances: int, cores: int, lanes: int, transactions: int
) -> None:
    """These alone may have to deliver it before the operator restarts a driver without progress."""
    limits = Autoscaling(instances, 8, cores, drain_target_ms=1, window_ms=1, cool_down_ms=1)
    job = replace(minimal_job(Guarantee.EXACTLY_ONCE, slots=8 * cores), autoscaling=limits)
    assert delivery.for_job(job).batch_limit(lanes) == transactions * OFFSETS_PER_TRANSACTION


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_users_limit_wins(guarantee: Guarantee) -> None:
    assert of(guarantee, 7).batch_limit(4) == 7


# ------------------------------------------------ the limit

declared = st.integers(1, 2**40)
Step = tuple[bool, float, float]  # whether the batch timed out, its part of the limit, its seconds
steps = st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.floats(0, 200)), max_size=60)


def after(size: BatchSize, step: Step) -> BatchSize:
    failed, part, seconds = step
    offsets = int(size.limit * part)
    return size.after_time_out(offsets) if failed else size.after_batch(offsets, seconds, TIMEOUT)


@given(declared, steps)
def test_the_limit_stays_between_the_floor_and_the_declared_one(declared: int, steps: list[Step]) -> None:
    size = BatchSize.from_limits(declared, SMALLEST_BATCH)
    assert size.limit == declared
    for step in steps:
        size = after(size, step)
        assert min(declared, SMALLEST_BATCH) == size.floor <= size.limit <= declared


def test_one_transaction_can_have_the_smallest_batch() -> None:
    """Whatever the number of lanes and slots: all records may be on one lane."""
    size = BatchSize.from_limits(1000 * OFFSETS_PER_TRANSACTION, SMALLEST_BATCH)
    for _ in range(RESTART.max_attempts - 1):
        size = size.after_time_out(size.limit)
    assert size.limit == 100


@given(declared, steps)
def test_quick_and_full_batches_bring_the_declared_limit_back(declared: int, steps: list[Step]) -> None:
    size = BatchSize.from_limits(declared, SMALLEST_BATCH)
    for step in steps:
        size = after(size, step)
    for _ in range(QUICK_BATCHES * 40):  # 40: the doublings from 1 to 2**40
        size = size.after_batch(size.limit, 1.0, TIMEOUT)
    assert size.limit == declared
    assert not size.reduced


@given(declared, steps, st.floats(0, 0.89), st.floats(15.1, 1000))
def test_batches_that_the_limit_does_not_hold_back_leave_it(
    declared: int, steps: list[Step], part: float, seconds: float
) -> None:
    """Small ones say nothing about larger ones, and slow ones have enough to do."""
    size = BatchSize.from_limits(declared, SMALLEST_BATCH)
    for step in steps:
        size = after(size, step)
    assert size.after_batch(int(size.limit * part), 1.0, TIMEOUT) == size
    assert size.after_batch(size.limit, seconds, TIMEOUT) == size


@given(declared, st.integers(0, 2**40), st.integers(1, 2**40))
def test_a_reduced_limit_is_kept_when_the_declared_one_grows(declared: int, more: int, reduced: int) -> None:
    before = BatchSize.from_limits(declared, SMALLEST_BATCH, reduced)
    now = BatchSize.from_limits(declared + more, SMALLEST_BATCH, before.limit)
    assert now.floor <= now.limit <= now.declared
    assert now.limit in (before.limit, now.floor)


def test_a_batch_that_timed_out_is_followed_by_a_quarter_of_it() -> None:
    size = BatchSize.from_limits(1_000_000, SMALLEST_BATCH)
    assert size.after_time_out(80_000).limit == 20_000
    assert size.after_time_out(8).limit == SMALLEST_BATCH
    assert BatchSize.from_limits(7, SMALLEST_BATCH).after_time_out(7).limit == 7


# ------------------------------------------------ what counts as a transaction time-out


def failure(code: int, reason: Reason | None = None) -> JobError:
    cause = KafkaException(KafkaError(code))
    error = translate(cause.args[0], "the transaction of lane t-0") if reason is None else JobError(reason, "refused")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError._FENCED),
        failure(KafkaError.INVALID_PRODUCER_EPOCH),
        failure(KafkaError.PRODUCER_FENCED),
        failure(KafkaError._FATAL, Reason.BATCH_FAILED),
        failure(KafkaError._TIMED_OUT),
        failure(KafkaError._MSG_TIMED_OUT),
        failure(KafkaError._INCONSISTENT),
        failure(KafkaError._QUEUE_FULL, Reason.BATCH_FAILED),
    ],
)
def test_a_fencing_or_the_producers_own_time_out_after_the_transactions_time_is_a_time_out(error: JobError) -> None:
    late = timed_out(error, 60.0, TIMEOUT)
    assert late is not None
    assert late.reason is Reason.TRANSACTION_TIMED_OUT
    assert "the attempt took 60 s, so its transaction may have exceeded transaction.timeout.ms (60000)" in late.message
    assert "has taken over" not in late.message
    assert timed_out(error, 59.9, TIMEOUT) is None


def test_an_early_fencing_means_another_driver() -> None:
    error = failure(KafkaError._FENCED)
    assert error.reason is Reason.POSITION_CONFLICT
    assert "another driver, or a later attempt of the same task, has taken over" in error.message


@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError._TRANSPORT),
        failure(KafkaError.TOPIC_AUTHORIZATION_FAILED),
        failure(KafkaError.MSG_SIZE_TOO_LARGE, Reason.BATCH_FAILED),
        JobError(Reason.BATCH_FAILED, "Division by zero"),
        JobError(Reason.POSITION_CONFLICT, "lane t-0 is at 3"),
    ],
)
def test_no_other_failure_is_a_time_out(error: JobError) -> None:
    assert timed_out(error, 3600.0, TIMEOUT) is None
