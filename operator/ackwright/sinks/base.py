"""What planning, `ackwright explain`, `ackwright check` and the jobspec need to know about a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from ackwright.api.checks import Validation
from ackwright.api.fields import Model
from ackwright.api.secret_fields import Kafka
from ackwright.planning.acls import Need
from ackwright.planning.guarantees import Settings
from ackwright_stream.jobspec import Guarantee, SinkSpec, StandbyTimes

# The part of the jobspec that a sink renders: a class for each sink that the job knows.
JobSink = SinkSpec


@dataclass(frozen=True)
class Link:
    """One link of the chain from the application that writes the source to the one that reads the sink."""

    name: str
    subject: str
    settings: Settings
    caveat: str | None = None  # what the link does not guarantee; None: it keeps the guarantee
    weakness: int = 0  # how much the caveat matters, 0 (not at all) to 9


@dataclass(frozen=True)
class SinkSettings:
    """The settings that a sink derives from the guarantee."""

    # librdkafka's names: of the producer of each task's rows.
    producer: Settings = ()
    # In the names of the sink's own client, for instance Java's for Spark's Kafka sink.
    options: Settings = ()


@dataclass(frozen=True)
class Section:
    """Settings of one client of the sink's store, as its part of the jobspec carries them."""

    # Where they are in its part of the jobspec, with dots.
    field: str
    # How `ackwright plan` titles them.
    title: str
    settings: Settings


@dataclass(frozen=True)
class SecretFile:
    """A Secret that the job needs for its sink, and the field of the sink's part of the jobspec with its path."""

    field: str
    # The name of the Secret.
    name: str
    # The key whose file is meant; empty: the directory with all of them.
    key: str = ""


MAX_FRACTION = 0.05  # of the records that may be dead letters, unless the spec says it
ABOUT_MAX_FRACTION = (
    "The largest fraction of the records that may be malformed, of at least the last 1,000. With more the pipeline "
    "halts: it is probably the schema that is wrong."
)


@dataclass(frozen=True)
class DeadLetters:
    """Where a sink writes malformed records."""

    kind: str  # topic or table
    name: str
    max_fraction: float  # of the records
    path: str  # where the spec has it
    # Whether their keys are their places in the source: a compacted topic keeps one of those that were written again.
    keyed: bool = False


@dataclass(frozen=True)
class OutputSummary:
    """What the summary of a plan says of an output that is not in Kafka."""

    target: str  # where it is
    reader: str  # what its reader has to do, in words
    cost: str  # what the guarantee costs, in words
    commit: str  # what has output and positions under exactly-once: transaction, commit, snapshot or file


@dataclass(frozen=True)
class OutputColumn:
    """A column of the transform's output, as far as it is known before the job runs."""

    name: str | None  # None: one that Spark makes
    type: str  # as Spark writes it; empty: not known


@dataclass(frozen=True)
class OutputProblem:
    """Why the job refuses the transform's output."""

    column: int | None  # the number of the column; None: the output as a whole
    problem: str
    remedy: str


@dataclass(frozen=True)
class SinkPlan:
    """What a sink adds to the delivery plan."""

    # The guarantee that its commits keep: the declared one, or a stronger one.
    guarantee: Guarantee
    # Its part of the jobspec.
    job: JobSink
    # Its declared fields, as `ackwright plan` prints them.
    data: Settings
    settings: SinkSettings
    # How `ackwright plan` titles `settings.options`.
    options_title: str
    # In the chain of `ackwright explain`.
    link: Link
    # The topics that it writes, as far as the spec names them.
    topics: tuple[str, ...]
    # Whether only the transform names the topics that it writes.
    routed: bool
    # The permissions in Kafka that the job needs for rows and positions, beyond those for the source.
    needs: tuple[Need, ...]
    dead_letters: DeadLetters | None = None  # as Sink.dead_letters()
    # Further settings, as `ackwright plan` prints them.
    sections: tuple[Section, ...] = ()
    secrets: tuple[SecretFile, ...] = ()
    in_kafka: bool = True  # as Sink.IN_KAFKA
    cluster: Kafka | None = None  # as Sink.cluster()
    cluster_path: str = ""  # where the spec has it
    source_needs: tuple[Need, ...] = ()  # as `needs`, on the source's cluster, if the sink has its own
    has_subject: bool = False  # whether the schema of its values is in the registry
    # How positions move, as `ackwright plan` prints it.
    commit: Settings = ()
    # When a standby takes over, if the spec declares one; None: the store does not tell drivers of each other.
    standby: StandbyTimes | None = None
    # The application that reads the output, in the chain of `ackwright explain`; None: a Kafka consumer.
    reader: Link | None = None
    # For the summary of the plan; None: the output is in Kafka.
    summary: OutputSummary | None = None


class Sink(Model, ABC):
    """The declaration of one sink, as in spec.sink.<name>, and what follows from it."""

    OPTIONS_TITLE: ClassVar[str] = ""  # only for a sink with SinkSettings.options
    # Whether rows and positions are in a Kafka cluster, and not in a store of the sink's own.
    IN_KAFKA: ClassVar[bool] = False
    # The field of deadLetter that names where malformed records go.
    DEAD_LETTERS_IN: ClassVar[Literal["topic", "table"]] = "topic"
    KEYED_DEAD_LETTERS: ClassVar[bool] = False  # as DeadLetters.keyed
    # Whether it ends a transaction of rows after some time, whatever the guarantee.
    LIMITS_TRANSACTIONS: ClassVar[bool] = False
    # Whether stateful pipelines can have it: its transactions take decisions.
    TAKES_DECISIONS: ClassVar[bool] = False
    # Whether a stateful pipeline with a weaker guarantee than exactly-once writes its output outside of the commit of
    # the decision. If not, one commit has both under each guarantee: two would be more work.
    WRITES_APART: ClassVar[bool] = False
    # As OutputSummary.cost of a stateful pipeline; only for a sink that does not write apart.
    COST_WITH_STATE: ClassVar[str] = ""
    CLUSTER_PATH: ClassVar[str] = ""  # of the fields of `cluster`; only for a sink that may have one

    @classmethod
    @abstractmethod
    def validations(cls) -> tuple[Validation[SinkContext[Any]], ...]:
        """The conditions on the sink's fields together with others of the pipeline."""

    @abstractmethod
    def data(self) -> Settings:
        """Its declared fields, as `ackwright plan` prints them."""

    @abstractmethod
    def topics(self) -> tuple[str, ...]:
        """The topics that it writes, as far as the spec names them."""

    @property
    @abstractmethod
    def routed(self) -> bool:
        """Whether only the transform names the topics that it writes."""

    def dead_letters(self) -> DeadLetters | None:
        """Where it writes malformed records; None: nowhere."""
        return None

    @classmethod
    def can_have_dead_letters(cls) -> bool:
        """Whether it has a field for dead_letters()."""
        return "dead_letter" in cls.model_fields

    @property
    def has_subject(self) -> bool:
        """Whether the schema of its values is in the schema registry."""
        return False

    @classmethod
    def has_subject_cel(cls, path: str) -> str:
        """The twin of has_subject in CEL; empty: it never has one. path: of a sink that is there."""
        return ""

    @abstractmethod
    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        """Its settings under a guarantee. largest_message: bytes of the largest record that the brokers accept."""

    def settings_with_state(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        """The same of a stateful pipeline, whose driver writes the output."""
        return self.settings(guarantee, largest_message)

    @abstractmethod
    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        """Its link in the chain of `ackwright explain`. settings: its own."""

    @abstractmethod
    def needs(self, group: str) -> tuple[Need, ...]:
        """The permissions in Kafka that the job needs for rows and positions, beyond those for the source.

        group: whose positions they are.
        """

    def source_needs(self, group: str) -> tuple[Need, ...]:
        """The permissions that the job needs on the source's cluster for a sink with its own, beyond reading."""
        return ()

    @abstractmethod
    def to_job(self, group: str) -> JobSink:
        """Its part of the jobspec. group: as for `needs`."""

    def with_decisions(self, job: JobSink) -> JobSink:
        """Its part of the jobspec for a stateful pipeline. job: that of a stateless one."""
        return job

    def decision_needs(self) -> tuple[Need, ...]:
        """The further permissions in Kafka that the job of a stateful pipeline needs."""
        return ()

    def decisions(self) -> Settings:
        """Where the decisions of a stateful pipeline are, as `ackwright plan` prints it."""
        return ()

    def link_with_state(self, link: Link) -> Link:
        """Its link in the chain of a stateful pipeline. link: that of a stateless one."""
        return link

    def sections(self, group: str) -> tuple[Section, ...]:
        """Every group of settings in its part of the jobspec. group: as for `needs`."""
        return ()

    def secrets(self) -> tuple[SecretFile, ...]:
        """The Secrets that the job needs for it."""
        return ()

    @abstractmethod
    def commit(self, group: str) -> Settings:
        """How positions move, as `ackwright plan` prints it. group: as for `needs`."""

    def commit_with_state(self, group: str) -> Settings:
        """The same of a stateful pipeline."""
        return (*self.commit(group), *self.decisions())

    def standby(self) -> StandbyTimes | None:
        """When a standby takes over; None: there can be none."""
        return None

    def named_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of the output that its fields name, behind the path of the field."""
        return ()

    def output_problems(self, columns: Sequence[OutputColumn]) -> Iterator[OutputProblem]:
        """What the job certainly refuses in the columns of the transform's output."""
        names = {column.name for column in columns}
        for field, name in self.named_columns():
            # Spark may name a column count(1), but none as other names are.
            if name.lower() not in names and (None not in names or name.isidentifier()):
                listed = ", ".join(sorted(filter(None, names))) or "none with a name"
                problem = f"{field} names the column {name}, which the transform does not return"
                yield OutputProblem(None, problem, f"return it, or correct the field; columns: {listed}")

    def cluster(self) -> Kafka | None:
        """The Kafka cluster of rows and positions, if it is not the source's. Its connection is the field
        `cluster` of its part of the jobspec, which `to_job` leaves out."""
        return None

    def with_cluster(self, kafka: Kafka | None) -> Self:
        """The same on another Kafka cluster; None: on the source's."""
        return self

    def reader(self, guarantee: Guarantee) -> Link | None:
        """The application that reads the output, if it is not a Kafka consumer."""
        return None

    def summary(self, guarantee: Guarantee) -> OutputSummary | None:
        """What the summary of a plan says of the output, if it is not in Kafka."""
        return None

    def plan(self, guarantee: Guarantee, group: str, largest_message: int, *, stateful: bool = False) -> SinkPlan:
        """What it adds to the plan under a guarantee. group: as for `needs`. largest_message: as for `settings`."""
        if stateful and not self.WRITES_APART:
            guarantee = Guarantee.EXACTLY_ONCE
        settings = (self.settings_with_state if stateful else self.settings)(guarantee, largest_message)
        job, link, summary = self.to_job(group), self.link(guarantee, settings), self.summary(guarantee)
        if summary and stateful:
            summary = replace(summary, cost=self.COST_WITH_STATE)
        return SinkPlan(
            guarantee=guarantee,
            job=self.with_decisions(job) if stateful else job,
            data=self.data(),
            settings=settings,
            options_title=self.OPTIONS_TITLE,
            link=self.link_with_state(link) if stateful else link,
            topics=self.topics(),
            routed=self.routed,
            needs=(*self.needs(group), *(self.decision_needs() if stateful else ())),
            dead_letters=self.dead_letters(),
            sections=self.sections(group),
            secrets=self.secrets(),
            in_kafka=self.IN_KAFKA,
            cluster=self.cluster(),
            cluster_path=self.CLUSTER_PATH,
            source_needs=self.source_needs(group),
            has_subject=self.has_subject,
            commit=self.commit_with_state(group) if stateful else self.commit(group),
            standby=self.standby(),
            reader=self.reader(guarantee),
            summary=summary,
        )


S = TypeVar("S", bound=Sink)


@dataclass(frozen=True)
class SinkContext(Generic[S]):
    """A sink and the parts of its pipeline with which it has to agree."""

    sink: S
    guarantee: Guarantee
    # spec.kafka.bootstrapServers
    source_servers: str
    source_topics: tuple[str, ...]
    # Of spec.topics: the number of partitions by name.
    declared_partitions: Mapping[str, int]
    output_mode: str | None = None  # of spec.state; None: the pipeline is stateless
