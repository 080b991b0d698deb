"""What the audit's readers of formats with a schema registry share. It shares no code with the job's formats."""

from __future__ import annotations

import decimal
import json
from itertools import pairwise
from typing import Any

import pyarrow as pa

DIGITS = decimal.Context(prec=400)


class Undecodable(Exception):
    """Bytes that are no record of their schema, or schemas that do not resolve."""


def text(record: Any) -> bytes:
    """The content of a record of plain values: a map is a list of pairs, times are numbers."""
    return json.dumps(_plain(record), sort_keys=True, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and isinstance(value[0], tuple)
        return {key: _plain(v) for key, v in value} if pairs else [_plain(v) for v in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value.normalize(DIGITS))}
    if isinstance(value, float):
        return {"float": repr(value)}
    return value


def values(array: pa.Array) -> list[Any]:
    """A column's values: times as numbers, maps as lists of pairs."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        rows: list[Any] = [
            dict(zip(names, row, strict=True)) for row in zip(*map(values, array.flatten()), strict=True)
        ]
    elif pa.types.is_map(kind):
        keys, items, ends = array.keys.to_pylist(), values(array.items), array.offsets.to_pylist()
        rows = [list(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(ends)]
    elif pa.types.is_list(kind):
        items, ends = values(array.values), array.offsets.to_pylist()
        rows = [items[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    elif pa.types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    else:
        return array.to_pylist()  # type: ignore[no-any-return]
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
