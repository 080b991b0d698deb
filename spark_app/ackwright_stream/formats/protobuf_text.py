"""From the text of a .proto file to a descriptor, without protoc.

proto-schema-parser reads the syntax. Names are resolved, and the result is checked, by protobuf's descriptor pool.
Options are left out: they do not change the bytes of a message.
https://protobuf.dev/reference/protobuf/proto3-spec/, https://protobuf.dev/reference/protobuf/proto2-spec/
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from ackwright_stream.formats.registered import Unsupported

# The files that every compiler of .proto brings along.
_WELL_KNOWN = {
    pb2.DESCRIPTOR.name: pb2.DESCRIPTOR.serialized_pb
    for pb2 in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
        *("sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    None: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.OPTIONAL: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
}
_LARGEST_NUMBER = 536_870_911  # of a field


def file_of(text: str) -> FileDescriptorProto:
    """The descriptor of a file: from its text, or from a serialized descriptor in base64, as some clients register it.

    Raises Unsupported.
    """
    if re.fullmatch(r"[A-Za-z0-9+/\s]+=*\s*", text):
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text))
        except (ValueError, DecodeError) as e:
            raise Unsupported(f"it is neither a .proto file nor a descriptor: {e}") from None
        imports = [name for name in file.dependency if name in _WELL_KNOWN]
        for part in ("dependency", "public_dependency", "weak_dependency", "extension", "service", "options"):
            file.ClearField(part)
        file.dependency.extend(imports)
    else:
        file = _of_text(text)
    file.name = "schema.proto"
    return file


def first_message(file: FileDescriptorProto) -> Descriptor:
    """The first message of a file, which values are of unless they say otherwise. Raises Unsupported."""
    if not file.message_type:
        raise Unsupported("it has no message")
    pool = DescriptorPool()
    for name in file.dependency:
        pool.AddSerializedFile(_WELL_KNOWN[name])
    try:
        pool.AddSerializedFile(file.SerializeToString())
        message: Descriptor = pool.FindMessageTypeByName(_full(file.package, file.message_type[0].name))
        return message
    except (TypeError, KeyError) as e:
        raise Unsupported(" ".join(str(e).split())[:200]) from None


def message_name(file: FileDescriptorProto, indexes: Sequence[int]) -> str | None:
    """The full name of the message at a path of indexes; None: there is none."""
    name, messages = str(file.package), file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        name, messages = _full(name, messages[index].name), messages[index].nested_type
    return name


def _full(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


# ------------------------------------------------ from text


class _Raises(ErrorListener):  # type: ignore[misc]
    """The parser would skip what it does not understand, and print it."""

    def syntaxError(self, _recognizer: Any, _symbol: Any, line: int, column: int, msg: str, _e: Any) -> NoReturn:
        raise Unsupported(f"line {line}, column {column + 1}: {msg[:120]}")


def _only_raise(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Raises())


def _of_text(text: str) -> FileDescriptorProto:
    try:
        parsed = Parser(setup_lexer=_only_raise, setup_parser=_only_raise).parse(text)
    except Unsupported as e:
        raise Unsupported(f"it is no .proto file: {e}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise Unsupported(f"it is no .proto file: {' '.join(str(e).split())[:200]}") from None
    if parsed.edition is not None or parsed.syntax not in (None, "proto2", "proto3"):
        raise Unsupported(f"its syntax is {parsed.edition or parsed.syntax}; only proto2 and proto3 are supported")
    file, is_proto3 = FileDescriptorProto(syntax=parsed.syntax or "proto2"), parsed.syntax == "proto3"
    for element in parsed.file_elements:
        match element:
            case ast.Package():
                file.package = element.name
            case ast.Import() if element.name in _WELL_KNOWN:
                file.dependency.append(element.name)
            case ast.Message():
                file.message_type.append(_message(element, is_proto3))
            case ast.Enum():
                file.enum_type.append(_enum(element))
    return file


def _message(message: ast.Message, is_proto3: bool) -> DescriptorProto:
    result = DescriptorProto(name=message.name)
    for element in message.elements:
        match element:
            case ast.Field():
                result.field.append(_field(element))
            case ast.MapField():
                _add_map(result, element)
            case ast.OneOf():
                _add_oneof(result, element)
            case ast.Group():
                raise Unsupported(f"message {message.name} has the group {element.name}")
            case ast.Message():
                result.nested_type.append(_message(element, is_proto3))
            case ast.Enum():
                result.enum_type.append(_enum(element))
            case ast.Reserved():
                for first, last in map(_range, element.ranges):
                    result.reserved_range.add(start=first, end=last + 1)
    optional = {
        element.name
        for element in message.elements
        if isinstance(element, ast.Field) and element.cardinality is ast.FieldCardinality.OPTIONAL
    }
    for field in result.field if is_proto3 else ():
        if field.name in optional:  # its oneof is after the others, as protobuf requires
            result.oneof_decl.add(name=f"_{field.name}")
            field.oneof_index, field.proto3_optional = len(result.oneof_decl) - 1, True
    return result


def _add_oneof(message: DescriptorProto, oneof: ast.OneOf) -> None:
    message.oneof_decl.add(name=oneof.name)
    for member in oneof.elements:
        if isinstance(member, ast.Group):
            raise Unsupported(f"message {message.name} has the group {member.name}")
        if isinstance(member, ast.Field):
            message.field.append(_field(member))
            message.field[-1].oneof_index = len(message.oneof_decl) - 1


def _field(field: ast.Field) -> FieldDescriptorProto:
    result = FieldDescriptorProto(name=field.name, number=field.number, label=_LABELS[field.cardinality])
    _set_type(result, str(getattr(field.type, "type", field.type)))
    return result


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _add_map(message: DescriptorProto, field: ast.MapField) -> None:
    entry = message.nested_type.add(name="".join(map(_capital, field.name.split("_"))) + "Entry")
    entry.options.map_entry = True
    for name, number, kind in (("key", 1, field.key_type), ("value", 2, field.value_type)):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, str(kind))
    message.field.add(
        name=field.name, number=field.number, label=FieldDescriptorProto.LABEL_REPEATED, type_name=entry.name
    )


def _capital(part: str) -> str:
    return part[:1].upper() + part[1:]


def _enum(enum: ast.Enum) -> EnumDescriptorProto:
    result = EnumDescriptorProto(name=enum.name)
    for element in enum.elements:
        if isinstance(element, ast.EnumValue):
            result.value.add(name=element.name, number=element.number)
        elif isinstance(element, ast.Option) and element.name == "allow_alias":
            result.options.allow_alias = bool(element.value)
    return result


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    return int(first), _LARGEST_NUMBER if last.strip() == "max" else int(last or first)


def used_numbers(message: DescriptorProto) -> Iterator[tuple[str | None, int, int]]:
    """The numbers of a message: of its fields by name, and the reserved ranges without one; first and last."""
    for field in message.field:
        yield field.name, field.number, field.number
    for reserved in message.reserved_range:
        yield None, reserved.start, reserved.end - 1
