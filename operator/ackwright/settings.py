"""The operator's own settings, read once from the environment and passed in. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

PREFIX = "ACKWRIGHT_"


@dataclass(frozen=True)
class OperatorSettings:
    """namespaces: the watched ones; empty: all. spark_image: for pipelines that name none. image_pull_secrets: names of
    the Secrets with which the Spark image is pulled; the kubelet looks for them in the pipeline's namespace.

    resync: a pipeline is looked at at least this often. progress_every: how often a running driver is asked; where there are more than
    500 pipelines less often, so that it stays at 50 a second. settle: how long a change may take before the pipeline counts as stalled.
    stuck: a driver with lag and without progress for this long is restarted. node_lost: how long pods stay on a node that does not answer.
    drain: how long a driver may take to end its batch.
    crash_delay_max: the longest pause before a driver that fails is tried again. workers: pipelines that are looked at at once.
    replication_rate: while replicas are copied for us, in bytes a second and broker.
    """

    namespaces: tuple[str, ...] = ()
    own_namespace: str = "default"
    spark_image: str = "ackwright-spark:latest"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    resync: float = 30.0
    progress_every: float = 10.0
    settle: float = 300.0
    stuck: float = 180.0
    node_lost: int = 15
    drain: int = 60
    crash_delay_max: float = 120.0
    workers: int = 8
    replication_rate: int = 50 * 1024 * 1024
    metrics_port: int = 8080


def from_environment(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from ACKWRIGHT_<NAME> variables; absent ones keep their default. Raises AckwrightError with every variable that is wrong."""
    defaults = OperatorSettings()
    given: dict[str, Any] = {}
    wrong = []
    for name, default in vars(defaults).items():
        variable = PREFIX + name.upper()
        text = environment.get(variable)
        if text is None:
            continue
        try:
            given[name] = _read(text, default)
        except ValueError:
            wrong.append(f"{variable} = {text!r}: must be a positive number; write for instance {default}")
    if wrong:
        raise AckwrightError(Reason.INVALID_SPEC, "\n".join(wrong))
    return OperatorSettings(**given)


def _read(text: str, default: object) -> object:
    if isinstance(default, tuple):
        # Each once: a pod that names a pull Secret twice is refused by server-side apply.
        return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if isinstance(default, str):
        return text
    number = int(text) if isinstance(default, int) else float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number
