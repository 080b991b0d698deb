"""Brokers that this machine reaches by another address than pods do, whose address is the file's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from ackwright.api.spec import DeliveryPipeline, Kafka

F = TypeVar("F", bound=Callable[..., Any])


def brokers_option(command: F) -> F:
    """--bootstrap-servers, passed on as `bootstrap_servers`."""
    text = "Where the brokers are reached from here; default: those in the file."
    return click.option("--bootstrap-servers", metavar="HOST:PORT,...", help=text)(command)


def connection(declared: Kafka | None, servers: str | None) -> Kafka:
    """What is declared, at the servers if any are given. Raises click.BadParameter if they are no addresses."""
    given = declared.model_dump(by_alias=True) if declared else {}
    try:
        return Kafka.model_validate({**given, **({"bootstrapServers": servers} if servers is not None else {})})
    except ValidationError as e:
        raise click.BadParameter(e.errors()[0]["msg"], param_hint="--bootstrap-servers") from e


def reached(pipeline: DeliveryPipeline, servers: str | None) -> DeliveryPipeline:
    """The pipeline, at the servers if any are given. Raises click.BadParameter likewise."""
    return pipeline if servers is None else moved(pipeline, connection(pipeline.spec.kafka, servers))


def moved(pipeline: DeliveryPipeline, kafka: Kafka) -> DeliveryPipeline:
    """The pipeline with these brokers. It keeps the rules (planning.rules), so an address of the sink's own is that of its brokers so far,
    and goes with them."""
    spec = pipeline.spec
    to = spec.sink.kafka.model_copy(update={"bootstrap_servers": None}) if spec.sink.kafka else None
    update = {"kafka": kafka, "sink": spec.sink.model_copy(update={"kafka": to})}
    return pipeline.model_copy(update={"spec": spec.model_copy(update=update)})
