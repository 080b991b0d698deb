"""Pipelines with JSON whose schemas are in a real registry. The tests write and read with Python's json alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from integration.support.avro_pipelines import AvroPipeline

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "item": {"type": "string", "minLength": 1},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["id", "item"],
    "additionalProperties": False,
}
# A producer's next version: a property more, and another order.
NEWER = {**ORDER, "properties": {"note": {"type": ["null", "string"]}, **ORDER["properties"]}}


class JsonSchemaPipeline(AvroPipeline):
    """One pipeline from JSON to JSON, with schemas."""

    FORMAT: ClassVar[str] = "jsonSchema"
    TYPE: ClassVar[str] = "JSON"
    ORDER: ClassVar[Any] = ORDER
    SQL: ClassVar[str] = (
        "SELECT kafka.key AS key, id, upper(item) AS item, price * 2 AS double_price, CAST(at AS TIMESTAMP) AS at "
        "FROM source"
    )

    def encode(self, schema_id: int, record: Any, schema: object = None) -> bytes:
        more = {"note": "new"} if "note" in json.dumps(schema) else {}
        return struct.pack(">bI", 0, schema_id) + json.dumps({**record, **more}).encode()

    def decode(self, schema_id: int, datum: bytes) -> Any:
        return json.loads(datum)

    @staticmethod
    def record(partition: int, n: int) -> dict[str, Any]:
        at = datetime.fromtimestamp(1_700_000_000 + n, UTC).replace(microsecond=123_456)
        return {"id": partition * 1_000_000 + n, "item": f"item {n}", "price": n / 8, "at": at.isoformat()}

    def expected(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "id": sent["id"],
            "item": sent["item"].upper(),
            "double_price": sent["price"] * 2,
            "at": sent["at"].replace("+00:00", "Z"),
        }
