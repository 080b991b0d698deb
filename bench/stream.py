"""Candidates under a steady load, of which one runs at a time while the others are suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ackwright.local.wait import wait_for
from ackwright_stream.jobspec import JobSpec
from bench import workload
from bench.context import Context
from bench.load import Load
from bench.runs import SPARK_SINK, SPARK_SINK_ASYNC, Candidate, Copy, our_job, started

RATE = 2000  # records per second
BATCH = 100_000  # records at most; a batch of a steady load has fewer
_TIMEOUT = 180.0  # seconds
NewJob = Callable[[Copy, Mapping[str, Any]], JobSpec]  # from a copy and a trigger


class Stream:
    """A candidate that copies a topic, with its load. Close the processes by the stack."""

    def __init__(
        self, name: str, copy: Copy, trigger_s: int, load: Load, stack: ExitStack, *, job: NewJob | None
    ) -> None:
        self.name, self.load = name, load
        self._copy, self._trigger_s = copy, trigger_s
        self._query = {"asyncProgressTrackingEnabled": "true"} if name == SPARK_SINK_ASYNC else {}
        is_spark = name in (SPARK_SINK, SPARK_SINK_ASYNC)
        new_job = job or (lambda copy, trigger: our_job(copy, name, trigger))
        self._job = None if is_spark else new_job(copy, {"interval": f"{trigger_s}s"})
        self._process = stack.enter_context(ExitStack())
        self.candidate: Candidate = self._start()

    def _start(self) -> Candidate:
        return self._process.enter_context(started(self._job, self._copy, self._trigger_s, self._query))

    def begin(self) -> None:
        """Returns, with the load flowing, when the first record is delivered."""
        # A backlog from before the start would take many batches.
        wait_for(self.candidate.running, f"{self.name} runs", _TIMEOUT)
        self.load.resume()
        wait_for(
            lambda: self.candidate.running() and bool(self.load.deliveries()),
            f"{self.name} delivers the first record",
            _TIMEOUT,
        )

    def pause(self) -> None:
        """Stops the load and, when all of it is delivered, suspends the candidate."""
        self.load.pause()
        wait_for(
            lambda: self.candidate.running() and self.load.caught_up, f"{self.name} has delivered its input", _TIMEOUT
        )
        self.candidate.suspend()

    def resume(self) -> None:
        """Continues the candidate, and then the load."""
        self.candidate.resume()
        self.load.resume()

    def restart(self) -> None:
        """Kills the candidate with SIGKILL and starts it again at once."""
        self.candidate.kill()
        self._process.close()
        self.candidate = self._start()


@contextmanager
def stream(
    context: Context,
    name: str,
    partitions: int,
    *,
    title: str,
    trigger_s: int,
    rate: int = RATE,
    job: NewJob | None = None,
) -> Iterator[Stream]:
    """A started stream with its own topics, which are deleted at the end.

    title: of its directory. job: of a candidate that is not named after a guarantee.
    """
    directory = context.directory / f"{title}-{partitions}-{trigger_s}s-{name.replace(' ', '-')}"
    with ExitStack() as stack:
        source = workload.create(context.bootstrap, "source", partitions)
        stack.callback(workload.delete, context.bootstrap, source)
        sink = stack.enter_context(workload.sink(context.bootstrap, partitions))
        load = stack.enter_context(Load(context.bootstrap, source, sink, partitions, rate))
        copy = Copy(context.bootstrap, source, sink, BATCH, context.slots, directory)
        yield Stream(name, copy, trigger_s, load, stack, job=job)
