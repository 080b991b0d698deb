"""Pipelines with Protobuf messages whose schemas are in a real registry. The tests have their own message classes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from integration.support.avro_pipelines import AvroPipeline

ORDER = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string item = 2;
  optional double price = 3;
  google.protobuf.Timestamp at = 4;
}
message Other { int64 id = 1; }
"""
# A producer's next version: a field more.
NEWER = ORDER.replace("  int64 id = 1;\n  string item", "  string note = 9;\n  int64 id = 1;\n  string item")
MICROS = 1_000_000


def _message(package: str, **fields: tuple[int, int | str]) -> Any:
    """A class of messages with the fields, by their numbers and types."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="M")
    for name, (number, kind) in fields.items():
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type_name = kind
        else:
            field.type = kind
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{package}.M"))


_IN = _message(
    "source",
    id=(1, Field.TYPE_INT64),
    item=(2, Field.TYPE_STRING),
    price=(3, Field.TYPE_DOUBLE),
    at=(4, ".google.protobuf.Timestamp"),
    note=(9, Field.TYPE_STRING),
)
_OUT = _message(
    "sink",
    id=(1, Field.TYPE_INT64),
    item=(2, Field.TYPE_STRING),
    double_price=(3, Field.TYPE_DOUBLE),
    at=(4, ".google.protobuf.Timestamp"),
)


class ProtobufPipeline(AvroPipeline):
    """One pipeline from Protobuf to Protobuf."""

    FORMAT: ClassVar[str] = "protobuf"
    TYPE: ClassVar[str] = "PROTOBUF"
    ORDER: ClassVar[Any] = ORDER

    def encode(self, schema_id: int, record: Any, schema: object = None) -> bytes:
        more = {"note": "new"} if schema == NEWER else {}
        seconds, micros = divmod(record["at"], MICROS)
        message = _IN(**{**record, **more, "at": {"seconds": seconds, "nanos": micros * 1000}})
        return struct.pack(">bI", 0, schema_id) + b"\0" + bytes(message.SerializeToString())

    def decode(self, schema_id: int, datum: bytes) -> Any:
        assert datum[:1] == b"\0"
        message = _OUT.FromString(datum[1:])
        at = message.at.seconds * MICROS + message.at.nanos // 1000
        return {"id": message.id, "item": message.item, "double_price": message.double_price, "at": at}

    @staticmethod
    def record(partition: int, n: int) -> dict[str, Any]:
        at = int(datetime.fromtimestamp(1_700_000_000 + n, UTC).timestamp()) * MICROS + 123_456
        return {"id": partition * 1_000_000 + n, "item": f"item {n}", "price": n / 8, "at": at}

    def expected(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "id": sent["id"],
            "item": sent["item"].upper(),
            "double_price": sent["price"] * 2,
            "at": sent["at"],
        }
