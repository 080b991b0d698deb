"""`ackwright check -f` for Delta Lake, Iceberg and files: what the job's own check says. Nothing is created."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import NestedField
from pyspark.sql.types import IntegerType, StructField, StructType

from ackwright.cli import main
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import ExitCode
from integration.support import files_stores, iceberg_stores
from integration.support.pipelines import create_topics, document
from integration.support.run_cli import write_document
from integration.support.s3_server import (
    ADMIN,
    ADMIN_SECRET,
    BUCKET,
    KEY,
    READER,
    SECRET,
    TABLES,
    S3Server,
    files_of,
)

SINKS = ("delta", "iceberg", "files")
WRONG = "wrong-horse"
Check = dict[str, str]


class Checked:
    """`ackwright check` of a pipeline from a real topic into one sink."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self._servers, self._capsys = directory, kafka.bootstrap_servers, capsys
        create_topics(self._servers, "orders", partitions=1)
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        self.login("lake-login", KEY, SECRET)
        self.login("catalog-login", ADMIN, ADMIN_SECRET)

    def login(self, name: str, key: str, secret: str) -> None:
        """A Secret as a mounted directory."""
        (self.secrets / name).mkdir(exist_ok=True)
        (self.secrets / name / "username").write_text(key)
        (self.secrets / name / "password").write_text(secret)

    def __call__(self, sink: str, fields: dict[str, Any]) -> tuple[int, Check]:
        """The exit code, and the check of the sink."""
        described = document(self._servers, "p", "exactly-once", "orders", "not-used")
        described["spec"]["sink"] = {sink: fields}
        file = write_document(self.directory, described)
        self._capsys.readouterr()
        code = main.invoke(["check", "-f", str(file), "--secrets", str(self.secrets), "-o", "json"])
        out = self._capsys.readouterr().out
        assert WRONG not in out
        (check,) = [c for c in json.loads(out) if c["name"] in ("sink table", "sink files")]
        return code, check

    def failed(self, sink: str, fields: dict[str, Any], reason: str, *words: str) -> None:
        """Asserts that the check of the sink has failed for the reason, with the words in its remedy."""
        code, check = self(sink, fields)
        assert (code, check["verdict"]) == (ExitCode.UNAVAILABLE, "failed"), check
        assert check["found"].startswith(f"{reason}: "), check
        for word in words:
            assert word in check["remedy"], check


@pytest.fixture
def check(kafka: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(kafka, tmp_path, capsys)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3"), catalog=True) as started:
        yield started


def in_bucket(sink: str, s3: str, catalog: str, prefix: str) -> dict[str, Any]:
    """The sink on a server of S3, and its catalog, at these addresses."""
    storage = {"s3": {"endpoint": s3, "region": "us-east-1", "credentialsSecret": {"name": "lake-login"}}}
    if sink == "iceberg":
        login = {"credentialsSecret": {"name": "catalog-login"}}
        of_catalog = {"uri": catalog, "warehouse": f"s3://{TABLES}", **login}
        return {"catalog": of_catalog, "table": f"{prefix}.rows", **storage}
    return {"path": f"s3://{BUCKET}/{prefix}", **storage}


def creating(sink: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The same, where the job creates the table."""
    return fields if sink == "files" else {**fields, "createTable": True}


@pytest.mark.parametrize("sink", SINKS)
def test_what_the_job_will_create_is_not_created(check: Checked, server: S3Server, sink: str) -> None:
    fields = in_bucket(sink, server.endpoint, server.catalog, f"{sink}ok")
    code, result = check(sink, creating(sink, fields))
    assert (code, result["verdict"], result["remedy"]) == (ExitCode.OK, "ok", ""), result
    if sink == "files":
        everything = server.files().get_file_info(pafs.FileSelector(BUCKET, recursive=True))
        assert not [info.path for info in everything if f"{sink}ok" in info.path]
    else:
        missing = {"delta": f"there is no Delta table {fields.get('path')}", "iceberg": "there is no Iceberg table"}
        check.failed(sink, fields, "TableUnsuitable", missing[sink], "create it", "or set createTable: true")


@pytest.mark.parametrize("sink", SINKS)
def test_a_server_that_does_not_answer_is_named(check: Checked, sink: str) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    fields = creating(sink, in_bucket(sink, nobody, nobody, "orders"))
    check.failed(sink, fields, "SinkUnreachable", nobody.removeprefix("http://"))


@pytest.mark.parametrize("sink", SINKS)
def test_a_wrong_login_is_reported_without_it(check: Checked, server: S3Server, sink: str) -> None:
    for name, key in (("lake-login", KEY), ("catalog-login", ADMIN)):
        check.login(name, key, WRONG)
    fields = in_bucket(sink, server.endpoint, server.catalog, "orders")
    check.failed(sink, creating(sink, fields), "SinkLoginRefused")


def test_everything_that_is_wrong_with_a_delta_table_is_reported_at_once(check: Checked) -> None:
    path = check.directory / "table"
    columns = [
        Field("key", PrimitiveType("integer")),
        Field("day", PrimitiveType("date")),
        Field("amount", PrimitiveType("integer"), nullable=False),
    ]
    forgetting = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    DeltaTable.create(str(path), Schema(columns), partition_by=["day"], configuration=forgetting)
    check.failed(
        "delta",
        {"path": str(path)},
        "TableUnsuitable",
        "column 'key' is binary in the output and int in the table",
        "the table has no column 'value'",
        "column 'amount' of the table is NOT NULL",
        "it is partitioned by [day]",
        "lets the log forget positions",
    )
    assert DeltaTable(str(path)).version() == 0


def test_everything_that_is_wrong_with_an_iceberg_table_is_reported_at_once(check: Checked) -> None:
    table = iceberg_stores.Table(check.directory / "warehouse")
    table.create(
        IcebergSchema(
            NestedField(1, "key", iceberg.IntegerType()), NestedField(2, "amount", iceberg.IntegerType(), required=True)
        ),
        properties={"write.wap.enabled": "true"},
    )
    fields = {"catalog": {"uri": table.uri, "warehouse": table.warehouse}, "table": table.name}
    check.failed(
        "iceberg",
        fields,
        "TableUnsuitable",
        "column 'key' is binary in the output and int in the table",
        "the table has no column 'value'",
        "column 'amount' of the table is NOT NULL",
        "write.wap.enabled=true",
    )
    assert table.metadata["snapshots"] == []


def test_columns_that_do_not_fit_to_the_files_before_are_reported(check: Checked) -> None:
    path = check.directory / "files"
    columns = StructType([StructField("key", IntegerType()), StructField("Value", IntegerType())])
    files_stores.Driver(files_stores.job(check.directory, path), columns=columns)
    before = sorted(path.rglob("*"))
    check.failed(
        "files",
        {"path": str(path)},
        "TableUnsuitable",
        "column 'key' is binary in the output and int in files that were written before",
        "the files have a column 'Value' and the output has 'value'",
    )
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("sink", ["delta", "files"])
def test_a_bucket_that_does_not_exist_is_named(check: Checked, server: S3Server, sink: str) -> None:
    """The login may use every bucket. Another login gets AccessDenied, whether the bucket exists or not."""
    check.login("lake-login", ADMIN, ADMIN_SECRET)
    fields = {**in_bucket(sink, server.endpoint, server.catalog, "orders"), "path": "s3://no-such-bucket/orders"}
    check.failed(sink, creating(sink, fields), "TableUnsuitable", "s3://no-such-bucket", "there is no such bucket")


@pytest.mark.parametrize("exists", [True, False], ids=["existing", "new"])
@pytest.mark.parametrize("sink", ["delta", "files"])
def test_a_login_that_may_only_read_is_refused_and_nothing_is_written(
    check: Checked, server: S3Server, sink: str, *, exists: bool
) -> None:
    fields = in_bucket(sink, server.endpoint, server.catalog, f"{sink}{exists}")
    if exists:
        create(server, sink, fields["path"], check)
    before = files_of(server)
    check.login("lake-login", READER, SECRET)
    check.failed(sink, creating(sink, fields), "AuthorizationFailed", "grant the permission")
    check.login("lake-login", KEY, SECRET)
    assert check(sink, creating(sink, fields))[0] == ExitCode.OK
    assert files_of(server) == before


def create(server: S3Server, sink: str, path: str, check: Checked) -> None:
    """What a driver has to see before it writes: a table, or files."""
    if sink == "delta":
        login = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "aws_region": "us-east-1"}
        place = {"aws_endpoint_url": server.endpoint, "aws_allow_http": "true", "aws_conditional_put": "etag"}
        columns = [Field(name, PrimitiveType("binary")) for name in ("key", "value")]
        DeltaTable.create(path, Schema(columns), storage_options={**login, **place})
    else:
        place = {"endpoint": server.endpoint, "region": "us-east-1", "credentials": str(check.secrets / "lake-login")}
        files_stores.Driver(files_stores.job(check.directory, path, **place))
