"""The operator's own settings, read once from the environment. Times are in seconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ackwright.errors import AckwrightError
from ackwright.shards import MAX_SHARDS, THE_ONLY_ONE, Shard, parse_shard
from ackwright_stream.jobspec import Reason

PREFIX = "ACKWRIGHT_"


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of the operator, without those of single pipelines."""

    namespaces: tuple[str, ...] = ()  # that are watched; empty: all
    own_namespace: str = "default"
    shard: Shard = THE_ONLY_ONE  # the share of the watched namespaces whose pipelines this operator reconciles
    spark_image: str = "ackwright-spark:latest"  # for pipelines that name none
    image_pull_policy: str = "IfNotPresent"
    # Secrets in the pipelines' namespaces with which the Spark image is pulled.
    image_pull_secrets: tuple[str, ...] = ()
    resync: float = 30.0  # each pipeline is reconciled at least this often
    progress_every: float = 10.0  # between requests for a driver's progress; longer with more than 200 pipelines
    settle: float = 300.0  # a change that takes longer makes the pipeline Stalled
    stuck: float = 180.0  # a driver with lag and without progress for this long is restarted
    node_lost: int = 15  # how long pods stay on a node that does not answer
    drain: int = 60  # how long a driver may take to complete its batch
    crash_delay_max: float = 120.0  # the longest pause before a failed driver is started again
    max_unavailable: int = 10  # pipelines whose drivers are replaced at once after an upgrade
    workers: int = 8  # pipelines that are reconciled at once
    replication_rate: int = 50 * 1024 * 1024  # of replicas that the operator moves, in bytes per second and broker
    metrics_port: int = 8080
    # What the platform allows in pipelines (planning/policy.py).
    allow_any_group: bool = False  # consumer groups whose names do not begin with the pipeline's namespace
    allowed_groups: tuple[str, ...] = ()  # namespace/group, of single ones of those
    allow_own_namespace: bool = False  # pipelines in the operator's own namespace
    allowed_servers: tuple[str, ...] = ()  # host:port or *.domain:port that pipelines may name; empty: any
    allowed_pod_fields: tuple[str, ...] = ()  # of podTemplate, such as nodeSelector; empty: all
    allowed_priority_classes: tuple[str, ...] = ()  # that podTemplate may name; empty: any


def from_environment(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from ACKWRIGHT_<NAME> variables.

    Absent ones keep their default. Raises AckwrightError with every invalid variable.
    """
    defaults = OperatorSettings()
    settings: dict[str, Any] = {}
    invalid = []
    for name, default in vars(defaults).items():
        variable = PREFIX + name.upper()
        text = environment.get(variable)
        if text is None:
            continue
        try:
            settings[name] = _parse(text, default)
        except ValueError:
            invalid.append(f"{variable} = {text!r}: must be {_form(default)}")
    if invalid:
        raise AckwrightError(Reason.INVALID_SPEC, "\n".join(invalid))
    return OperatorSettings(**settings)


def _form(default: object) -> str:
    if isinstance(default, Shard):
        return f"number/shards, with at most {MAX_SHARDS} shards; write for instance 1/2"
    return (
        "true or false; write for instance true"
        if isinstance(default, bool)
        else f"a positive number; write for instance {default}"
    )


def _parse(text: str, default: object) -> object:
    """The value, of the default's type. Raises ValueError."""
    if isinstance(default, tuple):
        # Without duplicates: server-side apply refuses a pod that names a pull Secret twice.
        return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if isinstance(default, str):
        return text
    if isinstance(default, Shard):
        return parse_shard(text)
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError
        return text == "true"
    number = int(text) if isinstance(default, int) else float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number
