"""The operator's connections to Kafka: one for all pipelines of the same cluster and credentials. A cluster that does not answer is not
asked again for a while, so that its pipelines do not hold up those of other clusters."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ackwright.api.spec import DeliveryPipeline
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import Kubernetes
from ackwright.errors import AckwrightError
from ackwright.render.jobspec import cluster
from ackwright.render.names import digest
from ackwright.render.pods import secret_names
from ackwright_stream.jobspec import Cluster, Reason

_TIMEOUT_S = 8.0
_ASIDE_S = 10.0  # a cluster that failed is left alone for this long


class Connections:
    """directory: private to the operator; credentials lie there while it runs, as librdkafka and we read them from files."""

    def __init__(self, kubernetes: Kubernetes, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubernetes, self._directory, self._clock = kubernetes, directory, clock
        self._open: dict[str, Kafka] = {}
        self._aside: dict[str, tuple[float, AckwrightError]] = {}
        self._lock = threading.Lock()

    def kafka(self, pipeline: DeliveryPipeline) -> tuple[str, Kafka]:
        """The connection for a pipeline, and its key. Raises AckwrightError if a Secret is missing, and what the last try gave while the
        cluster is left alone."""
        secrets = {name: self._secret(pipeline.metadata.namespace, name) for name in secret_names(pipeline)}
        spec = pipeline.spec.kafka.model_dump_json(by_alias=True)
        key = digest({"kafka": spec, "namespace": pipeline.metadata.namespace if secrets else "", "secrets": secrets})
        with self._lock:
            until, error = self._aside.get(key, (0.0, None))
            if error is not None and self._clock() < until:
                raise error
            if key not in self._open:
                self._open[key] = Kafka(self._cluster(pipeline, key, secrets), timeout=_TIMEOUT_S)
            return key, self._open[key]

    def failed(self, key: str, error: AckwrightError) -> None:
        """A connection on which a call failed is given up: the next one sees new addresses and credentials, and asks another broker."""
        with self._lock:
            self._open.pop(key, None)
            self._aside[key] = (self._clock() + _ASIDE_S, error)

    def _secret(self, namespace: str, name: str) -> Mapping[str, str]:
        found = self._kubernetes.get("v1", "Secret", namespace, name)
        if found is None:
            raise AckwrightError(
                Reason.AUTHENTICATION_FAILED,
                f"there is no Secret {name} in namespace {namespace}; create it, the pipeline goes on by itself",
            )
        data: dict[str, str] = found.get("data") or {}
        return data

    def _cluster(self, pipeline: DeliveryPipeline, key: str, secrets: Mapping[str, Mapping[str, str]]) -> Cluster:
        place = self._directory / key
        for name, data in secrets.items():
            for file, content in data.items():
                where = place / name / file
                where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with suppress(ValueError):
                    where.write_bytes(base64.b64decode(content))
                    where.chmod(0o600)
        return cluster(pipeline.spec.kafka, str(place))
