"""How bytes of records become columns and columns bytes: one module per Format, chosen here and nowhere else.

Those whose schemas are in a registry are imported by the first pipeline that declares them: their libraries would take
half of the time that a driver's imports take at its start, and a third of a Python worker's. The workers of such a
pipeline import them after they were forked, each for itself.
"""

from __future__ import annotations

from typing import assert_never

from ackwright_stream.formats import binary, json, string
from ackwright_stream.formats.base import RecordFormat
from ackwright_stream.formats.registered import RegisteredFormat
from ackwright_stream.jobspec import Format


def format_of(name: Format) -> RecordFormat:
    """The module of a format."""
    match name:
        case Format.BINARY:
            return binary
        case Format.STRING:
            return string
        case Format.JSON:
            return json
        case Format.AVRO | Format.JSON_SCHEMA | Format.PROTOBUF:
            return registered_format(name)
        case _:
            assert_never(name)


def registered_format(name: Format) -> RegisteredFormat:
    """The module of a format whose schemas are in a registry. Raises ValueError for another format."""
    match name:
        case Format.AVRO:
            from ackwright_stream.formats import avro

            return avro
        case Format.JSON_SCHEMA:
            from ackwright_stream.formats import json_schema

            return json_schema
        case Format.PROTOBUF:
            from ackwright_stream.formats import protobuf

            return protobuf
        case Format.BINARY | Format.STRING | Format.JSON:
            raise ValueError(f"the format {name} has no schemas in a registry")
        case _:
            assert_never(name)
