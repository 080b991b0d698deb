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
    kafka = connection(pipeline.spec.kafka, servers)
    return pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"kafka": kafka})})
