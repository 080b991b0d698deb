"""spec.sink: the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from ackwright.api.checks import Check, unchangeable_presence
from ackwright.api.fields import About, Model, exactly_one_of, fields
from ackwright.api.secret_fields import Kafka
from ackwright.api.violations import models_in
from ackwright.sinks.base import Sink
from ackwright.sinks.delta import DeltaSink
from ackwright.sinks.files import FilesSink
from ackwright.sinks.iceberg import IcebergSink
from ackwright.sinks.kafka import KafkaSink
from ackwright.sinks.postgres import PostgresSink


class SinkSpec(Model):
    """Exactly one sink. To register a new one, add its field."""

    kafka: Annotated[
        KafkaSink | None, About("Topics, of the cluster that the source is on or of the one at bootstrapServers.")
    ] = None
    postgres: Annotated[
        PostgresSink | None,
        About("A table of a PostgreSQL database, which holds the positions as well."),
        unchangeable_presence(
            "cannot be added or removed: the positions are in the database, and another sink has none",
            "write the old sink, or create another pipeline",
        ),
    ] = None
    delta: Annotated[
        DeltaSink | None,
        About("A Delta Lake table, which holds the positions as well."),
        unchangeable_presence(
            "cannot be added or removed: the positions are in the table, and another sink has none",
            "write the old sink, or create another pipeline",
        ),
    ] = None
    iceberg: Annotated[
        IcebergSink | None,
        About("An Apache Iceberg table, which holds the positions as well."),
        unchangeable_presence(
            "cannot be added or removed: the positions are in the table, and another sink has none",
            "write the old sink, or create another pipeline",
        ),
    ] = None
    files: Annotated[
        FilesSink | None,
        About("Parquet files in a directory or a bucket, which are the positions as well."),
        unchangeable_presence(
            "cannot be added or removed: the files are the positions, and another sink has none",
            "write the old sink, or create another pipeline",
        ),
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (exactly_one_of(cls),)

    @property
    def declared(self) -> Sink:
        """The sink of a spec that is valid."""
        sink = self.declared_if_valid
        if sink is None:
            raise ValueError("the spec has no sink; plan or validate it first")
        return sink

    @property
    def declared_if_valid(self) -> Sink | None:
        """The sink; None if its fields are wrong: then the rest of the spec is validated nevertheless."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if isinstance(value, Sink)), None)

    def with_cluster(self, kafka: Kafka | None) -> Self:
        """The same on another Kafka cluster; None: on the source's."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        sinks = {name: value.with_cluster(kafka) for name, value in values if isinstance(value, Sink)}
        return self.model_copy(update=sinks)

    @classmethod
    def kinds(cls) -> Mapping[str, type[Sink]]:
        """The models of the sinks, by name."""
        return {
            name: model
            for name, declared in fields(cls)
            for model in models_in(declared.annotation)
            if issubclass(model, Sink)
        }
