"""Catalog and table may say how to reach S3. What is declared counts."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from ackwright_stream.iceberg_catalog import CatalogClient
from ackwright_stream.jobspec import IcebergSink
from integration.support.iceberg_stores import Table, job, login

ELSEWHERE = {
    "s3.endpoint": "http://elsewhere:9000",
    "s3.region": "elsewhere-1",
    "s3.access-key-id": "theirs",
    "s3.secret-access-key": "their-secret",
    "s3.session-token": "their-token",
    "s3.request-timeout": "86400",
}


def test_what_is_declared_counts_and_so_do_limits_of_time(table: Table, tmp_path: Path) -> None:
    table.create(Schema(NestedField(1, "n", LongType())), properties=ELSEWHERE)
    own = job(
        tmp_path,
        table,
        endpoint="http://declared:9000",
        region="declared-1",
        credentials=login(tmp_path / "s3-login", "ours", "our-secret"),
    )
    opened = CatalogClient(own.sink_of(IcebergSink)).load()
    assert opened is not None
    read = opened.io.properties
    assert (read["s3.endpoint"], read["s3.region"]) == ("http://declared:9000", "declared-1")
    assert (read["s3.access-key-id"], read["s3.secret-access-key"]) == ("ours", "our-secret")
    assert read["s3.session-token"] == ""
    assert float(read["s3.request-timeout"]) < 60


def test_without_a_declaration_the_table_says_where_it_is(table: Table, tmp_path: Path) -> None:
    table.create(Schema(NestedField(1, "n", LongType())), properties=ELSEWHERE)
    opened = CatalogClient(job(tmp_path, table).sink_of(IcebergSink)).load()
    assert opened is not None
    for name in ELSEWHERE.keys() - {"s3.request-timeout"}:
        assert opened.io.properties[name] == ELSEWHERE[name]
