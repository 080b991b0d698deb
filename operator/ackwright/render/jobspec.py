"""From a plan to the job's own file. Pure; it holds paths of mounted credentials, and never a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from ackwright.api.quantities import duration_ms
from ackwright.api.spec import DeliveryPipeline, Kafka
from ackwright.errors import AckwrightError
from ackwright.planning.declared import accepted_losses
from ackwright.planning.guarantees import values
from ackwright.planning.plan import DeliveryPlan, connection
from ackwright.planning.topics import LANES_TOPIC
from ackwright_stream.jobspec import Cluster, JobSpec, KafkaSink, Reason, Source, Transform

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"


def jobspec(
    pipeline: DeliveryPipeline,
    plan: DeliveryPlan,
    *,
    master: str,
    secrets: PurePosixPath | str | None,
    progress_port: int = 0,
    spark_extra: Mapping[str, str] | None = None,
) -> JobSpec:
    """What the job needs to know.

    secrets: the directory under which <secret>/<key> files lie; None without auth and tls.caSecret. spark_extra: Spark settings of
    the place where the job runs (jars, addresses); they go before all others. Raises AckwrightError if secrets are needed and missing.
    """
    spec, sink = pipeline.spec, pipeline.spec.sink.kafka
    if sink is None:
        raise AckwrightError(Reason.INVALID_SPEC, "spec.sink: only sink.kafka is built yet; use sink.kafka")
    python = spec.transform.python
    settings = values(plan.spark)
    return JobSpec(
        name=plan.name,
        namespace=plan.namespace,
        guarantee=plan.guarantee,
        group=plan.group,
        cluster=cluster(spec.kafka, secrets),
        source=Source(
            topics=spec.source.topics,
            starting_offsets=spec.source.starting_offsets,
            max_offsets_per_trigger=spec.source.max_offsets_per_trigger,
            format=spec.source.format,
            schema=spec.source.schema_ddl,
            skip_malformed=spec.source.on_malformed == "skip",
        ),
        transform=Transform(
            sql=spec.transform.sql,
            module=python.module if python else None,
            function=python.function if python else None,
        ),
        sink=KafkaSink(topic=sink.topic, format=sink.format, preserve_partition=sink.preserve_partition),
        lanes_topic=LANES_TOPIC,
        producer=values(plan.producer),
        positions_consumer=values(plan.positions_consumer),
        sink_options=values(plan.sink_options),
        consumer={
            **values(plan.consumer),
            **{s.name: s.value for s in plan.source_options if s.name == "failOnDataLoss"},
        },
        given_up={
            t: old for t, old in accepted_losses(pipeline.metadata.annotations).items() if t in spec.source.topics
        },
        spark={
            **settings,
            "spark.master": with_retries(master, settings["spark.task.maxFailures"]),
            **(spark_extra or {}),
        },
        trigger_interval_ms=1000 if spec.trigger.interval is None else duration_ms(spec.trigger.interval),
        available_now=spec.trigger.available_now,
        checkpoint=_directory(spec.checkpoint.uri) if spec.checkpoint and spec.checkpoint.uri else None,
        progress_port=progress_port,
    )


def with_retries(master: str, attempts: str) -> str:
    """local[n] as local[n,attempts]: a local master ignores spark.task.maxFailures and gives up at the first failure.

    https://spark.apache.org/docs/latest/submitting-applications.html#master-urls
    """
    if master == "local":
        return f"local[1,{attempts}]"
    found = re.fullmatch(r"local\[(\*|[0-9]+)\]", master)
    return f"local[{found[1]},{attempts}]" if found else master


def cluster(kafka: Kafka, secrets: PurePosixPath | str | None) -> Cluster:
    """The connection, for either client. Raises AckwrightError if secrets are needed and missing."""
    shared = dict(values(connection(kafka)))
    servers = shared.pop("bootstrap.servers")
    librdkafka, java = dict(shared), dict(shared)
    credentials = None
    if kafka.tls and kafka.tls.ca_secret:
        ca = str(_mounted(secrets, kafka.tls.ca_secret.name, kafka.tls.ca_secret.key) / kafka.tls.ca_secret.key)
        librdkafka["ssl.ca.location"] = ca
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if kafka.auth:
        credentials = str(_mounted(secrets, kafka.auth.credentials_secret.name, "username and password"))
        java |= _login(_LOGIN_MODULES[kafka.auth.mechanism], credentials)
    return Cluster(bootstrap_servers=servers, librdkafka=librdkafka, java=java, credentials=credentials)


def _login(module: str, directory: str) -> dict[str, str]:
    """Java reads the credentials itself, when it connects (KIP-297, KIP-421), and from no other directory (KIP-993)."""
    return {
        "config.providers": "directory",
        "config.providers.directory.class": _PROVIDER,
        "config.providers.directory.param.allowed.paths": directory,
        "sasl.jaas.config": (
            f'{module} required username="${{directory:{directory}:username}}" password="${{directory:{directory}:password}}";'
        ),
    }


def _mounted(secrets: PurePosixPath | str | None, name: str, keys: str) -> PurePosixPath:
    if secrets is None:
        raise AckwrightError(
            Reason.INVALID_SPEC,
            f"the spec names the Secret {name}, and no directory of secrets is given; give one by --secrets that holds {name}/ with {keys}",
        )
    found = PurePosixPath(secrets) / name
    if set(str(found)) & set(':}",'):  # a config provider's reference ends there
        raise AckwrightError(
            Reason.INVALID_SPEC,
            f"the directory of secrets is {found}; choose one without : }} , and quotes in its path",
        )
    return found


def _directory(uri: str) -> str:
    return uri.removeprefix("file://")
