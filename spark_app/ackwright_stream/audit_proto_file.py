"""The part of .proto files that the bytes of messages depend on, as the audit reads it: in plain Python.

It shares neither code nor library with the job's reader. The registry has accepted a schema before it is read here, so
its syntax is not judged.
https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackwright_stream.audit_values import Undecodable

SCALARS = frozenset(
    [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
)
_TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | \s+ | (?P<token>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | [\w.]+ | [^\s])""",
    re.VERBOSE | re.DOTALL,
)
_SKIPPED = ("option", "reserved", "extensions", "extend", ";")
_WELL_KNOWN = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
message FieldMask { repeated string paths = 1; }
message DoubleValue { double value = 1; } message FloatValue { float value = 1; }
message Int32Value { int32 value = 1; } message Int64Value { int64 value = 1; }
message UInt32Value { uint32 value = 1; } message UInt64Value { uint64 value = 1; }
message BoolValue { bool value = 1; } message StringValue { string value = 1; } message BytesValue { bytes value = 1; }
"""
# Of a file that was registered as a descriptor, the parts that are needed; and how it names types.
DESCRIPTOR = """
syntax = "proto2";
message File {
  optional string package = 2; repeated Message message_type = 4; repeated Enum enum_type = 5;
  optional string syntax = 12;
}
message Message {
  optional string name = 1; repeated Field field = 2; repeated Message nested_type = 3; repeated Enum enum_type = 4;
  optional Options options = 7;
}
message Options { optional bool map_entry = 7; }
message Field {
  optional string name = 1; optional int32 number = 3; optional int32 label = 4; optional int32 type = 5;
  optional string type_name = 6; optional int32 oneof_index = 9; optional bool proto3_optional = 17;
}
message Enum { optional string name = 1; repeated Value value = 2; }
message Value { optional string name = 1; optional int32 number = 2; }
"""
_TYPE_NAMES = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)


@dataclass(frozen=True)
class Field:
    """A field of a message."""

    name: str
    number: int
    type: str  # of SCALARS, or a name to be resolved in `scope`
    scope: str
    label: str = ""  # optional, required, repeated, map, or none
    key: str = ""  # of a map: the type of its keys
    oneof: str = ""  # the name of the oneof that it is in


@dataclass
class Message:
    """A message with its messages in the order of their indexes."""

    full_name: str
    fields: list[Field] = field(default_factory=list)
    inner: list[Message] = field(default_factory=list)


@dataclass
class File:
    """A file: its messages, and everything that it defines by full name."""

    package: str = ""
    syntax: str = "proto2"
    messages: list[Message] = field(default_factory=list)
    by_name: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def resolve(self, name: str, scope: str) -> Message | list[tuple[str, int]]:
        """The message or the values of the enum that a name in a scope means. Raises Undecodable."""
        if name.startswith("."):
            scope, name = "", name[1:]
        while True:
            full = f"{scope}.{name}" if scope else name
            target = self.by_name.get(full) or self.enums.get(full) or WELL_KNOWN.by_name.get(full)
            if target is not None:
                return target
            if not scope:
                raise Undecodable(f"no type {name}")
            scope = scope.rpartition(".")[0]

    def has_presence(self, of: Field) -> bool:
        """Whether a message shows that a field is absent."""
        if of.label in ("repeated", "map", "required"):
            return False
        is_message = of.type not in SCALARS and isinstance(self.resolve(of.type, of.scope), Message)
        return bool(of.label == "optional" or of.oneof or self.syntax == "proto2" or is_message)


def parse(text: str) -> File:
    """A file of its text. Raises Undecodable."""
    try:
        return _Parser(text).file()
    except (IndexError, ValueError) as e:
        raise Undecodable(f"no .proto file: {e}") from None


class _Parser:
    """Reads the tokens of a file from the first to the last."""

    def __init__(self, text: str) -> None:
        self._tokens = [m["token"] for m in _TOKEN.finditer(text) if m["token"]]
        self._at = 0
        self._file = File()

    def file(self) -> File:
        while self._at < len(self._tokens):
            match self._next():
                case "syntax":
                    self._next()
                    self._file.syntax = self._next().strip("\"'")
                case "package":
                    self._file.package = self._next()
                case "message":
                    self._file.messages.append(self._message(self._file.package))
                case "enum":
                    self._enum(self._file.package)
                case "service" | "extend":
                    self._skip("}")
                case ";":
                    pass
                case _:
                    self._skip()
        return self._file

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _skip(self, end: str = ";") -> None:
        """Goes behind a statement; end: what ends it, outside of braces."""
        depth = 0
        while True:
            word = self._next()
            depth += (word == "{") - (word == "}")
            if depth == 0 and word == end:
                return

    def _message(self, scope: str) -> Message:
        name = self._next()
        message = Message(f"{scope}.{name}" if scope else name)
        self._file.by_name[message.full_name] = message
        self._expect("{")
        while (word := self._next()) != "}":
            self._element(message, word, "")
        return message

    def _element(self, message: Message, word: str, oneof: str) -> None:
        if word == "message" and not oneof:
            message.inner.append(self._message(message.full_name))
        elif word == "enum" and not oneof:
            self._enum(message.full_name)
        elif word == "oneof":
            name = self._next()
            self._expect("{")
            while (word := self._next()) != "}":
                self._element(message, word, name)
        elif word in _SKIPPED:
            self._at -= 1
            self._skip("}" if word == "extend" else ";")
        elif word == "map" and self._tokens[self._at] == "<":
            _, key, _, value, _ = (self._next() for _ in range(5))
            self._field(message, value, "map", key=key)
            entry = "".join(part[:1].upper() + part[1:] for part in message.fields[-1].name.split("_")) + "Entry"
            message.inner.append(Message(f"{message.full_name}.{entry}"))
        elif word in ("optional", "required", "repeated"):
            self._field(message, self._next(), word, oneof=oneof)
        else:
            self._field(message, word, "", oneof=oneof)

    def _field(self, message: Message, kind: str, label: str, *, key: str = "", oneof: str = "") -> None:
        name = self._next()
        self._expect("=")
        number = int(self._next(), 0)
        self._skip()  # its options
        message.fields.append(Field(name, number, kind, message.full_name, label, key, oneof))

    def _enum(self, scope: str) -> None:
        name, values = self._next(), list[tuple[str, int]]()
        self._expect("{")
        while (word := self._next()) != "}":
            if word in _SKIPPED:
                self._at -= 1
            else:
                self._expect("=")
                sign = self._next()
                values.append((word, -int(self._next(), 0) if sign == "-" else int(sign, 0)))
            self._skip()
        self._file.enums[f"{scope}.{name}" if scope else name] = values

    def _expect(self, word: str) -> None:
        if self._next() != word:
            raise ValueError(f"{word!r} expected")


WELL_KNOWN = File()
WELL_KNOWN = parse(_WELL_KNOWN)


def of_descriptor(described: Mapping[str, Any]) -> File:
    """A file of its descriptor, decoded by DESCRIPTOR."""
    file = File(described.get("package") or "", described.get("syntax") or "proto2")
    _add_enums(file, described, file.package)
    file.messages = [_described(file, m, file.package) for m in described.get("message_type") or ()]
    return file


def _described(file: File, described: Mapping[str, Any], scope: str) -> Message:
    message = Message(f"{scope}.{described['name']}" if scope else str(described["name"]))
    file.by_name[message.full_name] = message
    _add_enums(file, described, message.full_name)
    entries: dict[str, Sequence[Any]] = {}
    for inner in described.get("nested_type") or ():
        message.inner.append(_described(file, inner, message.full_name))
        if (inner.get("options") or {}).get("map_entry"):
            entries[message.inner[-1].full_name] = message.inner[-1].fields
    for f in described.get("field") or ():
        kind = f["type_name"] if f.get("type_name") else _TYPE_NAMES[f["type"]]
        label = ("", "optional", "required", "repeated")[f.get("label") or 1]
        is_implicit = file.syntax == "proto3" and label == "optional" and not f.get("proto3_optional")
        oneof = str(f["oneof_index"]) if f.get("oneof_index") is not None and not f.get("proto3_optional") else ""
        entry = entries.get(str(kind).lstrip("."))
        if entry is not None:
            key, value = entry
            message.fields.append(Field(f["name"], f["number"], value.type, message.full_name, "map", key.type))
        else:
            shown = "" if is_implicit else label
            message.fields.append(Field(f["name"], f["number"], kind, message.full_name, shown, "", oneof))
    return message


def _add_enums(file: File, described: Mapping[str, Any], scope: str) -> None:
    for enum in described.get("enum_type") or ():
        name = f"{scope}.{enum['name']}" if scope else enum["name"]
        file.enums[name] = [(v["name"], v.get("number") or 0) for v in enum.get("value") or ()]
