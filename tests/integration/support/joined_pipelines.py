"""A stateful pipeline that joins orders with their payments, over several runs of its driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import JobSpec, KafkaSink
from integration.support.pipelines import Running, create_topics, document, job_of, read, running
from integration.support.stateful_pipelines import DECISIONS, create_decisions
from sql_texts import JOIN_COLUMNS
from waiting import ANSWER, WAIT

STATE_PARTITIONS = 2
# In the order of the ids in a decision.
STORES = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue")


@dataclass(frozen=True)
class Event:
    """An order, or the payment of one."""

    order: int
    at: int  # seconds since 1970; of less than a day
    pays: bool = False
    timed: bool = True  # False: its record has no event time

    @property
    def name(self) -> str:
        return f"{'pay' if self.pays else 'order'}-{self.order}-{self.at}"

    @property
    def value(self) -> bytes:
        at = f"1970-01-01T{self.at // 3600:02}:{self.at // 60 % 60:02}:{self.at % 60:02}Z"
        reference = {"order_id": str(self.order)} if self.pays else {"id": str(self.order)}
        return json.dumps({**reference, "amount": self.name, "at": at if self.timed else None}).encode()


@dataclass
class JoinedPipeline:
    """The pipeline, and what was fed."""

    job: JobSpec
    directory: Path
    events: list[Event] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)  # further variables of its drivers
    values: Callable[[], Sequence[str]] | None = None  # of another sink than a topic
    lives: int = 0

    @property
    def servers(self) -> str:
        return self.job.cluster.bootstrap_servers

    @property
    def sink(self) -> str:
        return str(self.job.sink_of(KafkaSink).topic)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def feed(self, *events: Event) -> None:
        """Sends the events, each to its topic, all to the partition 0."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 0})
        orders, payments = self.job.source.topics
        for event in events:
            producer.produce(payments if event.pays else orders, event.value, partition=0)
        assert producer.flush(ANSWER) == 0
        self.events += events

    @contextmanager
    def life(self) -> Iterator[Running]:
        """The next driver, in a separate directory."""
        self.lives += 1
        with running(self.job, self.directory / str(self.lives), self.environment) as driver:
            yield driver

    def caught_up(self, driver: Running) -> None:
        """Waits until the driver has reported every event as delivered."""
        pays = sum(event.pays for event in self.events)
        ends = dict(zip(self.job.source.topics, (len(self.events) - pays, pays), strict=True))
        driver.until(lambda p: all(_position(p, t) >= end for t, end in ends.items()), f"positions at {ends}", WAIT)

    def killed_at(self, point: str, *events: Event, caught_up: bool = True) -> None:
        """A driver that is killed at the fault point, in the first batch of these further events."""
        with self.life() as driver:
            if caught_up:
                self.caught_up(driver)
            hit = driver.arm(point)
            self.feed(*events)
            driver.arrived(hit)
            driver.job.kill()

    def killed_in_first_batch(self, point: str) -> None:
        """A driver that is killed at the fault point, in its first batch."""
        with self.life() as driver:
            driver.arrived(driver.arm(point))
            driver.job.kill()

    def drained(self) -> None:
        """A driver that delivers everything and ends by SIGTERM."""
        with self.life() as driver:
            self.caught_up(driver)
            driver.job.drain()
            assert driver.job.wait(WAIT) == 0, driver.job.failure()

    def output(self) -> list[str]:
        """The values in the sink, sorted."""
        if self.values is not None:
            return sorted(self.values())
        return sorted((record.value or b"").decode() for record in read(self.servers, self.sink))

    def pairs(self) -> list[str]:
        """What the join of all events is, if none is late, sorted."""
        return self.rows("", 0, ())

    def rows(self, kind: str, watermark: int, left_out: Collection[Event]) -> list[str]:
        """What a join of this kind has written, sorted. left_out: events that count in no way."""
        events = [event for event in self.events if event not in left_out]
        orders, payments = ([event for event in events if event.pays is pays] for pays in (False, True))
        pairs = [(o, p) for p in payments for o in orders if o.order == p.order and o.at <= p.at <= o.at + 3600]
        matched = {event for pair in pairs for event in pair}
        rows = [f"{o.name} {p.name}" for o, p in pairs]
        if kind == "LEFT SEMI":
            rows = [o.name for o in orders if o in matched]
        if kind in ("LEFT", "FULL"):
            rows += [f"{o.name} none" for o in orders if o not in matched and o.at + 3600 < watermark]
        if kind in ("RIGHT", "FULL"):
            rows += [f"none {p.name}" for p in payments if p not in matched and p.at < watermark]
        return sorted(rows)

    def last_decision(self) -> Decision:
        """The last decision of the pipeline."""
        of_pipeline = [r for r in read(self.servers, DECISIONS) if r.key == self.job.group.encode()]
        return Decision.of_json((of_pipeline[-1].value or b"").decode())

    def stored_last(self) -> tuple[tuple[str, ...], ...]:
        """By partition, the ids of the states with the highest version, in the order of STORES."""
        newest = []
        for partition in range(STATE_PARTITIONS):
            files = [list(self.state.glob(f"*/state/0/{partition}/{store}/*_*.changelog")) for store in STORES]
            newest.append(tuple(max(of, key=_age).stem.split("_")[1] for of in files))
        return tuple(newest)


def _age(changelog: Path) -> tuple[int, float]:
    return int(changelog.stem.split("_")[0]), changelog.stat().st_mtime


def _position(progress: Mapping[str, object], topic: str) -> int:
    positions = progress.get("positions")
    offsets = positions.get(topic, {}) if isinstance(positions, Mapping) else {}
    return max(map(int, offsets.values()), default=0)


def joined_pipeline(
    servers: str,
    name: str,
    directory: Path,
    sql: str,
    limit: int = 8,
    *,
    of_sink: Mapping[str, Any] | None = None,
    secrets: str | None = None,
) -> JoinedPipeline:
    """The pipeline with its topics. sql: reads the topics as `orders` and `payments`. limit: offsets of a batch.

    of_sink: spec.sink; None: a topic.
    """
    orders, payments, sink = f"{name}-orders", f"{name}-payments", f"{name}-out"
    create_topics(servers, orders, payments, sink, partitions=2)
    create_decisions(servers)
    stateful = document(servers, name, "exactly-once", orders, sink)
    stateful["spec"] |= {
        "source": {
            "topics": [orders, payments],
            "format": "json",
            "schema": ", ".join(f"{column} {kind}" for column, kind in JOIN_COLUMNS.items()),
            "maxOffsetsPerTrigger": limit,
            "eventTime": {"column": "at", "watermark": "10m"},
        },
        "transform": {"sql": sql.replace("'orders'", f"'{orders}'").replace("'payments'", f"'{payments}'")},
        "state": {"partitions": STATE_PARTITIONS},
        "sink": of_sink or {"kafka": {"topic": sink}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    job = job_of(stateful, directory, secrets=secrets)
    assert job.state is not None
    job = replace(job, state=replace(job.state, checkpoint=str(directory / "state")))
    return JoinedPipeline(job, directory)
