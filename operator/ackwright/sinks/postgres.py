"""The sink postgres: a table of a PostgreSQL database, which also holds the positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ackwright.api.checks import Broken, Cel, Check, Validation, unchangeable
from ackwright.api.fields import About, ChangeClass, Model
from ackwright.api.quantities import Host, Identifier, MaxFraction, Port, PostgresColumn, Switch
from ackwright.api.secret_fields import CaSecret, CredentialsSecret
from ackwright.planning.acls import Need
from ackwright.planning.guarantees import OPERATION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, Setting, Settings, values
from ackwright.sinks.base import (
    ABOUT_MAX_FRACTION,
    MAX_FRACTION,
    DeadLetters,
    Link,
    OutputSummary,
    SecretFile,
    Section,
    Sink,
    SinkContext,
    SinkSettings,
)
from ackwright_stream import jobspec
from ackwright_stream.jobspec import Guarantee

_PATH = "spec.sink.postgres"
_DECISIONS = "ackwright.decisions"
_OTHER_TABLE = "the positions say that the rows before them are in the table, and another one lacks these"
_ADDRESS = "it must lead to the server that has the positions: without them the pipeline halts"
LOCK_TIMEOUT_MS = 5_000
_SESSION: Settings = (
    Setting("synchronous_commit", "on", "a committed row survives a crash of the server"),
    Setting(
        "lock_timeout",
        str(LOCK_TIMEOUT_MS),
        "limit of the wait for positions that another transaction has locked; then the driver starts again and ends it",
    ),
    Setting("statement_timeout", "0", "COPY takes as long as the rows of a task; the role's default would end it"),
    Setting(
        "idle_in_transaction_session_timeout",
        str(TRANSACTION_TIMEOUT_MS),
        "the server ends the transaction of a task that is silent for so long",
    ),
    Setting("tcp_keepalives_idle", "10", "seconds after which the server checks whether the job's host is there"),
    Setting("tcp_keepalives_interval", "5", "seconds between two of these checks"),
    Setting("tcp_keepalives_count", "3", "unanswered checks, after which the server ends a transaction and its locks"),
)
# libpq's names; the last three are those of the job's connections.
_CONNECTION: Settings = (
    Setting("connect_timeout", "10", "seconds for each address of the server, which may not answer"),
    Setting("client_encoding", "utf8", "text is sent as Spark has it, whatever the role's default is"),
    Setting("target_session_attrs", "read-write", "of several servers, the primary"),
    Setting("keepalives_idle", "10", "seconds of silence before the kernel checks whether the server is there"),
    Setting("keepalives_interval", "5", "seconds between two of these checks"),
    Setting("keepalives_count", "3", "unanswered checks, after which the connection is lost"),
    Setting("tcp_user_timeout", str(OPERATION_TIMEOUT_MS), "milliseconds for which sent data may be unacknowledged"),
    Setting("gssencmode", "disable", "the connection is encrypted with TLS, or not at all"),
    Setting("isolation_level", "READ_COMMITTED", "row locks protect the positions; the role's default may differ"),
    Setting("prepare_threshold", "none", "a pooler may give each transaction another connection"),
    Setting(
        "response_timeout",
        str(TRANSACTION_TIMEOUT_MS // 1000),
        "seconds to wait for each answer: the kernel of a server that is frozen still acknowledges packets",
    ),
)

_COST = {
    Guarantee.AT_MOST_ONCE: "two transactions of the database per task and micro-batch; the batch that a crash "
    "interrupts is lost",
    Guarantee.AT_LEAST_ONCE: "one transaction of the database per task and micro-batch, and one for the positions; "
    "the batch that a crash interrupts is written again",
    Guarantee.EXACTLY_ONCE: "one transaction of the database per task and micro-batch; a row is visible when its task "
    "has committed",
}


class PostgresTls(Model):
    """spec.sink.postgres.tls."""

    ca_secret: Annotated[
        CaSecret | None,
        About("A Secret of the same namespace with the CA certificate that signed the server's certificate, in PEM."),
    ] = None


class PostgresDeadLetter(Model):
    """spec.sink.postgres.deadLetter."""

    table: Annotated[
        Identifier,
        About(
            "The table of the dead letters, in the same schema; docs/dead-letters.md has its columns. With createTable "
            "it is created, too."
        ),
    ]
    max_fraction: Annotated[MaxFraction, About(ABOUT_MAX_FRACTION)] = MAX_FRACTION


class PostgresSink(Sink):
    """spec.sink.postgres."""

    DEAD_LETTERS_IN = "table"

    LIMITS_TRANSACTIONS = True
    TAKES_DECISIONS = True
    COST_WITH_STATE = "one transaction of the database per micro-batch; its rows become visible together"

    host: Annotated[Host, About("The server; the name in its certificate.", ChangeClass.RESTART, _ADDRESS)]
    port: Annotated[Port, About("The server's port.", ChangeClass.RESTART, _ADDRESS)] = 5432
    database: Annotated[
        Identifier,
        About("The database of the table, and of the positions. Cannot be changed."),
        unchangeable(
            "the positions are in the database, and another one has none",
            "write the old database, or create another pipeline",
        ),
    ]
    credentials_secret: Annotated[
        CredentialsSecret, About("A Secret of the same namespace with the keys username and password.")
    ]
    tls: Annotated[
        PostgresTls | None,
        About(
            "Encrypted connections, with a verified certificate and host name. Without caSecret the CAs that the image "
            "trusts are trusted."
        ),
    ] = None
    schema_name: Annotated[
        Identifier,
        Field(alias="schema"),
        About("The schema of the table. Cannot be changed."),
        unchangeable(_OTHER_TABLE, "write the old schema, or create another pipeline"),
    ] = "public"
    table: Annotated[
        Identifier,
        About("The table. Its columns are those of the transform's output, by name. Cannot be changed."),
        unchangeable(_OTHER_TABLE, "write the old table, or create another pipeline"),
    ]
    mode: Annotated[
        Literal["append", "upsert"], About("append: each row is added. upsert: a row replaces the one with its key.")
    ] = "append"
    key: Annotated[
        Annotated[tuple[PostgresColumn, ...], Field(max_length=32)],
        About("For upsert: the columns that identify a row. The table needs a unique index on exactly these."),
    ] = ()
    version_column: Annotated[
        PostgresColumn | None,
        About("For upsert: a row replaces only one with a lower value in this column, which is NOT NULL."),
    ] = None
    deleted_column: Annotated[
        PostgresColumn | None,
        About(
            "For upsert under exactly-once: a boolean column of the output, which the table does not have. Where it is "
            "true, the row with this key is deleted."
        ),
    ] = None
    create_table: Annotated[Switch, About("Create the table with the columns of the output if it does not exist.")] = (
        False
    )

    dead_letter: Annotated[
        PostgresDeadLetter | None, About("Where malformed records go, with source.onMalformed: deadLetter.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _CHECKS

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[PostgresSink]], ...]:
        return _VALIDATIONS

    def data(self) -> Settings:
        optional = (
            ("key", ", ".join(self.key)),
            ("versionColumn", self.version_column),
            ("deletedColumn", self.deleted_column),
        )
        return (
            Setting("sink.server", f"{self.host}:{self.port}", f"{_PATH}.host"),
            Setting("sink.database", self.database, f"{_PATH}.database"),
            Setting("sink.tls", "verify-full" if self.tls else "disable", f"{_PATH}.tls"),
            Setting("sink.table", self._name, f"{_PATH}.table"),
            Setting("sink.mode", self.mode, f"{_PATH}.mode"),
            *(Setting(f"sink.{name}", value, f"{_PATH}.{name}") for name, value in optional if value),
            Setting("sink.createTable", str(self.create_table).lower(), f"{_PATH}.createTable"),
        )

    def topics(self) -> tuple[str, ...]:
        return ()

    @property
    def routed(self) -> bool:
        return False

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings()

    def sections(self, group: str) -> tuple[Section, ...]:
        return (
            Section("connection", "Connections to PostgreSQL", _CONNECTION),
            Section("session", "Transactions in PostgreSQL", _SESSION),
        )

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        caveat, weakness = self._caveat(guarantee)
        return Link("sink table", f"{self._name} of database {self.database}", _SESSION, caveat, weakness)

    def needs(self, group: str) -> tuple[Need, ...]:
        return ()

    def dead_letters(self) -> DeadLetters | None:
        letters = self.dead_letter
        return DeadLetters("table", letters.table, letters.max_fraction, f"{_PATH}.deadLetter") if letters else None

    def named_columns(self) -> tuple[tuple[str, str], ...]:
        optional = (("versionColumn", self.version_column), ("deletedColumn", self.deleted_column))
        named = (*(("key", name) for name in self.key), *((field, name) for field, name in optional if name))
        return tuple((f"{_PATH}.{field}", name) for field, name in named)

    def secrets(self) -> tuple[SecretFile, ...]:
        ca = self.tls.ca_secret if self.tls else None
        return (
            SecretFile("credentials", self.credentials_secret.name),
            *((SecretFile("ca", ca.name, ca.key),) if ca else ()),
        )

    def commit(self, group: str) -> Settings:
        return (
            Setting(
                "positions", "ackwright.positions", "rows and positions are in one database, which is restored as one"
            ),
            Setting("row locks", "FOR UPDATE", "two attempts of a task cannot both move a position"),
            Setting("generation", "ackwright.pipelines", "a driver that joins raises it, which fences older drivers"),
        )

    def decisions(self) -> Settings:
        return (Setting("decisions", _DECISIONS, "each is in the transaction of its output and positions"),)

    def link_with_state(self, link: Link) -> Link:
        # The driver writes the batches in their order, so only rows of one batch compete for a key.
        if link.caveat is None:
            return link
        caveat = "the key must identify a row of the output: of several rows of a micro-batch with one key any may stay"
        return replace(link, caveat=caveat, weakness=3)

    def reader(self, guarantee: Guarantee) -> Link:
        caveat = (
            "not run by Ackwright: a replica that is read may lag, and loses what it lags if it becomes the primary"
        )
        return Link("downstream reader", "application that reads the table", (), caveat, 2)

    def summary(self, guarantee: Guarantee) -> OutputSummary:
        repeated = self.mode == "append" and guarantee is Guarantee.AT_LEAST_ONCE
        return OutputSummary(
            f"table {self._name} of database {self.database}",
            "deduplicate" if repeated else "nothing",
            _COST[guarantee],
            "transaction",
        )

    def to_job(self, group: str) -> jobspec.PostgresSink:
        return jobspec.PostgresSink(
            host=self.host,
            port=self.port,
            database=self.database,
            credentials="",  # the path of the Secret; see secrets()
            tls=self.tls is not None,
            ca=None,
            schema=self.schema_name,
            table=self.table,
            upsert=self.mode == "upsert",
            key=self.key,
            version_column=self.version_column,
            deleted_column=self.deleted_column,
            create_table=self.create_table,
            dead_letter_table=self.dead_letter.table if self.dead_letter else None,
            connection=values(_CONNECTION),
            session=values(_SESSION),
        )

    @property
    def _name(self) -> str:
        return f"{self.schema_name}.{self.table}"

    def _caveat(self, guarantee: Guarantee) -> tuple[str | None, int]:
        """What the sink leaves open under a guarantee, and how much that matters."""
        if self.mode == "upsert" and self.version_column is None:
            return (
                "without a versionColumn the row that is written last stays: the records of a key must be in one "
                "partition of the source",
                6,
            )
        if self.mode == "append" and guarantee is Guarantee.AT_LEAST_ONCE:
            return "a row may be there twice; with mode: upsert and a versionColumn it is not", 4
        return None, 0


_CHECKS: tuple[Check[Any], ...] = (
    Check(
        lambda sink: sink.dead_letter is None or sink.dead_letter.table != sink.table,
        "is also the table of the output: its readers would get malformed records",
        "choose another table",
        cel="!has(self.deadLetter) || self.deadLetter.table != self.table",
        field="deadLetter",
    ),
    Check(
        lambda sink: (sink.mode == "upsert") == bool(sink.key),
        "mode upsert needs a key, and mode append has none",
        "add for instance key: [id], or write mode: append and no key",
        cel="(self.mode == 'upsert') == (has(self.key) && size(self.key) > 0)",
        field="key",
    ),
    Check(
        lambda sink: sink.mode == "upsert" or not (sink.version_column or sink.deleted_column),
        "versionColumn and deletedColumn belong to mode upsert",
        "write mode: upsert, or remove them",
        cel="self.mode == 'upsert' || !(has(self.versionColumn) || has(self.deletedColumn))",
        field="mode",
    ),
    Check(
        lambda sink: not (sink.version_column and sink.deleted_column),
        "must have at most one of versionColumn, deletedColumn: a row that is deleted has no version any more",
        "remove deletedColumn, and store it as a column of the table",
        cel="!(has(self.versionColumn) && has(self.deletedColumn))",
        field="deletedColumn",
    ),
    Check(
        lambda sink: (
            not {sink.version_column, sink.deleted_column} & set(sink.key) and len({*sink.key}) == len(sink.key)
        ),
        "must name each column once: neither versionColumn nor deletedColumn is part of the key",
        "remove it from the key",
        cel="!has(self.key) || (self.key.all(k, self.key.exists_one(other, other == k)) && "
        "(!has(self.versionColumn) || !(self.versionColumn in self.key)) && "
        "(!has(self.deletedColumn) || !(self.deletedColumn in self.key)))",
        field="key",
    ),
)


def _unversioned(context: SinkContext[PostgresSink]) -> Iterator[Broken]:
    sink = context.sink
    if context.output_mode is not None:
        return  # one transaction has the rows and the decision, under each guarantee
    if context.guarantee is not Guarantee.EXACTLY_ONCE and sink.mode == "upsert" and sink.version_column is None:
        yield Broken(f"{_PATH}.versionColumn")


def _of_updates(
    field: str, is_broken: Callable[[PostgresSink], bool], cel: str, message: str, remedy: str
) -> Validation[SinkContext[PostgresSink]]:
    """What cannot be with state.outputMode: update. field: below _PATH. cel: true of a sink that is right."""

    def find(context: SinkContext[PostgresSink]) -> Iterator[Broken]:
        if context.output_mode == "update" and is_broken(context.sink):
            yield Broken(f"{_PATH}.{field}")

    expression = f"!has(self.state) || self.state.outputMode != 'update' || !has(self.sink.postgres) || {cel}"
    fields = ("spec.state.outputMode", _PATH)
    return Validation(message, remedy, fields, find, cel=(Cel(expression, on="spec", at=f".sink.postgres.{field}"),))


_VALIDATIONS: tuple[Validation[SinkContext[PostgresSink]], ...] = (
    _of_updates(
        "mode",
        lambda sink: sink.mode != "upsert",
        "self.sink.postgres.mode == 'upsert'",
        "must be upsert with state.outputMode update: each micro-batch writes the groups that it has changed again",
        "write mode: upsert, and as key the columns that identify a group",
    ),
    _of_updates(
        "versionColumn",
        lambda sink: sink.version_column is not None,
        "!has(self.sink.postgres.versionColumn)",
        "cannot be set with state.outputMode update: the rows of a group are written in the order of the micro-batches",
        "remove it",
    ),
    Validation(
        "must be set for mode upsert unless the guarantee is exactly-once or the pipeline is stateful: rows of a "
        "driver that was replaced may arrive late, and a lower version is how the table refuses them",
        "name a column whose value grows with each change of a row, or declare guarantee: exactly-once",
        ("spec.guarantee", _PATH),
        _unversioned,
        cel=(
            Cel(
                "self.guarantee == 'exactly-once' || has(self.state) || !has(self.sink.postgres) || "
                "self.sink.postgres.mode != 'upsert' || has(self.sink.postgres.versionColumn)",
                on="spec",
                at=".sink.postgres.versionColumn",
            ),
        ),
    ),
)
