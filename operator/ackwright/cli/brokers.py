"""The option --bootstrap-servers: replaces the file's broker addresses, which pods use, by those for this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from ackwright.api.spec import DeliveryPipeline, Kafka
from ackwright.cli.failures import UNSET_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])
_SINK_OPTION = "--sink-bootstrap-servers"


def brokers_option(command: F) -> F:
    """Adds the option --bootstrap-servers, passed to the command as `bootstrap_servers`."""
    text = "Addresses of the brokers for this machine. Default: the addresses in the file."
    return click.option("--bootstrap-servers", metavar="HOST:PORT,...", help=text)(command)


def sink_brokers_option(command: F) -> F:
    """Adds the option --sink-bootstrap-servers, passed to the command as `sink_bootstrap_servers`."""
    text = "The same for the sink, if the file names brokers for it."
    return click.option(_SINK_OPTION, metavar="HOST:PORT,...", help=text)(command)


def kafka_connection(declared: Kafka | None, servers: str | None, option: str = "--bootstrap-servers") -> Kafka:
    """The declared connection, with `servers` as its addresses unless None.

    Raises click.BadParameter for the option if `servers` is not a list of addresses.
    """
    connection = declared.model_dump(by_alias=True) if declared else {}
    if servers is not None:
        _require_value(servers, option)
        connection["bootstrapServers"] = servers
    try:
        return Kafka.model_validate(connection)
    except ValidationError as e:
        raise click.BadParameter(e.errors()[0]["msg"], param_hint=option) from e


def _require_value(servers: str, option: str) -> None:
    """Raises click.BadParameter if the shell has expanded the option's value to nothing."""
    if not servers.strip():
        raise click.BadParameter(f"the value is empty; {UNSET_VARIABLE}", param_hint=option)
    if servers.startswith("-"):
        message = f"the value is missing: {servers} is the next option; {UNSET_VARIABLE}"
        raise click.BadParameter(message, param_hint=option)


def with_bootstrap_servers(
    pipeline: DeliveryPipeline, servers: str | None, sink_servers: str | None = None
) -> DeliveryPipeline:
    """The pipeline with these addresses of its brokers, unless None. sink_servers: of the sink's own cluster.

    Raises click.BadParameter for a bad address, and for sink_servers if the sink is on the source's.
    """
    kafka, sink = kafka_connection(pipeline.spec.kafka, servers), pipeline.spec.sink.declared
    at_sink = sink.cluster()
    if sink_servers is not None:
        if at_sink is None:
            raise click.BadParameter("the sink of the file has no bootstrapServers", param_hint=_SINK_OPTION)
        at_sink = kafka_connection(at_sink, sink_servers, _SINK_OPTION)
    return with_kafka(pipeline, kafka, at_sink)


def with_kafka(pipeline: DeliveryPipeline, kafka: Kafka, at_sink: Kafka | None = None) -> DeliveryPipeline:
    """The pipeline with this connection. at_sink: that to the sink's cluster; None: it is on the source's."""
    spec = pipeline.spec
    update = {"kafka": kafka, "sink": spec.sink.with_cluster(at_sink)}
    return pipeline.model_copy(update={"spec": spec.model_copy(update=update)})
