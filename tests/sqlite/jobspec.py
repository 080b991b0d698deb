"""The sink's part of the jobspec, which operator, job and audit share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from ackwright_stream.cluster import Cluster
from ackwright_stream.jobspec import JobSpec, Required
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.base import Sink


@dataclass(frozen=True)
class SqliteSpec:
    """A database file that job.create() made."""

    path: str
    compare: bool = True  # False is the negative control: neither memberships nor positions are compared
    kind: str = field(default="sqlite", init=False)
    transaction_timeout_ms: ClassVar[int] = 60_000  # as long as a connection waits for another's transaction

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["path"], value["compare"])


def _for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    from sqlite.job import SqliteSink

    return SqliteSink(job)


def _for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    from sqlite.job import SqliteSink

    return SqliteSink(job)


registry.register(SqliteSpec, registry.Factory(_for_driver, _for_tasks))  # here, because workers import this module
