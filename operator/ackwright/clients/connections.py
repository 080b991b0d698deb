"""The operator's connections to Kafka: one for all pipelines with the same cluster and credentials.

A cluster that does not answer gets no request for a while, and then from one worker only, so that its pipelines do not
delay those of other clusters (attempts.py). Secrets are read one by one, because the operator may not list or watch
them. Their content is cached for a while, or until a connection fails. Changed content makes a new connection; the old
one is closed when it has not been used for some time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.spec import Kafka as Declared
from ackwright.clients.attempts import Attempts
from ackwright.clients.fence import Writing, unfenced
from ackwright.clients.isolated_kafka import IsolatedKafka
from ackwright.clients.kafka import Kafka
from ackwright.clients.kafka_processes import KafkaProcesses, ProcessFailure
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.errors import AckwrightError
from ackwright.planning.clusters import ClusterRole
from ackwright.planning.policy import Policy
from ackwright.render.jobspec import cluster
from ackwright.render.names import digest
from ackwright.render.pods import secret_names
from ackwright_stream.jobspec import Cluster, Reason

_TIMEOUT_S = 8.0
_BACKOFF_S = (10.0, 20.0, 30.0)  # after so many failures in a row a cluster gets no request for this long
_SECRETS_EVERY_S = 120.0  # how often a Secret is read again while its connection works
# Threads of clients: librdkafka starts one per address and two more. The connections that were used longest ago are
# closed to stay below.
_THREADS, _THREADS_OF_NAMESPACE = 2304, 288
_VALUE_MAX = 256 * 1024  # characters of a Secret's value in base64; a bundle of all public CAs has fewer
_IDLE_S = 600.0  # an unused connection is closed after this time, and its credentials are removed


@dataclass(frozen=True)
class _Secret:
    """The content of a Secret, of the keys that are needed."""

    keys: frozenset[str]  # that are needed; absent ones are not in data
    data: Mapping[str, str]
    version: str  # changes with the content, and reveals nothing about it
    read_at: float


class Connections:
    """The open connections. Safe for threads."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
        *,
        workers: int = 1,
        policy: Policy = Policy(),  # noqa: B008 (frozen)
        writing: Writing = unfenced,
        processes: KafkaProcesses | None = None,
    ) -> None:
        """directory: for files of credentials while the operator runs; private to it.

        workers: how many threads reconcile. policy: which clusters pipelines may name. writing: the context of each
        write. processes: that make the calls; None: this one does.
        """
        self._policy, self._writing, self._processes = policy, writing, processes
        self._kubernetes, self._directory, self._clock = kubernetes, directory, clock
        self._open: dict[str, Kafka] = {}
        self._used: dict[str, float] = {}
        self._threads: dict[str, tuple[str, int]] = {}  # by open connection, whose namespace opened it, and how many
        self._in_use: Counter[str] = Counter()
        self._failures: dict[str, tuple[float, AckwrightError]] = {}
        self._secrets: dict[tuple[str, str], _Secret] = {}
        self._read_for: dict[str, tuple[tuple[str, str], ...]] = {}
        self._failed_in_a_row: dict[str, int] = {}
        self._attempts = Attempts(workers, clock)
        self._lock = threading.Lock()

    @contextmanager
    def attempt(self, key: str, kafka: Kafka, namespace: str, *, writes: bool = False) -> Iterator[None]:
        """The context in which a pipeline of this namespace reads by a connection, or writes.

        Raises ConnectionBusy if other workers wait for the cluster, or too many for clusters that do not answer.
        """
        # Brokers may answer reads promptly and writes never.
        with self._attempts.attempt(f"{key}/writes" if writes else key, kafka.address, namespace):
            with self._lock:
                self._in_use[key] += 1
            try:
                yield
            finally:
                with self._lock:
                    self._in_use[key] -= 1
                    if not self._in_use[key]:
                        del self._in_use[key]
        with self._lock:
            self._failed_in_a_row.pop(key, None)

    def kafka(self, pipeline: DeliveryPipeline, role: ClusterRole = ClusterRole.SOURCE) -> tuple[str, Kafka]:
        """A connection to one of the pipeline's clusters, and its key.

        Raises AckwrightError if a Secret is missing, and during back-off the last error.
        """
        namespace = pipeline.metadata.namespace
        declared = _declared(pipeline, role)
        # Reconciles refuse such a spec before; this covers deletions and whatever else connects.
        if others := self._policy.other_servers(declared.bootstrap_servers):
            raise AckwrightError(
                Reason.INVALID_SPEC, f"{', '.join(others)}: not among the clusters that the platform allows"
            )
        # Also those of a sink outside Kafka, whose rotation has to be noticed.
        names = secret_names(pipeline) if role is ClusterRole.SOURCE else declared.secrets
        needed = declared.secret_keys
        secrets = {}
        for name in names:
            secret = self._secret(namespace, name, needed.get(name, ()))
            if name in needed:
                secrets[name] = {key: secret.data[key] for key in needed[name] if key in secret.data}
        spec = declared.model_dump_json(by_alias=True)
        key = _key({"kafka": spec, "namespace": namespace if secrets else "", "secrets": secrets})
        with self._lock:
            self._close_idle()
            self._used[key] = self._clock()
            self._read_for[key] = tuple((namespace, name) for name in names)
            until, error = self._failures.get(key, (0.0, None))
            if error is not None and self._clock() < until:
                raise error
            if key not in self._open:
                self._make_room(namespace, key, threads := _threads(declared))
                try:
                    self._open[key] = self._connection(self._cluster(declared, key, secrets))
                except AckwrightError:  # such as a missing key: the Secret is read again at once
                    self._forget_secrets(key)
                    raise
                self._threads[key] = namespace, threads
            return key, self._open[key].of(namespace)

    def _connection(self, cluster: Cluster) -> Kafka:
        if self._processes is None:
            return Kafka(cluster, timeout=_TIMEOUT_S, writing=self._writing)
        return IsolatedKafka(self._processes, cluster, timeout=_TIMEOUT_S, writing=self._writing)

    def credentials(self, pipeline: DeliveryPipeline) -> str | None:
        """A digest of the versions of the Secrets that the connection uses; it reveals nothing about their content.

        Empty if the pipeline names no Secret; None if one of them is not known at the moment.
        """
        namespace = pipeline.metadata.namespace
        with self._lock:
            secrets = {name: self._secrets.get((namespace, name)) for name in secret_names(pipeline)}
        versions = {name: secret.version for name, secret in secrets.items() if secret}
        if len(versions) < len(secrets):
            return None
        return digest(versions) if versions else ""

    def failed(self, key: str, error: AckwrightError) -> None:
        """Drops a connection on which a call failed: the next one uses the present addresses and Secrets."""
        if isinstance(error, ProcessFailure):
            return
        with self._lock:
            self._open.pop(key, None)
            self._threads.pop(key, None)
            failures = self._failed_in_a_row[key] = 1 + self._failed_in_a_row.get(key, 0)
            backoff = _BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1]
            self._failures[key] = (self._clock() + backoff, error)
            self._forget_secrets(key)

    def _forget_secrets(self, key: str) -> None:
        for name in self._read_for.get(key, ()):
            self._secrets.pop(name, None)

    def _close_idle(self) -> None:
        """Drops unused connections.

        A reconcile that still holds one is not disturbed: it is closed with its last reference.
        """
        now = self._clock()
        for key in [k for k, used in self._used.items() if now - used > _IDLE_S]:
            for entries in (self._failures, self._failed_in_a_row):
                entries.pop(key, None)
            self._close(key)
        for name in [n for n, secret in self._secrets.items() if now - secret.read_at > _IDLE_S]:
            del self._secrets[name]

    def _close(self, key: str) -> None:
        for entries in (self._used, self._open, self._threads, self._read_for):
            entries.pop(key, None)
        shutil.rmtree(self._directory / key, ignore_errors=True)

    def _make_room(self, namespace: str, key: str, threads: int) -> None:
        """Closes connections until this one fits: the namespace's own ones first, then any."""

        def close(candidates: list[str], limit: int) -> None:
            total = sum(self._threads[k][1] for k in candidates) + threads
            for other in sorted(candidates, key=lambda k: self._used[k]):
                if total <= limit:
                    return
                if not self._in_use[other] and other != key:
                    total -= self._threads[other][1]
                    self._close(other)

        close([k for k, (opener, _) in self._threads.items() if opener == namespace], _THREADS_OF_NAMESPACE)
        close(list(self._threads), _THREADS)

    def _secret(self, namespace: str, name: str, keys: Collection[str]) -> _Secret:
        """The Secret with at least these keys, as far as they exist. Raises AckwrightError if there is none."""
        with self._lock:
            known = self._secrets.get((namespace, name))
        if known and known.keys.issuperset(keys) and self._clock() - known.read_at < _SECRETS_EVERY_S:
            return known
        needed = frozenset(keys) | (known.keys if known else frozenset())
        try:
            secret = self._kubernetes.get("v1", "Secret", namespace, name)
        except ApiError as e:
            # The namespace is lost. Its topics may still have to be deleted, for which the last content serves.
            if e.status != 403 or known is None or not known.keys.issuperset(keys):
                raise
            return known
        if secret is None:
            raise AckwrightError(
                Reason.AUTHENTICATION_FAILED,
                f"there is no Secret {name} in namespace {namespace}; create it, and the pipeline continues by itself",
            )
        data = {key: value for key, value in (secret.get("data") or {}).items() if key in needed}
        for key, value in data.items():
            if len(value) > _VALUE_MAX:
                raise AckwrightError(
                    Reason.AUTHENTICATION_FAILED,
                    f"the key {key} of Secret {name} in namespace {namespace} has more than "
                    f"{_VALUE_MAX * 3 // 4} bytes",
                    "put only the login or the certificate there",
                )
        meta = secret["metadata"]
        fresh = _Secret(needed, data, f"{meta['uid']}/{meta['resourceVersion']}", self._clock())
        with self._lock:
            self._secrets[namespace, name] = fresh
        return fresh

    def _cluster(self, declared: Declared, key: str, secrets: Mapping[str, Mapping[str, str]]) -> Cluster:
        """The connection to a cluster, with its Secrets as files."""
        directory = self._directory / key
        for name, data in secrets.items():
            for file, content in data.items():
                path = directory / name / file
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with suppress(ValueError):
                    path.write_bytes(base64.b64decode(content))
                    path.chmod(0o600)
        return cluster(declared, str(directory))


def _key(connection: Mapping[str, Any]) -> str:
    """A digest that nobody can compute another connection for: with a short one, a tenant could use that of another."""
    return hashlib.sha256(json.dumps(connection, sort_keys=True).encode()).hexdigest()


def _threads(declared: Declared) -> int:
    """How many threads a client has before it knows the brokers."""
    return declared.bootstrap_servers.count(",") + 3


def _declared(pipeline: DeliveryPipeline, role: ClusterRole) -> Declared:
    """The connection as the spec declares it."""
    sink = pipeline.spec.sink.declared
    own = sink.cluster() if role is ClusterRole.SINK else None
    return own or pipeline.spec.kafka
