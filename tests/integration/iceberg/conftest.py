"""Tables in both kinds of catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.support.iceberg_server import RestCatalogServer
from integration.support.iceberg_stores import NAME, Table


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog that all tests share. A test leaves it running."""
    with RestCatalogServer(tmp_path_factory.mktemp("rest-catalog")) as server:
        yield server


@pytest.fixture(params=["sql", "rest"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table that a driver will create, in a file of SQLite and in a REST catalog."""
    if request.param == "sql":
        return Table(tmp_path / "warehouse")
    server: RestCatalogServer = request.getfixturevalue("rest_catalog")
    namespace, name = f"{NAME.split('.')[0]}{abs(hash(tmp_path)):x}", NAME.split(".")[1]
    return Table(server.warehouse / namespace, server, f"{namespace}.{name}")
