"""Tables in both kinds of catalogs."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.iceberg_server import RestCatalogServer
from integration.support.iceberg_stores import NAME, Table


@pytest.fixture(params=["sql", "rest"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table that a driver will create, in a file of SQLite and in a REST catalog."""
    if request.param == "sql":
        return Table(tmp_path / "warehouse")
    server: RestCatalogServer = request.getfixturevalue("rest_catalog")
    namespace, name = f"{NAME.split('.')[0]}{abs(hash(tmp_path)):x}", NAME.split(".")[1]
    return Table(server.warehouse / namespace, server, f"{namespace}.{name}")
