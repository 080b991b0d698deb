"""The formats of record values, and what each needs to be declared. A new format is declared here and in the job."""

from __future__ import annotations

from typing import assert_never

from ackwright_stream.jobspec import Format


def needs_schema(format: Format) -> bool:
    """Whether values of this format can only be read with a schema."""
    match format:
        case Format.BINARY | Format.STRING:
            return False
        case Format.JSON:
            return True
        case _:
            assert_never(format)


def writes_columns(format: Format) -> bool:
    """Whether a value of this format is written from several columns; otherwise the column `value` is the value."""
    match format:
        case Format.BINARY | Format.STRING:
            return False
        case Format.JSON:
            return True
        case _:
            assert_never(format)


WITH_SCHEMA = tuple(format for format in Format if needs_schema(format))
