"""From a plan to the jobspec: the plan's values and what depends on the place where the job runs. Pure.

A jobspec contains the paths of mounted credentials and never a credential.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ackwright.api.spec import Kafka
from ackwright.errors import AckwrightError
from ackwright.planning.clusters import ClusterRole
from ackwright.planning.connection import Connection, RegistryConnection, connection
from ackwright.planning.guarantees import values
from ackwright.planning.plan import DeliveryPlan
from ackwright_stream.jobspec import Cluster, JobSpec, SchemaRegistry, SinkSpec, StateSettings
from ackwright_stream.reasons import Reason

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
# A driver that is its own executor expires it after it was suspended for longer than spark.network.timeout (a laptop
# that sleeps), never registers it again, and ends after sixty failed heartbeats.
_NO_EXPIRY = {"spark.storage.blockManagerHeartbeatTimeoutMs": "3650d"}


def jobspec(
    plan: DeliveryPlan,
    *,
    master: str,  # Spark's
    secrets: PurePosixPath | str | None,  # directory with the files <secret>/<key>; None: the plan needs no Secret
    identity: str = "",  # as JobSpec.identity; "": the job commits positions that every pipeline may take over
    progress_host: str = "127.0.0.1",
    progress_port: int = 0,
    expects_positions: bool = False,  # as Accepted.expects_positions
    checkpoint: str | None = None,  # directory of a mounted volume; None: the plan's
    # Spark settings of the place (jars, addresses); they override the plan's.
    spark_extra: Mapping[str, str] | None = None,
) -> JobSpec:
    """The jobspec of a plan in one place. Raises AckwrightError if the plan names a Secret and secrets is None."""
    spark = values(plan.spark)
    return JobSpec(
        name=plan.name,
        namespace=plan.namespace,
        guarantee=plan.guarantee,
        group=plan.group,
        identity=identity,
        cluster=replace(_cluster(plan.connection, secrets), every_client=values(plan.every_client)),
        schema_registry=_registry(plan.schema_registry, secrets) if plan.schema_registry else None,
        source=plan.source,
        transform=plan.transform,
        sink=_sink(plan, secrets),
        slots=threads(master) or plan.slots,
        autoscaling=None if is_local(master) else plan.autoscaling,
        state=_state(plan, checkpoint, secrets),
        producer=values(plan.producer),
        positions_consumer=values(plan.positions_consumer),
        topic_consumer=values(plan.topic_consumer),
        sink_options=values(plan.sink_options),
        consumer=values(plan.consumer),
        spark={
            **spark,
            "spark.master": with_retries(master, spark["spark.task.maxFailures"]),
            **(_NO_EXPIRY if is_local(master) else {}),
            **(spark_extra or {}),
        },
        stream_options=values(plan.stream_options),
        accepted_losses=plan.accepted_losses,
        accepted_positions=plan.accepted_positions,
        accepted_state_loss=plan.accepted_state_loss,
        trigger_interval_ms=plan.trigger_interval_ms,
        available_now=plan.available_now,
        standby=plan.standby,
        checkpoint=plan.checkpoint if checkpoint is None else checkpoint,
        progress_host=progress_host,
        progress_port=progress_port,
        operation_timeout_ms=plan.operation_timeout_ms,
        restart=plan.restart,
        # With the sink in Kafka the records of lanes tell (docs/protocol.md#rule-4).
        expects_positions=expects_positions and not plan.sink.in_kafka,
    )


def is_local(master: str) -> bool:
    """Whether the driver is the only executor."""
    return master == "local" or master.startswith("local[")


def threads(master: str) -> int | None:
    """How many tasks a local master runs at a time; None for another master, and where the machine decides."""
    number = re.match(r"local\[([0-9]+)[],]", master)
    return int(number[1]) if number else 1 if master == "local" else None


def with_retries(master: str, attempts: str) -> str:
    """local[n] as local[n,attempts]: a local master ignores spark.task.maxFailures and fails the job at the first
    failure.

    https://spark.apache.org/docs/latest/submitting-applications.html#master-urls
    """
    if master == "local":
        return f"local[1,{attempts}]"
    threads = re.fullmatch(r"local\[(\*|[0-9]+)\]", master)
    return f"local[{threads[1]},{attempts}]" if threads else master


def clusters(plan: DeliveryPlan, secrets: PurePosixPath | str | None) -> dict[ClusterRole, Cluster]:
    """The connection to each Kafka cluster of a plan, as cluster() has it."""
    declared = {ClusterRole.SOURCE: plan.connection, ClusterRole.SINK: plan.sink_connection}
    return {role: _cluster(to, secrets) for role, to in declared.items() if to}


def cluster(kafka: Kafka, secrets: PurePosixPath | str | None) -> Cluster:
    """The declared connection, for either client. Raises AckwrightError if it names a Secret and secrets is None."""
    return _cluster(connection(kafka), secrets)


def _cluster(declared: Connection, secrets: PurePosixPath | str | None) -> Cluster:
    shared = values(declared.settings)
    servers = shared.pop("bootstrap.servers")
    librdkafka, java = dict(shared), dict(shared)
    credentials = None
    if ca := declared.ca_secret:
        file = str(_mounted(secrets, ca.name, ca.key) / ca.key)
        librdkafka["ssl.ca.location"] = file
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": file}
    if declared.mechanism and declared.credentials_secret:
        credentials = str(_mounted(secrets, declared.credentials_secret, "username and password"))
        java |= _login(_LOGIN_MODULES[declared.mechanism], credentials)
    return Cluster(bootstrap_servers=servers, librdkafka=librdkafka, java=java, credentials=credentials)


def _sink(plan: DeliveryPlan, secrets: PurePosixPath | str | None) -> SinkSpec:
    """The sink's part of the jobspec, with the paths of its Secrets, and the connection to its own cluster."""
    sink = plan.sink
    places: dict[str, Any] = {}
    for secret in sink.secrets:
        directory = _mounted(secrets, secret.name, secret.key or "username and password")
        places[secret.field] = str(directory / secret.key) if secret.key else str(directory)
    if plan.sink_connection:
        connected = _cluster(plan.sink_connection, secrets)
        places["cluster"] = replace(connected, every_client=values(plan.every_client))
    return replace(sink.job, **places)


def _state(plan: DeliveryPlan, directory: str | None, secrets: PurePosixPath | str | None) -> StateSettings | None:
    """Where the state is: in a bucket with its credentials, or in the directory."""
    if plan.state is None or plan.state.bucket is None:
        return replace(plan.state, checkpoint=directory or "") if plan.state else None
    if plan.state_secret is None:
        return plan.state
    return replace(plan.state, credentials=str(_mounted(secrets, plan.state_secret, "username and password")))


def _registry(declared: RegistryConnection, secrets: PurePosixPath | str | None) -> SchemaRegistry:
    credentials = ca = None
    if declared.credentials_secret:
        credentials = str(_mounted(secrets, declared.credentials_secret, "username and password"))
    if secret := declared.ca_secret:
        ca = str(_mounted(secrets, secret.name, secret.key) / secret.key)
    return SchemaRegistry(declared.url, credentials, ca, declared.timeout_ms)


def _login(module: str, directory: str) -> dict[str, str]:
    """Settings with which Java reads the credentials itself when it connects (KIP-297, KIP-421), and from no other
    directory (KIP-993)."""
    username, password = (f"${{directory:{directory}:{key}}}" for key in ("username", "password"))
    return {
        "config.providers": "directory",
        "config.providers.directory.class": _PROVIDER,
        "config.providers.directory.param.allowed.paths": directory,
        "sasl.jaas.config": f'{module} required username="{username}" password="{password}";',
    }


def _mounted(secrets: PurePosixPath | str | None, name: str, keys: str) -> PurePosixPath:
    if secrets is None:
        raise AckwrightError(
            Reason.INVALID_SPEC,
            f"the spec names the Secret {name}, but there is no directory of secrets; use --secrets DIRECTORY, "
            f"where DIRECTORY/{name} contains {keys}",
        )
    directory = PurePosixPath(secrets) / name
    if set(str(directory)) & set(':}",'):  # a config provider's reference ends at these
        raise AckwrightError(
            Reason.INVALID_SPEC,
            f"the directory of secrets is {directory}; choose one without : }} , and quotes in its path",
        )
    return directory
