"""How bytes of records become columns and columns bytes: one module per Format, chosen here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from ackwright_stream.formats import avro, binary, json, json_schema, protobuf, string
from ackwright_stream.formats.base import RecordFormat
from ackwright_stream.formats.registered import RegisteredFormat
from ackwright_stream.jobspec import Format

# The formats whose schemas are in a registry.
_REGISTERED: Mapping[Format, RegisteredFormat] = {
    Format.AVRO: avro,
    Format.JSON_SCHEMA: json_schema,
    Format.PROTOBUF: protobuf,
}


def registered_format(name: Format) -> RegisteredFormat:
    """The module of a format whose schemas are in a registry."""
    return _REGISTERED[name]


def format_of(name: Format) -> RecordFormat:
    """The module of a format."""
    match name:
        case Format.BINARY:
            return binary
        case Format.STRING:
            return string
        case Format.JSON:
            return json
        case Format.AVRO:
            return avro
        case Format.JSON_SCHEMA:
            return json_schema
        case Format.PROTOBUF:
            return protobuf
        case _:
            assert_never(name)
