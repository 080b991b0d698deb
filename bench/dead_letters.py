"""Measures dead letters: a pipeline copies records of which 1 % are malformed, and records of which none is.

The target is for the dead letters themselves: the pipeline is the same, with source.onMalformed: deadLetter, and the
records differ. The ratio to a copy with onMalformed: fail is the cost of the setting and of the dead letters together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import workload
from bench.context import Context
from bench.figures import Figure, Throughput
from bench.formats import DDL, SQL, reading
from bench.processes import UsageMeter
from bench.runs import Copy, our_job, run_job
from bench.throughput import Case, after_warm_up, cases, durations, figures, take_turns, with_long_warm_up

MALFORMED = "1 % malformed"
WELL_FORMED = "none malformed, onMalformed: deadLetter"
WITHOUT = "none malformed, onMalformed: fail"
TARGET = 0.95  # the rate of MALFORMED relative to WELL_FORMED; none relative to WITHOUT
_NAMES = {MALFORMED: "malformed", WELL_FORMED: "well-formed", WITHOUT: "without"}  # of directories
EVERY = 100  # one record of so many is malformed
PARTITIONS = 4


def measure(context: Context) -> list[Figure]:
    """One case: how long a record is changes little."""
    case = with_long_warm_up(cases(replace(context, partitions=context.partitions or (PARTITIONS,)))[0], context)
    sources = {name: workload.create(context.bootstrap, "source", case.partitions) for name in (MALFORMED, WELL_FORMED)}
    try:
        for name, source in sources.items():
            workload.fill_with(
                context.bootstrap,
                source,
                case.partitions,
                case.batch * case.batches,
                malformed_value if name == MALFORMED else value,
            )
        copies = _Copies(context, case, sources)
        names = (WELL_FORMED, WITHOUT, MALFORMED)
        runs, seconds = take_turns(context, names, copies.run, f"{case.partitions} partitions")
    finally:
        workload.delete(context.bootstrap, *sources.values())
    title = f"{case.partitions} partitions, {context.guarantee}, local[{context.slots}]"
    return figures(title, MALFORMED, runs, seconds[MALFORMED], {MALFORMED: TARGET})


def value(partition: int, n: int) -> bytes:
    """A well-formed record."""
    return json.dumps(reading(partition, n)).encode()


def malformed_value(partition: int, n: int) -> bytes:
    """A record, of which one in a hundred is malformed and as long as if it were not.

    Every other one of these ends as no object does, and is not parsed.
    """
    well_formed = value(partition, n)
    if n % EVERY:
        return well_formed
    return well_formed.replace(b":", b";", 1) if n // EVERY % 2 else well_formed[:-1] + b"]"


@dataclass(frozen=True)
class _Copies:
    """Copies from one of the topics, each into new ones."""

    context: Context
    case: Case
    sources: Mapping[str, str]  # topic by candidate

    def run(self, name: str, number: int) -> tuple[Throughput, list[float]]:
        """One copy, and the seconds of its batches after the warm-up."""
        context, case = self.context, self.case
        records = case.batch * case.batches
        malformed = records // EVERY if name == MALFORMED else 0
        directory = context.directory / f"deadletters-{number}-{_NAMES[name]}"
        source = self.sources.get(name, self.sources[WELL_FORMED])
        with (
            workload.sink(context.bootstrap, case.partitions) as sink,
            workload.sink(context.bootstrap, case.partitions) as letters,
            UsageMeter() as meter,
        ):
            copy = Copy(context.bootstrap, source, sink, case.batch, context.slots, directory)
            spec = _spec(copy, None if name == WITHOUT else letters)
            seconds = run_job(our_job(copy, context.guarantee, {"availableNow": True}, spec=spec), directory)
            written = ((sink, records - malformed), (letters, malformed))
            times = np.sort(
                np.concatenate([workload.append_times(context.bootstrap, topic, count) for topic, count in written])
            )
        return after_warm_up(case, times, meter), durations(seconds, case.warm_up)


def _spec(copy: Copy, letters: str | None) -> Mapping[str, Any]:
    """letters: the dead-letter topic; None: a malformed record would halt the pipeline."""
    read = {"topics": [copy.source], "format": "json", "maxOffsetsPerTrigger": copy.batch, "schema": DDL}
    sink: dict[str, Any] = {"topic": copy.sink, "format": "json"}
    if letters:
        read["onMalformed"] = "deadLetter"
        sink["deadLetter"] = {"topic": letters}
    return {"source": read, "transform": {"sql": SQL}, "sink": {"kafka": sink}}
