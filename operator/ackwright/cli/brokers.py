"""The option --bootstrap-servers: replaces the file's broker addresses, which pods use, by those for this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from ackwright.api.spec import DeliveryPipeline, Kafka

F = TypeVar("F", bound=Callable[..., Any])


def brokers_option(command: F) -> F:
    """Adds the option --bootstrap-servers, passed to the command as `bootstrap_servers`."""
    text = "Addresses of the brokers for this machine. Default: the addresses in the file."
    return click.option("--bootstrap-servers", metavar="HOST:PORT,...", help=text)(command)


def kafka_connection(declared: Kafka | None, servers: str | None) -> Kafka:
    """The declared connection, with `servers` as its addresses unless None.

    Raises click.BadParameter if `servers` is not a list of addresses.
    """
    connection = declared.model_dump(by_alias=True) if declared else {}
    if servers is not None:
        connection["bootstrapServers"] = servers
    try:
        return Kafka.model_validate(connection)
    except ValidationError as e:
        raise click.BadParameter(e.errors()[0]["msg"], param_hint="--bootstrap-servers") from e


def with_bootstrap_servers(pipeline: DeliveryPipeline, servers: str | None) -> DeliveryPipeline:
    """The pipeline with `servers` as its broker addresses unless None. Raises click.BadParameter for a bad address."""
    return pipeline if servers is None else with_kafka(pipeline, kafka_connection(pipeline.spec.kafka, servers))


def with_kafka(pipeline: DeliveryPipeline, kafka: Kafka) -> DeliveryPipeline:
    """The pipeline with this connection."""
    spec = pipeline.spec
    update = {"kafka": kafka, "sink": spec.sink.with_source_servers()}
    return pipeline.model_copy(update={"spec": spec.model_copy(update=update)})
