"""The sink iceberg: an Apache Iceberg table, whose properties also hold the positions."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from ackwright.api.checks import Check, Validation, unchangeable
from ackwright.api.fields import About, ChangeClass, Model
from ackwright.api.quantities import IcebergColumn, Pattern, Region, RegistryUrl, Switch
from ackwright.api.secret_fields import S3, CaSecret, CredentialsSecret, TokenSecret
from ackwright.api.storage_fields import LOCATION, s3_settings
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS, Setting, Settings, values
from ackwright.sinks import table_state
from ackwright.sinks.base import Link, OutputSummary, SecretFile, Section, SinkContext, SinkSettings
from ackwright.sinks.letter_topic import SinkWithLetterTopic
from ackwright_stream import jobspec
from ackwright_stream.jobspec import Guarantee

_PATH = "spec.sink.iceberg"
_SQLITE = "sqlite:///"
_COMMIT: Settings = (
    Setting(
        "timeout.ms",
        str(TRANSACTION_TIMEOUT_MS),
        "a commit whose answer takes longer has an unknown outcome; the next one reads the positions again",
    ),
)
_COST = {
    Guarantee.AT_MOST_ONCE: "two snapshots of the table per micro-batch; the batch that a crash interrupts is lost",
    Guarantee.AT_LEAST_ONCE: "two snapshots of the table per micro-batch; the batch that a crash interrupts is written "
    "again",
    Guarantee.EXACTLY_ONCE: "one snapshot of the table per micro-batch; its rows become visible together",
}

CatalogUri = Annotated[
    str,
    Pattern(
        "^(https?://([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?"
        "|sqlite:///(/[A-Za-z0-9._=+-]+)+)$",
        "must be http:// or https:// with a host, or sqlite:/// with an absolute path",
        "write for instance https://catalog.example.com/iceberg",
        longest=1024,
    ),
]
Warehouse = Annotated[
    str,
    Pattern(
        "^[^\\s\\x00-\\x1f]{1,512}$",
        "must be at most 512 characters without spaces",
        "write the name of the warehouse, as the catalog has it",
        longest=512,
    ),
]
Scope = Annotated[
    str,
    Pattern(
        "^[!#-\\[\\]-~]+( [!#-\\[\\]-~]+)*$",
        "must be scopes of OAuth 2, with a space between them",
        "write for instance PRINCIPAL_ROLE:ALL",
        longest=512,
    ),
]
SigningName = Annotated[
    str,
    Pattern("^[a-z0-9-]{1,63}$", "must be the name of a service", "write for instance glue", longest=63),
]
TableName = Annotated[
    str,
    Pattern(
        "^[A-Za-z0-9_][A-Za-z0-9_-]*([.][A-Za-z0-9_][A-Za-z0-9_-]*)+$",
        "must be a namespace and a table with a dot between them, of letters, digits, '_' and '-'",
        "write for instance sales.orders",
        longest=255,
    ),
]


class IcebergTls(Model):
    """spec.sink.iceberg.catalog.tls."""

    ca_secret: Annotated[
        CaSecret | None,
        About("A Secret of the same namespace with the CA certificate that signed the catalog's certificate, in PEM."),
    ] = None


class SigV4(Model):
    """spec.sink.iceberg.catalog.sigv4."""

    service: Annotated[SigningName, About("The name of the service in signatures, for instance glue or s3tables.")]
    region: Annotated[Region, About("The region of the service.")]


class IcebergCatalog(Model):
    """spec.sink.iceberg.catalog."""

    uri: Annotated[
        CatalogUri,
        About(
            "The address of a REST catalog; with https it is verified. sqlite:////path, a file, is for ackwright run "
            "alone.",
            ChangeClass.RESTART,
            "it must lead to the catalog of the table that has the positions: without them the pipeline halts",
        ),
    ]
    warehouse: Annotated[
        Warehouse | None,
        About(
            "The name of the warehouse in the REST catalog. With sqlite: the directory or the s3://bucket/prefix of "
            "new tables."
        ),
        unchangeable(
            "the positions are in the table, and that of another warehouse has none",
            "write the old one, or create another pipeline",
        ),
    ] = None
    credentials_secret: Annotated[
        CredentialsSecret | None,
        About(
            "A Secret of the same namespace with the keys username (the client's id) and password (its secret), for "
            "tokens of OAuth 2; with sigv4 the access key's id and the secret access key. Default: no login; with "
            "sigv4 the identity of the job's pods."
        ),
    ] = None
    token_secret: Annotated[
        TokenSecret | None,
        About("A Secret of the same namespace with a bearer token, in place of a login. It is read for each request."),
    ] = None
    sigv4: Annotated[
        SigV4 | None, About("For catalogs of AWS, whose requests are signed (SigV4). Default: no signatures.")
    ] = None
    token_uri: Annotated[RegistryUrl | None, About("Where the client gets its tokens. Default: of the catalog.")] = None
    scope: Annotated[Scope | None, About("The scope of the tokens. Default: catalog.")] = None
    tls: Annotated[
        IcebergTls | None, About("For https. Without caSecret the CAs that the image trusts are trusted.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _CATALOG_CHECKS

    @property
    def is_file(self) -> bool:
        """Whether it is a file of SQLite."""
        return self.uri.startswith(_SQLITE)


class IcebergSink(SinkWithLetterTopic):
    """spec.sink.iceberg."""

    NAME = "iceberg"
    TAKES_DECISIONS = True
    COST_WITH_STATE = (
        "one snapshot of the table and one file beside the state per micro-batch; its rows become visible together"
    )

    catalog: Annotated[IcebergCatalog, About("The catalog of the table.")]
    table: Annotated[
        TableName,
        About("The table, with its namespace: namespace.table. Cannot be changed."),
        unchangeable(
            "the positions are in the table, and another one has none",
            "write the old table, or create another pipeline",
        ),
    ]
    partition_columns: Annotated[
        Annotated[tuple[IcebergColumn, ...], Field(max_length=32)],
        About("The columns that the table is partitioned by, in their order, as they are (identity)."),
    ] = ()
    create_table: Annotated[
        Switch,
        About("Create the table with the columns of the output, and its namespace, if they do not exist."),
    ] = False
    s3: Annotated[
        S3 | None,
        About(
            "How to reach the table's bucket. Without credentialsSecret the job uses what the catalog hands out, else "
            "the identity of its pods."
        ),
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _CHECKS

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[Any]], ...]:
        return (*super().validations(), *table_state.validations(cls.NAME))

    def data(self) -> Settings:
        catalog = self.catalog
        sigv4 = catalog.sigv4
        of_catalog = (
            ("warehouse", catalog.warehouse),
            ("tokenUri", catalog.token_uri),
            ("scope", catalog.scope),
            ("sigv4.service", sigv4 and sigv4.service),
            ("sigv4.region", sigv4 and sigv4.region),
        )
        columns = ", ".join(self.partition_columns)
        return (
            Setting("sink.catalog", catalog.uri, f"{_PATH}.catalog.uri"),
            *(Setting(f"sink.catalog.{name}", v, f"{_PATH}.catalog.{name}") for name, v in of_catalog if v),
            Setting("sink.table", self.table, f"{_PATH}.table"),
            *((Setting("sink.partitionColumns", columns, f"{_PATH}.partitionColumns"),) if columns else ()),
            Setting("sink.createTable", str(self.create_table).lower(), f"{_PATH}.createTable"),
            *(Setting(f"sink.s3.{name}", v, f"{_PATH}.s3.{name}") for name, v in s3_settings(self.s3)),
        )

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings()

    def sections(self, group: str) -> tuple[Section, ...]:
        return (Section("commit", "Commits to the Iceberg table", _COMMIT), *super().sections(group))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        caveat, weakness = self._caveat(guarantee)
        return Link("sink table", f"{self.table} in {self.catalog.uri}", _COMMIT, caveat, weakness)

    def named_columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"{_PATH}.partitionColumns", name) for name in self.partition_columns)

    def secrets(self) -> tuple[SecretFile, ...]:
        catalog, tls, s3 = self.catalog, self.catalog.tls, self.s3
        logins = (
            ("catalog_credentials", catalog.credentials_secret),
            ("credentials", s3.credentials_secret if s3 else None),
        )
        files = (("token", catalog.token_secret), ("ca", tls.ca_secret if tls else None))
        return (
            *(SecretFile(field, secret.name) for field, secret in logins if secret),
            *(SecretFile(field, secret.name, secret.key) for field, secret in files if secret),
        )

    def commit(self, group: str) -> Settings:
        return (
            Setting("positions", "properties of the table", "rows and positions are in one commit"),
            Setting("compare-and-set", "latest snapshot", "a commit that was overtaken is refused, and the table read"),
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
        return OutputSummary(f"Iceberg table {self.table}", reader, _COST[guarantee], "snapshot")

    def to_job(self, group: str) -> jobspec.IcebergSink:
        s3, catalog = self.s3 or S3(), self.catalog
        warehouse = catalog.warehouse
        return jobspec.IcebergSink(
            catalog="sql" if catalog.is_file else "rest",
            uri=catalog.uri,
            warehouse=warehouse.removeprefix("file://") if warehouse and catalog.is_file else warehouse,
            catalog_credentials=None,  # the paths of Secrets; see secrets()
            token_uri=catalog.token_uri,
            scope=catalog.scope,
            token=None,
            signing_service=catalog.sigv4.service if catalog.sigv4 else None,
            signing_region=catalog.sigv4.region if catalog.sigv4 else None,
            ca=None,
            table=self.table,
            partition_columns=self.partition_columns,
            create_table=self.create_table,
            endpoint=s3.endpoint,
            region=s3.region,
            credentials=None,
            commit=values(_COMMIT),
            dead_letters=self.letters_of_job,
        )

    def _caveat(self, guarantee: Guarantee) -> tuple[str | None, int]:
        """What the sink leaves open under a guarantee, and how much that matters."""
        if guarantee is Guarantee.AT_LEAST_ONCE:
            return "a row may be there twice", 4
        if self.catalog.is_file:
            return "the catalog is a file of one machine, which has one copy", 3
        return None, 0


def _has_login(catalog: IcebergCatalog) -> bool:
    """Whether it has what only a server needs."""
    return any(
        (
            catalog.credentials_secret,
            catalog.token_secret,
            catalog.token_uri,
            catalog.scope,
            catalog.sigv4,
            catalog.tls,
        )
    )


_CATALOG_CHECKS: tuple[Check[Any], ...] = (
    Check(
        lambda catalog: not catalog.is_file or re.match(LOCATION, catalog.warehouse or "") is not None,
        "a catalog in a file needs a warehouse that is an absolute directory or s3://bucket/prefix",
        "write for instance warehouse: /data/warehouse",
        cel=f"!self.uri.startsWith('sqlite:') || (has(self.warehouse) && self.warehouse.matches('{LOCATION}'))",
        field="warehouse",
    ),
    Check(
        lambda catalog: not (catalog.is_file and _has_login(catalog)),
        "a catalog in a file has no credentialsSecret, tokenSecret, tokenUri, scope, sigv4 and tls",
        "remove them, or write the address of a REST catalog in uri",
        cel="!self.uri.startsWith('sqlite:') || !(has(self.credentialsSecret) || has(self.tokenSecret) || "
        "has(self.tokenUri) || has(self.scope) || has(self.sigv4) || has(self.tls))",
        field="uri",
    ),
    Check(
        lambda catalog: (
            not (
                catalog.token_secret
                and (catalog.credentials_secret or catalog.token_uri or catalog.scope or catalog.sigv4)
            )
        ),
        "tokenSecret has the token, so credentialsSecret, tokenUri, scope and sigv4 mean nothing",
        "remove them, or tokenSecret",
        cel="!has(self.tokenSecret) || "
        "!(has(self.credentialsSecret) || has(self.tokenUri) || has(self.scope) || has(self.sigv4))",
        field="tokenSecret",
    ),
    Check(
        lambda catalog: not (catalog.sigv4 and (catalog.token_uri or catalog.scope)),
        "requests with sigv4 have no token of OAuth 2, so tokenUri and scope mean nothing",
        "remove them, or sigv4",
        cel="!has(self.sigv4) || !(has(self.tokenUri) || has(self.scope))",
        field="sigv4",
    ),
    Check(
        lambda catalog: catalog.tls is None or not catalog.uri.startswith("http://"),
        "tls is for an address that begins with https://",
        "write https:// in uri, or remove tls",
        cel="!has(self.tls) || !self.uri.startsWith('http://')",
        field="tls",
    ),
)
_CHECKS: tuple[Check[Any], ...] = (
    Check(
        lambda sink: len({*sink.partition_columns}) == len(sink.partition_columns),
        "must name each column once",
        "remove the one that is repeated",
        cel="!has(self.partitionColumns) || self.partitionColumns.all(c, "
        "self.partitionColumns.exists_one(other, other == c))",
        field="partitionColumns",
    ),
)
