"""Columns by their names, which may hold any character."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def named(name: str) -> Column:
    """The column of a frame with this name. Unquoted, Spark takes a dot for a field of a struct."""
    return F.col("`" + name.replace("`", "``") + "`")
