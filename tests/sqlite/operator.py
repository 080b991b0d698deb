"""The operator's sink, and the spec with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.fields import About, ChangeClass
from ackwright.api.quantities import Line
from ackwright.api.resource import DeliveryPipeline, Spec
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.guarantees import Setting, Settings
from ackwright.sinks.base import Link, OutputColumn, OutputProblem, Sink, SinkContext, SinkSettings
from ackwright.sinks.registry import SinkSpec
from ackwright_stream.jobspec import Guarantee
from sqlite.jobspec import SqliteSpec


class SqliteSink(Sink):
    """spec.sink.sqlite."""

    OPTIONS_TITLE = "Transactions in SQLite"

    path: Annotated[Line, About("The file of the database.")]

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[SqliteSink]], ...]:
        return (_NOT_IN_MEMORY,)

    def data(self) -> Settings:
        return (Setting("sink.path", self.path, "spec.sink.sqlite.path"),)

    def topics(self) -> tuple[str, ...]:
        return ()

    @property
    def routed(self) -> bool:
        return False

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings(options=(Setting("synchronous", "full", "a committed row survives a crash"),))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        return Link("database", self.path, settings.options, "the database has one copy", 9)

    def needs(self, group: str) -> tuple[Need, ...]:
        return (Need(Resource(Kind.CLUSTER, "kafka-cluster"), (Operation.IDEMPOTENT_WRITE,), "needs it for the test"),)

    def commit(self, group: str) -> Settings:
        return (Setting("positions", "table positions", "rows and positions are in one database"),)

    def output_problems(self, columns: Sequence[OutputColumn]) -> Iterator[OutputProblem]:
        for i, column in enumerate(columns):
            if column.name not in ("key", "value"):
                yield OutputProblem(i, f"returns the column {column.name}", "select key and value")

    def reader(self, guarantee: Guarantee) -> Link:
        return Link("downstream reader", "application that reads the database", (), "not run by Ackwright", 2)

    def to_job(self, group: str) -> SqliteSpec:
        return SqliteSpec(self.path)


def _in_memory(context: SinkContext[SqliteSink]) -> Iterator[Broken]:
    if context.guarantee is not Guarantee.AT_MOST_ONCE and context.sink.path == ":memory:":
        yield Broken("spec.sink.sqlite.path", detail=f", and {context.sink.path} is one")


_NOT_IN_MEMORY = Validation[SinkContext[SqliteSink]](
    "a database in memory is lost with its process",
    "name a file, or declare at-most-once",
    ("spec.guarantee", "spec.sink.sqlite"),
    _in_memory,
    cel=(
        Cel(
            "self.guarantee == 'at-most-once' || !has(self.sink.sqlite) || self.sink.sqlite.path != ':memory:'",
            on="spec",
            at=".sink.sqlite.path",
        ),
    ),
)


class SinkSpecWithSqlite(SinkSpec):
    """The registration: one field."""

    sqlite: Annotated[SqliteSink | None, About("A SQLite database.")] = None


class SpecWithSqlite(Spec):
    """The spec with the new union of sinks."""

    sink: Annotated[
        SinkSpecWithSqlite, About("Where the output goes.", ChangeClass.RESTART, "rows stay where they are")
    ]


class PipelineWithSqlite(DeliveryPipeline):
    """The resource with the new spec."""

    spec: Annotated[SpecWithSqlite, About("What the pipeline delivers, and how.")]
