"""The formats of record values, and what each needs to be declared. A new format is declared here and in the job."""

from __future__ import annotations

from typing import assert_never

from ackwright_stream.jobspec import Format


def needs_schema(format: Format) -> bool:
    """Whether values of this format can only be read with a schema that the spec has."""
    match format:
        case Format.BINARY | Format.STRING | Format.AVRO | Format.JSON_SCHEMA | Format.PROTOBUF:
            return False
        case Format.JSON:
            return True
        case _:
            assert_never(format)


def needs_registry(format: Format) -> bool:
    """Whether the schemas of this format are in a schema registry."""
    match format:
        case Format.BINARY | Format.STRING | Format.JSON:
            return False
        case Format.AVRO | Format.JSON_SCHEMA | Format.PROTOBUF:
            return True
        case _:
            assert_never(format)


def schema_is_json(format: Format) -> bool:
    """Whether the text of a registered schema of this format is JSON."""
    match format:
        case Format.AVRO | Format.JSON_SCHEMA:
            return True
        case Format.BINARY | Format.STRING | Format.JSON | Format.PROTOBUF:
            return False
        case _:
            assert_never(format)


def subject_of(topic: str) -> str:
    """The subject of a topic's values, as producers name it by default (TopicNameStrategy)."""
    return f"{topic}-value"


def writes_columns(format: Format) -> bool:
    """Whether a value of this format is written from several columns; otherwise the column `value` is the value."""
    match format:
        case Format.BINARY | Format.STRING:
            return False
        case Format.JSON | Format.AVRO | Format.JSON_SCHEMA | Format.PROTOBUF:
            return True
        case _:
            assert_never(format)


def can_be_malformed(format: Format) -> bool:
    """Whether a value can break its format in a way that onMalformed: deadLetter is for."""
    return needs_schema(format) or needs_registry(format)


WITH_SCHEMA = tuple(format for format in Format if needs_schema(format))
WITH_REGISTRY = tuple(format for format in Format if needs_registry(format))
