"""The sink delta: a Delta Lake table, whose log also holds the positions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ackwright.api.checks import Check, Validation, unchangeable
from ackwright.api.fields import About
from ackwright.api.quantities import DeltaColumn, Switch
from ackwright.api.secret_fields import S3
from ackwright.api.storage_fields import S3_OF_BUCKET, S3_SCHEME, StoragePath, s3_settings
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS, Setting, Settings, values
from ackwright.sinks import table_state
from ackwright.sinks.base import Link, OutputSummary, SecretFile, Section, SinkContext, SinkSettings
from ackwright.sinks.letter_topic import SinkWithLetterTopic
from ackwright_stream import jobspec
from ackwright_stream.jobspec import Guarantee

_PATH = "spec.sink.delta"
_COMMIT: Settings = (
    Setting(
        "timeout.ms",
        str(TRANSACTION_TIMEOUT_MS),
        "a commit whose answer takes longer has an unknown outcome; the next one reads the positions again",
    ),
    Setting(
        "checkpoint.interval",
        "100",
        "commits between two checkpoints of the log, which every reader starts at; delta.checkpointInterval of the "
        "table takes precedence",
    ),
)
_COST = {
    Guarantee.AT_MOST_ONCE: "two commits to the table per micro-batch; the batch that a crash interrupts is lost",
    Guarantee.AT_LEAST_ONCE: "two commits to the table per micro-batch; the batch that a crash interrupts is written "
    "again",
    Guarantee.EXACTLY_ONCE: "one commit to the table per micro-batch; its rows become visible together",
}


class DeltaSink(SinkWithLetterTopic):
    """spec.sink.delta."""

    NAME = "delta"
    TAKES_DECISIONS = True
    COST_WITH_STATE = (
        "one commit to the table and one file beside the state per micro-batch; its rows become visible together"
    )

    path: Annotated[
        StoragePath,
        About(
            "The table: s3://bucket/prefix, or a directory (/path or file:///path) that the driver and its executors "
            "share. Cannot be changed."
        ),
        unchangeable(
            "the positions are in the table, and another one has none",
            "write the old path, or create another pipeline",
        ),
    ]
    partition_columns: Annotated[
        Annotated[tuple[DeltaColumn, ...], Field(max_length=32)],
        About("The columns that the table is partitioned by, in their order. Their values are in the log alone."),
    ] = ()
    create_table: Annotated[Switch, About("Create the table with the columns of the output if it does not exist.")] = (
        False
    )
    s3: Annotated[S3 | None, About("How to reach the bucket of an s3:// path.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _CHECKS

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[Any]], ...]:
        return (*super().validations(), *table_state.validations(cls.NAME))

    def data(self) -> Settings:
        optional = (("partitionColumns", ", ".join(self.partition_columns)),)
        return (
            Setting("sink.path", self.path, f"{_PATH}.path"),
            *(Setting(f"sink.{name}", value, f"{_PATH}.{name}") for name, value in optional if value),
            Setting("sink.createTable", str(self.create_table).lower(), f"{_PATH}.createTable"),
            *(Setting(f"sink.s3.{name}", value, f"{_PATH}.s3.{name}") for name, value in s3_settings(self.s3)),
        )

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings()

    def sections(self, group: str) -> tuple[Section, ...]:
        return (Section("commit", "Commits to the Delta table", _COMMIT), *super().sections(group))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        caveat, weakness = self._caveat(guarantee)
        return Link("sink table", self.path, _COMMIT, caveat, weakness)

    def named_columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"{_PATH}.partitionColumns", name) for name in self.partition_columns)

    def secrets(self) -> tuple[SecretFile, ...]:
        credentials = self.s3.credentials_secret if self.s3 else None
        return (SecretFile("credentials", credentials.name),) if credentials else ()

    def commit(self, group: str) -> Settings:
        return (
            Setting("positions", "txn actions of the table's log", "rows and positions are in one commit"),
            Setting("compare-and-set", "table version", "a commit that another one has overtaken is refused, and read"),
            Setting(
                "generation", f"ackwright/{group}/generation", "a driver that joins raises it, which fences others"
            ),
        )

    def decisions(self) -> Settings:
        return table_state.DECISIONS

    def reader(self, guarantee: Guarantee) -> Link:
        return Link("downstream reader", "application that reads the table", ())

    def summary(self, guarantee: Guarantee) -> OutputSummary:
        reader = "deduplicate" if guarantee is Guarantee.AT_LEAST_ONCE else "nothing"
        return OutputSummary(f"Delta table {self.path}", reader, _COST[guarantee], "commit")

    def to_job(self, group: str) -> jobspec.DeltaSink:
        s3 = self.s3 or S3()
        return jobspec.DeltaSink(
            path=self.path.removeprefix("file://"),
            partition_columns=self.partition_columns,
            create_table=self.create_table,
            endpoint=s3.endpoint,
            region=s3.region,
            credentials=None,  # the path of the Secret; see secrets()
            commit=values(_COMMIT),
            dead_letters=self.letters_of_job,
        )

    def _caveat(self, guarantee: Guarantee) -> tuple[str | None, int]:
        """What the sink leaves open under a guarantee, and how much that matters."""
        if guarantee is Guarantee.AT_LEAST_ONCE:
            return "a row may be there twice", 4
        if not self.path.startswith(S3_SCHEME):
            return "a directory has one copy, unless its file system keeps more", 3
        return None, 0


_CHECKS: tuple[Check[Any], ...] = (
    S3_OF_BUCKET,
    Check(
        lambda sink: len({*sink.partition_columns}) == len(sink.partition_columns),
        "must name each column once",
        "remove the one that is repeated",
        cel="!has(self.partitionColumns) || self.partitionColumns.all(c, "
        "self.partitionColumns.exists_one(other, other == c))",
        field="partitionColumns",
    ),
)
