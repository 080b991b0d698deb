"""What fastavro does not check when it resolves a writer's schema into the reader's: logical types and defaults.

https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from ackwright_stream.formats import avro_schema
from ackwright_stream.formats.avro_schema import kind_of
from ackwright_stream.formats.registered import Unsupported

_PROMOTED = {("int", "long"), ("string", "bytes")}  # to types that have logical types
_RANGES = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}


@dataclass(frozen=True)
class Parsed:
    """A schema without logical types."""

    source: Any  # as avro_schema.physical() has it
    schema: Any  # as fastavro has it
    names: Mapping[str, Any]  # the named types by full name, as fastavro has them


def parsed(text: str) -> Parsed:
    """A schema for fastavro. Raises Unsupported."""
    names: dict[str, Any] = {}
    try:
        source = avro_schema.physical(avro_schema.load(text))
        # A wrong default concerns only a reader that needs it: store_defaults().
        return Parsed(source, fastavro.parse_schema(source, names, _ignore_default_error=True), names)
    except Exception as e:  # fastavro raises what its parser meets
        raise Unsupported(clause(e)) from None


def clause(error: Exception) -> str:
    """The text of an error as a part of a sentence."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


# ------------------------------------------------ logical types


def misread_field(writer: Parsed, reader: Parsed) -> str | None:
    """The field that the reader's logical type gives another value, in a clause; None: there is none.

    The whole schema is refused then: fastavro resolves types without their logical types.
    """
    return _misread(writer.schema, reader.schema, writer.names, reader.names, "")


def _misread(
    written: Any, read: Any, of_writer: Mapping[str, Any], of_reader: Mapping[str, Any], at: str
) -> str | None:
    if isinstance(read, list):
        read = next(branch for branch in read if kind_of(branch) != "null")
    if isinstance(written, list):
        pairs = [(branch, read, at) for branch in written]
    else:
        written = of_writer.get(written, written) if isinstance(written, str) else written
        read = of_reader.get(read, read) if isinstance(read, str) else read
        kinds = kind_of(written), kind_of(read)
        if kinds[0] != kinds[1] and kinds not in _PROMOTED:
            return None
        if change := avro_schema.changed_meaning(written, read):
            return f"field {at} is {change[0]}, and the reader's schema has {change[1]}, which Avro does not convert"
        pairs = _parts(written, read, at)
    problems = (_misread(theirs, ours, of_writer, of_reader, path) for theirs, ours, path in pairs)
    return next((problem for problem in problems if problem), None)


def _parts(written: Any, read: Any, at: str) -> list[tuple[Any, Any, str]]:
    """The parts of two types of the same kind that are resolved into each other, with their paths."""
    match kind_of(written):
        case "array":
            return [(written["items"], read["items"], f"{at}[]")]
        case "map":
            return [(written["values"], read["values"], f"{at}{{}}")]
        case "record" if _has_name_of(written, read):
            fields = {alias: f for f in read["fields"] for alias in f.get("aliases", ())}
            fields |= {f["name"]: f for f in read["fields"]}
            common = [(f, fields[f["name"]]) for f in written["fields"] if f["name"] in fields]
            return [(theirs["type"], ours["type"], f"{at}.{ours['name']}".lstrip(".")) for theirs, ours in common]
    return []


def _has_name_of(written: Any, read: Any) -> bool:
    """Whether fastavro takes a record for one of the reader's, which is by the names without their namespaces."""
    name = written["name"].rpartition(".")[2]
    return name == read["name"].rpartition(".")[2] or not {name, written["name"]}.isdisjoint(read.get("aliases", ()))


# ------------------------------------------------ defaults


def store_defaults(reader: Parsed) -> list[str]:
    """Converts the defaults of a schema to decoded values: fastavro returns them as JSON has them.

    A default that is no value of its type is removed, so that a record without its field is malformed. Returns the
    names of such fields.
    """
    return _store_defaults(reader.schema, reader.names)


def _store_defaults(schema: Any, names: Mapping[str, Any]) -> list[str]:
    if isinstance(schema, list):
        return [name for branch in schema for name in _store_defaults(branch, names)]
    if not isinstance(schema, dict):
        return []
    removed = [name for part in ("items", "values") if part in schema for name in _store_defaults(schema[part], names)]
    for field in schema.get("fields", ()):
        removed += _store_defaults(field["type"], names)
        try:
            if "default" in field:
                field["default"] = _stored(field["type"], field["default"], names)
        except (ValueError, LookupError, OverflowError):
            del field["default"]
            removed.append(field["name"])
    return removed


def _stored(schema: Any, default: Any, names: Mapping[str, Any]) -> Any:
    """The default of a type as a decoded value. Raises ValueError, LookupError or OverflowError if it is none."""
    if isinstance(schema, list):
        if default is None and "null" in schema:
            return None
        schema = next(branch for branch in schema if branch != "null")
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    match kind_of(schema), default:
        case ("boolean", bool()) | ("string", str()):
            return default
        case ("int" | "long" as kind, int()) if not isinstance(default, bool) and default in _RANGES[kind]:
            return default
        case ("float" | "double", int() | float()) if not isinstance(default, bool):
            return float(default)
        case ("bytes", str()):
            return default.encode("latin-1")
        case ("fixed", str()) if len(default) == schema["size"]:
            return default.encode("latin-1")
        case ("enum", str()) if default in schema["symbols"]:
            return default
        case ("array", list()):
            return [_stored(schema["items"], item, names) for item in default]
        case ("map", dict()):
            return {key: _stored(schema["values"], value, names) for key, value in default.items()}
        case ("record", dict()):
            return {
                f["name"]: _stored(f["type"], default[f["name"]], names) if f["name"] in default else f["default"]
                for f in schema["fields"]
            }
    raise ValueError
