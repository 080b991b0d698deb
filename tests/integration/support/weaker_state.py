"""Stateful pipelines that are at-least-once or at-most-once, and what is lost and repeated of their output.

The transform is that of stateful_pipelines.py: counts of groups, each with a random mark that its state keeps.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import Guarantee
from integration.support.pipelines import assert_nothing_hangs, create_topics, document, job_of, read
from integration.support.stateful_pipelines import (
    DECISIONS,
    PARTITIONS,
    Counted,
    StatefulPipeline,
    create_decisions,
    judge_counts,
)
from sql_texts import COUNTS_WITH_MARKS
from waiting import wait_until

# As a driver would be that takes the declared guarantee for another one.
_OTHER_GUARANTEE = """
from dataclasses import replace

from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.jobspec import Guarantee

declared = Stateful.__init__


def other(self, job, settings):
    declared(self, replace(job, guarantee=Guarantee("{guarantee}")), settings)


Stateful.__init__ = other
"""


@dataclass(frozen=True)
class Output:
    """What the sink has of the output, beside what was decided."""

    surplus: int  # records in the sink less those of all decisions
    counted: Counted  # of the highest count of each group

    @property
    def state_is_right(self) -> bool:
        """Whether the state has counted each record once. Output that was lost cannot show it."""
        return self.counted.surplus == 0


@dataclass
class WeakerPipeline(StatefulPipeline):
    """One pipeline over several runs of its driver."""

    def act_as(self, guarantee: Guarantee) -> None:
        """Makes later drivers deliver in the order of this guarantee, whatever is declared."""
        (self.directory / "sitecustomize.py").write_text(_OTHER_GUARANTEE.format(guarantee=guarantee))
        self.environment["PYTHONPATH"] = os.pathsep.join([str(self.directory), os.environ.get("PYTHONPATH", "")])

    def killed_in_output(self, point: str) -> None:
        """A run that is killed at the fault point, once output is in the sink that is not decided."""
        with self.life() as job:
            self.caught_up(job)
            hit = job.arm(point)
            self.feed()
            job.arrived(hit)
            wait_until(lambda: self.surplus() > 0, "output is in the sink")
            job.job.kill()

    def surplus(self) -> int:
        """Records in the sink less those of all decisions."""
        return len(read(self.sink_servers, self.sink)) - sum(decision.records for decision in self.decisions())

    def decisions(self) -> list[Decision]:
        """All decisions of the pipeline, oldest first."""
        of_pipeline = [r for r in read(self.sink_servers, DECISIONS) if r.key == self.spec.group.encode()]
        return [Decision.of_json((r.value or b"").decode()) for r in of_pipeline]

    def output(self) -> Output:
        """Compares the output with the input and with the decisions."""
        assert_nothing_hangs(self.sink_servers, self.sink)
        records = read(self.sink_servers, self.sink)
        counts: dict[str, list[tuple[int, str]]] = {}
        for record in records:
            count, _, mark = (record.value or b"").decode().partition(" ")
            counts.setdefault((record.key or b"").decode(), []).append((int(count), mark))
        # A driver that was replaced writes late, so the last record of a group need not be its newest.
        in_order = {group: sorted(of_group) for group, of_group in counts.items()}
        return Output(self.surplus(), judge_counts(in_order, self.partitions, self.fed))


@contextmanager
def weaker_pipeline(
    kafka: EmbeddedKafka, directory: Path, guarantee: Guarantee, partitions: int = PARTITIONS
) -> Iterator[WeakerPipeline]:
    """A pipeline with its topics, and 500 records in each partition of its source."""
    servers, name = kafka.bootstrap_servers, f"weaker-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=partitions)
    create_decisions(servers)
    declared = document(servers, name, guarantee.value, source, sink)
    declared["spec"] |= {
        "source": {"topics": [source], "format": "binary", "maxOffsetsPerTrigger": 700},
        "transform": {"sql": COUNTS_WITH_MARKS},
        "state": {"partitions": 2, "outputMode": "update"},
        "sink": {"kafka": {"topic": sink}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    job, state = job_of(declared, directory), directory / "state"
    assert job.state is not None
    job = replace(job, state=replace(job.state, checkpoint=str(state)))
    created = WeakerPipeline(servers, directory, job, partitions, state=state)
    created.feed()
    yield created
