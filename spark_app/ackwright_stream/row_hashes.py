"""Hashes of rows, which Spark computes: from their sums the driver sees whether two evaluations had the same output.

Two columns follow those of the output. A sum does not depend on the order of the rows: tasks get their input in any
order, so their output has any order, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from ackwright_stream.column_names import named

_COLUMNS = 2  # hashes of 64 bits with different seeds
_WORD = 8  # bytes of a sum, modulo 2**64


def with_hashes(rows: DataFrame) -> DataFrame:
    """The rows, with their hashes in the last columns."""
    # xxhash64 passes over nulls, so (null, 'a') would be ('a', null).
    values = [value for field in rows.schema.fields for value in (_hashable(field), named(field.name).isNull())]
    hashes = (F.xxhash64(F.lit(seed), *values).alias(f"hash-{seed}") for seed in range(_COLUMNS))
    return rows.select("*", *hashes)


def split(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, bytes]:
    """The rows of with_hashes() without their hashes, and the sums of these."""
    size = rows.num_columns - _COLUMNS
    sums = (hashes.to_numpy().astype(np.uint64).sum() for hashes in rows.columns[size:])
    return rows.select(range(size)), b"".join(int(each).to_bytes(_WORD) for each in sums)


def total(sums: Iterable[bytes]) -> bytes:
    """The sums of some rows and others."""
    totals = [0] * _COLUMNS
    for each in sums:
        for word in range(_COLUMNS):
            totals[word] += int.from_bytes(each[word * _WORD : (word + 1) * _WORD])
    return b"".join((each % (1 << 8 * _WORD)).to_bytes(_WORD) for each in totals)


def _hashable(field: StructField) -> Column:
    """A column of a type that xxhash64 takes."""
    return named(field.name).cast("string") if _has_map(field.dataType) else named(field.name)


def _has_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in kind)
        case _:
            return False
