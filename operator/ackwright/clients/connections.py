"""The operator's connections to Kafka: one for all pipelines of the same cluster and credentials. A cluster that does not answer is not
asked again for a while, so that its pipelines do not hold up those of other clusters.

Secrets are read one by one, for the operator may not list or watch them; so what was read counts for a while, and until a connection
fails. Other content makes another connection; the one before is closed once nobody has used it for some time.
"""

from __future__ import annotations

import base64
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
_SECRETS_EVERY_S = 120.0  # how often a Secret whose content works is read again
_IDLE_S = 600.0  # a connection that nobody has used for so long is closed, and its credentials are removed


@dataclass(frozen=True)
class _Secret:
    """As it was read. version: other than before whenever it was changed, and says nothing of its content."""

    data: Mapping[str, str]
    version: str
    read_at: float


class Connections:
    """directory: private to the operator; credentials lie there while it runs, as librdkafka and we read them from files."""

    def __init__(self, kubernetes: Kubernetes, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubernetes, self._directory, self._clock = kubernetes, directory, clock
        self._open: dict[str, Kafka] = {}
        self._used: dict[str, float] = {}
        self._aside: dict[str, tuple[float, AckwrightError]] = {}
        self._secrets: dict[tuple[str, str], _Secret] = {}
        self._read_for: dict[str, tuple[tuple[str, str], ...]] = {}
        self._lock = threading.Lock()

    def kafka(self, pipeline: DeliveryPipeline) -> tuple[str, Kafka]:
        """The connection for a pipeline, and its key. Raises AckwrightError if a Secret is missing, and what the last try gave while the
        cluster is left alone."""
        namespace = pipeline.metadata.namespace
        secrets = {name: self._secret(namespace, name).data for name in secret_names(pipeline)}
        spec = pipeline.spec.kafka.model_dump_json(by_alias=True)
        key = digest({"kafka": spec, "namespace": namespace if secrets else "", "secrets": secrets})
        with self._lock:
            self._close_idle()
            self._used[key] = self._clock()
            self._read_for[key] = tuple((namespace, name) for name in secrets)
            until, error = self._aside.get(key, (0.0, None))
            if error is not None and self._clock() < until:
                raise error
            if key not in self._open:
                try:
                    self._open[key] = Kafka(self._cluster(pipeline, key, secrets), timeout=_TIMEOUT_S)
                except AckwrightError:  # a key that is missing, say: it is looked for again at once
                    self._forget_secrets(key)
                    raise
            return key, self._open[key]

    def credentials(self, pipeline: DeliveryPipeline) -> str | None:
        """Which Secrets the connection was made with, as a word that changes whenever one of them does and that says nothing of their
        content; empty if the pipeline names none, None if they are not known at the moment."""
        namespace = pipeline.metadata.namespace
        with self._lock:
            found = {name: self._secrets.get((namespace, name)) for name in secret_names(pipeline)}
        known = {name: secret.version for name, secret in found.items() if secret}
        if len(known) < len(found):
            return None
        return digest(known) if known else ""

    def failed(self, key: str, error: AckwrightError) -> None:
        """A connection on which a call failed is given up: the next one sees new addresses and credentials, and asks another broker."""
        with self._lock:
            self._open.pop(key, None)
            self._aside[key] = (self._clock() + _ASIDE_S, error)
            self._forget_secrets(key)

    def _forget_secrets(self, key: str) -> None:
        for name in self._read_for.get(key, ()):
            self._secrets.pop(name, None)

    def _close_idle(self) -> None:
        """A connection is closed when nothing refers to it any more: a look that still has it ends undisturbed."""
        now = self._clock()
        for key in [k for k, used in self._used.items() if now - used > _IDLE_S]:
            for known in (self._used, self._open, self._aside, self._read_for):
                known.pop(key, None)
            shutil.rmtree(self._directory / key, ignore_errors=True)
        for name in [n for n, secret in self._secrets.items() if now - secret.read_at > _IDLE_S]:
            del self._secrets[name]

    def _secret(self, namespace: str, name: str) -> _Secret:
        with self._lock:
            known = self._secrets.get((namespace, name))
        if known and self._clock() - known.read_at < _SECRETS_EVERY_S:
            return known
        found = self._kubernetes.get("v1", "Secret", namespace, name)
        if found is None:
            raise AckwrightError(
                Reason.AUTHENTICATION_FAILED,
                f"there is no Secret {name} in namespace {namespace}; create it, the pipeline goes on by itself",
            )
        meta = found["metadata"]
        fresh = _Secret(found.get("data") or {}, f"{meta['uid']}/{meta['resourceVersion']}", self._clock())
        with self._lock:
            self._secrets[namespace, name] = fresh
        return fresh

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
