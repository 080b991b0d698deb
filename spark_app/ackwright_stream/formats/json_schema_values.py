"""JSON values with a schema from and to Arrow columns, and their validation.

jsonschema-rs validates a value by the schema that it names, by that schema's own draft. It retrieves nothing: a schema
of a registry must not make a worker send requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jsonschema_rs
import pyarrow as pa

from ackwright_stream.formats import json_schema_types
from ackwright_stream.formats.json_schema_types import JsonType
from ackwright_stream.formats.registered import MAGIC, PREFIX, Find, Unsupported, Writers, decoded_each

Convert = Callable[[Any], Any]  # from a parsed value to one for a column. Raises _Unfit
_LONG = 1 << 63


class _Unfit(ValueError):
    """A value that does not fit its column, in a clause."""


def validator(text: str) -> Any:
    """The validator of a schema. Raises Unsupported."""
    schema = json_schema_types.load(text)
    try:
        if isinstance(schema, dict) and "$schema" in schema:
            return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
        return jsonschema_rs.Draft7Validator(schema, validate_formats=False, offline=True)
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as e:
        raise Unsupported(_text(e)) from None


class Decoder:
    """Decodes records of any writer's schema into the columns of one reader's schema."""

    def __init__(self, schema: str, find: Find) -> None:
        self.type = json_schema_types.read(schema)
        self._convert = _converter(self.type, "$")
        self._writers = Writers(find, validator)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[str | None]]:
        """The records, of type self.type.arrow, and for each what is wrong with it. A null value is a null record.

        Raises what the function that finds schemas raises.
        """
        records, problems = decoded_each(values, self._writers, self._one)
        return pa.array(records, self.type.arrow), problems

    def _one(self, value: bytes, schema_id: int, of_writer: Any) -> tuple[Any, str | None]:
        try:
            parsed = parsed_json(value[PREFIX.size :])
            if not of_writer.is_valid(parsed):
                return None, f"it does not fit schema {schema_id}: {refusal(of_writer, parsed)}"
            return self._convert(parsed), None
        except _Unfit as e:
            return None, str(e)
        except (ValueError, RecursionError) as e:
            return None, f"it is not JSON: {_text(e)}"


class Encoder:
    """Frames texts that are valid for one schema."""

    def __init__(self, schema: str, schema_id: int) -> None:
        self._validator = validator(schema)
        self._prefix = PREFIX.pack(MAGIC, schema_id)

    def encode(self, texts: pa.Array) -> pa.Array:
        """The values of records; a null text is a null value. Raises ValueError for one that the schema refuses."""
        return pa.array([None if text is None else self._one(text) for text in texts.to_pylist()], pa.binary())

    def _one(self, text: str) -> bytes:
        value = json.loads(text)
        if not self._validator.is_valid(value):
            raise ValueError(refusal(self._validator, value))
        return self._prefix + text.encode()


def parsed_json(text: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError, RecursionError."""
    value = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    if b"\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def refusal(validator: Any, value: Any) -> str:
    """Where and why a validator refuses a value."""
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except ValueError as e:
        return _text(e)
    if error is None:
        return "it is not valid"
    return f"{_path(error.instance_path)}: {_text(error.message)}"


def _path(parts: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)


# ------------------------------------------------ from parsed values to columns


def _converter(kind: JsonType, path: str) -> Convert:
    convert = _not_null(kind, path)

    def nullable(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if kind.nullable:
            return None
        raise _Unfit(f"{path} is null, and the reader's schema does not allow it")

    return nullable


def _not_null(kind: JsonType, path: str) -> Convert:
    match kind.kind:
        case "object":
            return _object(kind, path)
        case "map":
            entry = _converter(kind.content, f"{path}{{}}")
            return lambda value: [(k, entry(v)) for k, v in _of(dict, value, kind, path).items()]
        case "array":
            item = _converter(kind.content, f"{path}[]")
            return lambda value: [item(v) for v in _of(list, value, kind, path)]
        case "string":
            return lambda value: _of(str, value, kind, path)
        case "boolean":
            return lambda value: _of(bool, value, kind, path)
        case "integer":
            return lambda value: _integer(value, kind, path)
        case _:
            return lambda value: _number(value, kind, path)


def _object(kind: JsonType, path: str) -> Convert:
    """Properties that the reader's schema does not have are left out."""
    fields = [(name, _converter(t, f"{path}.{name}"), name in kind.required) for name, t in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        record = _of(dict, value, kind, path)
        result = {}
        for name, field, required in fields:
            if name in record:
                result[name] = field(record[name])
            elif required:
                raise _Unfit(f"{path} lacks {name}, which the reader's schema requires")
        return result

    return convert


def _of(python: type, value: Any, kind: JsonType, path: str) -> Any:
    if type(value) is python:
        return value
    raise _Unfit(f"{path} is {json.dumps(value)[:80]}, and the reader's schema has the type {kind.kind}")


def _integer(value: Any, kind: JsonType, path: str) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() else _of(int, value, kind, path)
    if -_LONG <= number < _LONG:
        return int(number)
    raise _Unfit(f"{path} is an integer beyond 64 bits")


def _number(value: Any, kind: JsonType, path: str) -> float:
    if type(value) is not int and type(value) is not float:
        _of(float, value, kind, path)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isfinite(number):
        return number
    raise _Unfit(f"{path} is a number beyond 64 bits")


def _text(error: object) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
