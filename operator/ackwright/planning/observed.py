"""The actual state of a pipeline in Kubernetes and Kafka, as frozen values that decisions are made of.

Pure: observe/ reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ackwright.errors import AckwrightError
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.replicas import Racks, Reassignment
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.reports import Failure

Object = Mapping[str, Any]
Key = tuple[str, str]  # kind, name


@dataclass(frozen=True)
class OutOfMemory:
    """The kernel killed the driver because it used more memory than its limit."""

    def __str__(self) -> str:
        return "OutOfMemory: the kernel killed the driver at its memory limit; raise spec.spark.driver.memory"


@dataclass(frozen=True)
class LastLogLine:
    """What is known of a driver that ended without a report, such as one that was killed."""

    text: str

    def __str__(self) -> str:
        return self.text


# Why a container waits for an image or a configuration that may never come.
NO_IMAGE = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"}
)

DriverError = Failure | OutOfMemory | LastLogLine  # why a driver's container ended; str() is a sentence for people


@dataclass(frozen=True)
class DriverPod:
    """A driver's pod."""

    name: str
    uid: str
    phase: str = "Pending"
    ready: bool = False
    deleting: bool = False
    gone_by: str | None = None  # when a pod that is being deleted should be gone
    drain_s: int | None = None  # how long it may take to end once it is being deleted; None: not known
    node_lost: bool = False  # it is being deleted because its node does not answer
    node: str | None = None
    restarts: int = 0
    waiting: str | None = None  # why its container is not running: CrashLoopBackOff, ImagePullBackOff …
    waiting_message: str = ""
    unschedulable: str | None = None  # why no node fits
    exit_code: int | None = None  # of the container that last ended, as are error and ended_at
    error: DriverError | None = None
    ended_at: str | None = None
    config: str | None = None  # name of the ConfigMap that it mounts
    revision: str | None = None  # of the StatefulSet
    address: str | None = None  # host:port of its progress
    delivers: bool = False  # it reports that it owns the pipeline; known of a pipeline with several drivers
    stands_by: bool = False  # it reports that it waits for the end of the other one; known as `delivers` is


@dataclass(frozen=True)
class CheckPod:
    """The pod in which an edit is checked."""

    name: str
    uid: str
    edit: str  # the hash of the spec that it checks
    deleting: bool = False
    ended: bool = False
    passed: bool = False
    out_of_time: bool = False  # it had its limit of time
    waiting: str | None = None  # as of DriverPod, like the next four
    waiting_message: str = ""
    unschedulable: str | None = None
    exit_code: int | None = None
    error: DriverError | None = None


@dataclass(frozen=True)
class EndedExecutor:
    """An executor's pod that has ended and that no running driver will remove."""

    name: str
    uid: str


@dataclass(frozen=True)
class Workload:
    """The objects of a pipeline in Kubernetes."""

    children: Mapping[Key, Object] = field(default_factory=dict)  # objects that the pipeline owns, without pods
    in_the_way: frozenset[Key] = frozenset()  # leftovers of an earlier pipeline of the same name, being deleted
    drivers: tuple[DriverPod, ...] = ()
    ended: tuple[EndedExecutor, ...] = ()
    checks: tuple[CheckPod, ...] = ()
    # The current bounded run: the one that is due, else the last one. None: of a stream, or before the first one.
    run: str | None = None
    finished: bool = False  # the status records that this run has completed; its Job may be deleted
    idle: bool | None = None  # whether a schedule is between two runs, or before the first; None without a schedule

    @property
    def driver(self) -> DriverPod | None:
        """The driver's pod; of several, the one that delivers, else one that is not being deleted."""
        return min(self.drivers, key=lambda d: (not d.delivers, d.deleting, d.stands_by, d.name), default=None)

    @property
    def wants_standby(self) -> bool:
        """Whether the StatefulSet has a second replica, which is to stand by."""
        return int(self._stateful_set.get("spec", {}).get("replicas", 1)) > 1

    @property
    def rolling(self) -> bool:
        """Whether a driver runs that is about to be replaced.

        Either the StatefulSet's controller has not processed the last change yet, or the driver is of an older
        revision.
        https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#rolling-updates
        """
        generation = self._stateful_set.get("metadata", {}).get("generation", 0)
        unprocessed = self._stateful_set.get("status", {}).get("observedGeneration", generation) < generation
        return any(unprocessed or self.has_newer(d) for d in self.drivers)

    def has_newer(self, driver: DriverPod) -> bool:
        """Whether the StatefulSet has a newer revision than the driver's; False while either is unknown."""
        newest = self._stateful_set.get("status", {}).get("updateRevision")
        return newest is not None and driver.revision not in (None, newest)

    @property
    def _stateful_set(self) -> Object:
        return next((o for (kind, _), o in self.children.items() if kind == "StatefulSet"), {})

    @property
    def scheduled(self) -> bool:
        """Whether bounded runs start by a schedule."""
        return self.idle is not None

    @property
    def complete(self) -> bool:
        """Whether the current bounded run has ended successfully."""
        if self.scheduled:
            return bool(self.idle) and self.run is not None
        return self.finished or (self.job is not None and is_complete(self.job))

    @property
    def job(self) -> Object | None:
        """The Job of a bounded run."""
        return next((o for (kind, _), o in self.children.items() if kind == "Job"), None)


def is_complete(job: Object) -> bool:
    """Whether a Job has ended successfully."""
    conditions = job.get("status", {}).get("conditions", ())
    return any(c.get("type") == "Complete" and c.get("status") == "True" for c in conditions)


@dataclass(frozen=True)
class JobPremises:
    """What decides whether these brokers and this group can serve a job at all."""

    settings: Mapping[int, Mapping[str, str]]  # by broker; empty: not permitted to read them
    others: OtherMembers | None = None  # members of the group besides the driver; None: positions are not in Kafka


@dataclass(frozen=True)
class KafkaState:
    """The brokers and the topics that matter to a pipeline."""

    racks: Racks  # of the brokers that are up
    topics: Mapping[str, ObservedTopic]  # existing ones: declared, needed by the job, and the brokers' own
    moving: Mapping[tuple[str, int], Reassignment] = field(default_factory=dict)  # every move under way, by partition
    rated: frozenset[int] = frozenset()  # brokers that have a rate of replication
    moves_forbidden: AckwrightError | None = None  # why moves and rates could not be read
    premises: JobPremises | None = None  # None: not read this time
