"""How many offsets a batch may have: fewer after a transaction time-out, and more again while batches are quick.

Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ackwright_stream.jobspec import JobSpec

QUICK_BATCHES = 5  # before the limit grows
_REDUCTION = 4
_GROWTH = 2
# A batch is quick if twice as many offsets would take at most half of a transaction's time. A slower one spends nearly
# all of its time on its records, so a larger limit would not make the pipeline faster.
_QUICK = 1 / 4
_FULL = 0.9  # of the limit: Spark rounds down for each lane. A smaller batch is not held back by the limit


@dataclass(frozen=True)
class BatchSize:
    """The limit of a pipeline's batches, in offsets."""

    declared: int  # by the user or the guarantee; the limit is never larger
    floor: int  # the limit is never smaller
    limit: int
    quick: int = 0  # full and quick batches since the limit last changed

    @classmethod
    def from_limits(cls, declared: int, smallest: int, limit: int | None = None) -> BatchSize:
        """The size as declared. smallest: Source.smallest_batch. limit: as reduced before; None: not reduced."""
        floor = min(declared, smallest)
        return cls(declared, floor, declared if limit is None else min(declared, max(floor, limit)))

    @property
    def reduced(self) -> bool:
        """Whether the limit is below the declared one."""
        return self.limit < self.declared

    def after_time_out(self, offsets: int) -> BatchSize:
        """The size after a batch of so many offsets whose transaction timed out: a quarter of it, or the floor."""
        return replace(self, limit=max(self.floor, min(self.limit, offsets) // _REDUCTION), quick=0)

    def after_batch(self, offsets: int, seconds: float, transaction_timeout: float) -> BatchSize:
        """The size after a batch that succeeded. transaction_timeout: seconds.

        After QUICK_BATCHES batches that are full and quick, the limit doubles.
        """
        if not self.reduced or offsets < _FULL * self.limit or seconds > _QUICK * transaction_timeout:
            return self
        if self.quick + 1 < QUICK_BATCHES:
            return replace(self, quick=self.quick + 1)
        return replace(self, limit=min(self.declared, self.limit * _GROWTH), quick=0)


def limit_of_batches(job: JobSpec, lanes: int) -> int | None:
    """The user's limit, or one with which a task's rows are written before the sink ends the transaction.

    Without a limit, a backlog would take too long, and each attempt at the same ranges would fail like the last. With
    autoscaling the limit is for the smallest number of executors. The driver adds executors between batches, and a
    batch for those that do not run yet may take longer than the operator waits for progress. Spark reads the limit when
    a query starts, so it does not change with their number. None: no limit, because nothing ends a task that is slow.
    """
    declared, per_transaction = job.source.max_offsets_per_trigger, job.source.offsets_per_transaction
    if declared is not None or per_transaction is None:
        return declared
    autoscaling = job.autoscaling
    processors = autoscaling.min_executors * autoscaling.cores if autoscaling else job.slots
    return max(1, min(lanes, processors)) * per_transaction
