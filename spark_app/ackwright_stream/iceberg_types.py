"""Columns of Iceberg tables as Spark's, and the other way round. Job and audit share it."""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

FIELD_ID = "parquet.field.id"  # in the metadata of a StructField, as Spark's reader of Parquet takes it

_TO_SPARK: dict[type[iceberg.IcebergType], type[DataType]] = {
    iceberg.BooleanType: BooleanType,
    iceberg.IntegerType: IntegerType,
    iceberg.LongType: LongType,
    iceberg.FloatType: FloatType,
    iceberg.DoubleType: DoubleType,
    iceberg.StringType: StringType,
    iceberg.BinaryType: BinaryType,
    iceberg.DateType: DateType,
    iceberg.TimestamptzType: TimestampType,
    iceberg.TimestampType: TimestampNTZType,
}
_TO_ICEBERG: dict[type[DataType], type[iceberg.IcebergType]] = {
    **{spark: table for table, spark in _TO_SPARK.items()},
    ByteType: iceberg.IntegerType,
    ShortType: iceberg.IntegerType,
}


class OtherType(DataType):  # type: ignore[misc]
    """A type of the table into which no column of an output fits."""

    def __init__(self, name: str) -> None:
        self._name = name

    def simpleString(self) -> str:
        return self._name


def to_spark(schema: Schema, *, ids: bool = False) -> StructType:
    """The table's columns. ids: whether the fields' metadata have the ids by which files are read."""
    return _struct(schema.fields, ids=ids)


def _struct(fields: tuple[iceberg.NestedField, ...], *, ids: bool) -> StructType:
    return StructType(
        [
            StructField(
                field.name,
                _to_spark(field.field_type, ids=ids),
                nullable=not field.required,
                metadata={FIELD_ID: field.field_id} if ids else None,
            )
            for field in fields
        ]
    )


def _to_spark(kind: iceberg.IcebergType, *, ids: bool) -> DataType:
    match kind:
        case iceberg.DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case iceberg.ListType():
            return ArrayType(_to_spark(kind.element_type, ids=ids), containsNull=not kind.element_required)
        case iceberg.StructType():
            return _struct(kind.fields, ids=ids)
        case _:
            spark = _TO_SPARK.get(type(kind))
            return spark() if spark else OtherType(str(kind))


def to_iceberg(schema: StructType) -> Schema:
    """A schema for a new table, all of whose columns may be null. The fields' ids are any; a catalog sets its own."""
    ids = iter(range(1, 1 << 31))

    def kind_of(kind: DataType) -> iceberg.IcebergType:
        match kind:
            case DecimalType():
                return iceberg.DecimalType(kind.precision, kind.scale)
            case ArrayType():
                return iceberg.ListType(next(ids), kind_of(kind.elementType), element_required=False)
            case StructType():
                return iceberg.StructType(*fields_of(kind))
            case _:
                return _TO_ICEBERG[type(kind)]()

    def fields_of(struct: StructType) -> list[iceberg.NestedField]:
        numbered = [(next(ids), field) for field in struct.fields]
        return [iceberg.NestedField(n, field.name, kind_of(field.dataType), required=False) for n, field in numbered]

    return Schema(*fields_of(schema))
