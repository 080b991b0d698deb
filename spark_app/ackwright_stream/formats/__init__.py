"""How bytes of records become columns and columns bytes: one module per Format, chosen here and nowhere else."""

from __future__ import annotations

from typing import assert_never

from ackwright_stream.formats import avro, binary, json, string
from ackwright_stream.formats.base import RecordFormat
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
        case Format.AVRO:
            return avro
        case _:
            assert_never(name)
