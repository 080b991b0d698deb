"""The table of the tests without Kafka and Spark."""

from __future__ import annotations

import pytest

from integration.support.postgres import Database
from integration.support.postgres_stores import TABLE


@pytest.fixture
def rows_table(database: Database) -> None:
    """The database has a table `rows` for the rows that postgres_stores writes."""
    database.sql(TABLE)
