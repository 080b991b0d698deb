"""spec.sink: the sinks that exist, and those that are known by name and refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from ackwright.api.checks import Check, unchangeable_presence
from ackwright.api.fields import About, Model, exactly_one_of, fields
from ackwright.api.secret_fields import Kafka
from ackwright.api.violations import models_in
from ackwright.sinks.base import Sink
from ackwright.sinks.delta import DeltaSink
from ackwright.sinks.files import FilesSink
from ackwright.sinks.kafka import KafkaSink
from ackwright.sinks.postgres import PostgresSink

# A sink that is not built yet. Its fields are fixed when it is built; until then it is refused by name.
NotBuilt = Annotated[Mapping[str, Any] | None, About("Not available yet.")]


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
    iceberg: NotBuilt = None
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
    def declared(self) -> Sink | None:
        """The sink that the spec declares; None if it is not built yet."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if isinstance(value, Sink)), None)

    def with_cluster(self, kafka: Kafka | None) -> Self:
        """The same on another Kafka cluster; None: on the source's."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        sinks = {name: value.with_cluster(kafka) for name, value in values if isinstance(value, Sink)}
        return self.model_copy(update=sinks)

    @classmethod
    def built(cls) -> Mapping[str, type[Sink]]:
        """The sinks that exist, by name."""
        return {name: sink for name, sink in cls._sinks() if sink is not None}

    @classmethod
    def not_built(cls) -> tuple[str, ...]:
        """The names of sinks that are refused."""
        return tuple(name for name, sink in cls._sinks() if sink is None)

    @classmethod
    def _sinks(cls) -> Iterator[tuple[str, type[Sink] | None]]:
        for name, declared in fields(cls):
            models = models_in(declared.annotation)
            yield name, next((model for model in models if issubclass(model, Sink)), None)
