"""Records and numbers the operator's writes to Kubernetes and Kafka, and injects a fault into one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from ackwright.api.spec import DeliveryPipeline
from ackwright.clients.connections import Connections
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.clusters import ClusterRole
from ackwright_stream.jobspec import Reason

T = TypeVar("T")

BEFORE, AFTER = "killed before", "killed after"
LOST = "timeout after commit"
REFUSALS = {"409": 409, "410": 410, "422": 422, "429": 429, "500": 500}
FAULTS = (*REFUSALS, LOST)


class Killed(BaseException):
    """Ends the operator, like a SIGKILL."""


class Writes:
    """The writes of an operator and its successors.

    fault: BEFORE, AFTER, or one of FAULTS; injected once, into the write with this number.
    """

    def __init__(self, number: int | None = None, fault: str = BEFORE) -> None:
        self._number, self.fault = number, fault
        self.log: list[str] = []  # the writes in order
        self.created: Counter[str] = Counter()  # objects that the servers created, by kind, and topics
        self.deleted: Counter[str] = Counter()  # objects that the servers deleted, by kind, and topics

    @property
    def fault_injected(self) -> bool:
        return self._number is not None and len(self.log) > self._number

    def write(self, name: str, do: Callable[[], T], answer: Callable[[str], T]) -> T:
        """Executes or disturbs a write. answer: the result of one of FAULTS for the caller; it may raise."""
        number = len(self.log)
        self.log.append(name)
        if number != self._number:
            return do()
        if self.fault == BEFORE:
            raise Killed
        if self.fault in (AFTER, LOST):
            do()
        if self.fault == AFTER:
            raise Killed
        return answer(self.fault)


class RecordedKubernetes(Kubernetes):
    """A connection to Kubernetes whose writes are recorded."""

    def __init__(self, connection: Kubernetes, writes: Writes) -> None:
        super().__init__(connection._api)
        self._writes = writes

    def _request(self, method: str, url: str, **arguments: Any) -> Any:
        if method == "GET":
            return super()._request(method, url, **arguments)

        def do() -> Any:
            answer = super(RecordedKubernetes, self)._request(method, url, **arguments)
            kind = url.split("/")[-1 if method == "POST" else -2]
            if answer.status == 201 and kind != "events":  # Events have random names, and losing one is harmless
                self._writes.created[kind] += 1
            if method == "DELETE":
                self._writes.deleted[kind] += 1
            return answer

        return self._writes.write(f"{method} {url}", do, lambda fault: _refuse(fault, url))


class RecordedConnections:
    """Connections to Kafka whose writes are recorded."""

    def __init__(self, connections: Connections, writes: Writes) -> None:
        self._connections, self._writes = connections, writes

    def kafka(self, pipeline: DeliveryPipeline, role: ClusterRole = ClusterRole.SOURCE) -> tuple[str, Kafka]:
        key, kafka = self._connections.kafka(pipeline, role)
        return key, cast(Kafka, _RecordedKafka(kafka, self._writes))

    def attempt(self, key: str, kafka: Kafka, namespace: str, *, writes: bool = False) -> AbstractContextManager[None]:
        return self._connections.attempt(key, kafka, namespace, writes=writes)

    def credentials(self, pipeline: DeliveryPipeline) -> str | None:
        return self._connections.credentials(pipeline)

    def failed(self, key: str, error: AckwrightError) -> None:
        self._connections.failed(key, error)


class _RecordedKafka:
    def __init__(self, kafka: Kafka, writes: Writes) -> None:
        self._kafka, self._writes = kafka, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Outcome:
        def do() -> Outcome:
            outcome = self._kafka.create_topic(
                name, partitions, replication_factor, config, validate_only=validate_only
            )
            self._writes.created["topic"] += outcome is Outcome.DONE and not validate_only
            return outcome

        return do() if validate_only else self._writes.write(f"create topic {name}", do, _no_answer)

    def delete_topic(self, name: str) -> Outcome:
        def do() -> Outcome:
            self._writes.deleted["topic"] += bool(self._kafka.topics([name]))
            return self._kafka.delete_topic(name)

        return self._writes.write(f"delete topic {name}", do, _no_answer)


def _refuse(fault: str, url: str) -> Any:
    status = REFUSALS.get(fault)
    raise ApiError(status, f"{url}: {fault}, injected by the test", 1.0 if fault == "429" else None)


def _no_answer(fault: str) -> Outcome:
    if fault in ("409", "500"):
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, "injected by the test")
    return Outcome.UNKNOWN
