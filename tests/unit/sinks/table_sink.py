"""An example of a new sink module: rows of a table in a fictitious database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.fields import About, ChangeClass
from ackwright.api.quantities import Line
from ackwright.api.resource import DeliveryPipeline, Spec
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.guarantees import Setting, Settings
from ackwright.sinks.base import Link, Sink, SinkContext, SinkSettings
from ackwright.sinks.registry import SinkSpec
from ackwright_stream.jobspec import Guarantee, Required


@dataclass(frozen=True)
class TableJob:
    """The sink's part of the jobspec."""

    table: str
    kind: str = "table"
    transaction_timeout_ms: ClassVar[int] = 1000

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["table"])


class TableSink(Sink):
    """spec.sink.table."""

    OPTIONS_TITLE = "Connection of each task (table)"

    name: Annotated[Line, About("The name of the table.")]

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[TableSink]], ...]:
        return (_NOT_AT_MOST_ONCE,)

    def data(self) -> Settings:
        return (Setting("sink.table", self.name, "spec.sink.table.name"),)

    def topics(self) -> tuple[str, ...]:
        return ()

    @property
    def routed(self) -> bool:
        return False

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings(options=(Setting("synchronous", "full", "a committed row survives a crash"),))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        return Link("table", self.name, settings.options, "the table has one copy", 9)

    def needs(self, group: str) -> tuple[Need, ...]:
        return (Need(Resource(Kind.CLUSTER, "kafka-cluster"), (Operation.IDEMPOTENT_WRITE,), "needs it for the test"),)

    def to_job(self, group: str) -> TableJob:
        return TableJob(self.name)


def _at_most_once(context: SinkContext[TableSink]) -> Iterator[Broken]:
    if context.guarantee is Guarantee.AT_MOST_ONCE:
        yield Broken("spec.sink.table", detail=f", and {context.sink.name} is one")


_NOT_AT_MOST_ONCE = Validation[SinkContext[TableSink]](
    "a table cannot deliver at most once",
    "declare another guarantee",
    ("spec.guarantee", "spec.sink.table"),
    _at_most_once,
    cel=(Cel("self.guarantee != 'at-most-once' || !has(self.sink.table)", on="spec", at=".sink.table"),),
)


class SinkSpecWithTable(SinkSpec):
    """The registration: one field."""

    table: Annotated[TableSink | None, About("A table.")] = None


class SpecWithTable(Spec):
    """The spec with the new union of sinks."""

    sink: Annotated[SinkSpecWithTable, About("Where the output goes.", ChangeClass.RESTART, "rows stay where they are")]


class PipelineWithTable(DeliveryPipeline):
    """The resource with the new spec."""

    spec: Annotated[SpecWithTable, About("What the pipeline delivers, and how.")]
