"""Observes a pipeline: its objects in Kubernetes, what its driver reports, and Kafka. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Accepted, Status, format_time, seconds_since
from ackwright.clients.connections import Connections
from ackwright.clients.kafka import Kafka
from ackwright.conditions.staleness import RENEWED_EVERY_S
from ackwright.errors import AckwrightError
from ackwright.memory import KafkaDigest, Memory, SteadyState, job_state, versions
from ackwright.observe import kafka_state as kafka_states
from ackwright.observe.kafka_state import kafka_state
from ackwright.observe.steady_topics import SteadyTopics
from ackwright.observe.topics import topics
from ackwright.observe.workload import workload
from ackwright.pipeline_index import PipelineIndex
from ackwright.planning.bounded_runs import is_finished
from ackwright.planning.clusters import ClusterRole, needed_topics, parts, recorded_on
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.declared import Declaration, in_force
from ackwright.planning.durability import INTERNAL
from ackwright.planning.edits import Decision, decide
from ackwright.planning.observation import Observation
from ackwright.planning.observed import DriverPod, KafkaState, Workload
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.policy import policy
from ackwright.planning.scheduled_runs import with_scheduled_run
from ackwright.planning.suitability import unsuitable
from ackwright.planning.topic_records import RecordedTopics, recorded_topics
from ackwright.reasons import ConditionReason
from ackwright.render.names import digest
from ackwright.render.workload import credentials_of, run_of
from ackwright.settings import OperatorSettings
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import ProgressReport, State

T = TypeVar("T")

Object = Mapping[str, Any]
Reports = Mapping[str, ProgressReport]  # by the address (host:port) of the driver that reports it

_BROKERS_EVERY_S = 300.0  # how often the brokers' own settings are read
_SHARED_EVERY_S = 10.0  # how often brokers and their own topics are read, for all steady pipelines of one connection


@dataclass(frozen=True)
class ClusterState:
    """A pipeline's state in Kubernetes, and the progress of its driver: what is read at every reconcile."""

    workload: Workload
    progress: ProgressReport | None  # None: no driver answers
    group_owner: str | None  # an older pipeline with the same consumer group
    versions: frozenset[str]  # of everything in Kubernetes that a reconcile depends on


@dataclass(frozen=True)
class _Shared:
    """What all steady pipelines with the same connection read once: the brokers, and the topics of the brokers."""

    read_at: float  # seconds
    racks: Mapping[int, str | None]  # by broker
    internal: Mapping[str, ObservedTopic]


def _with_role(driver: DriverPod, progress: ProgressReport | None) -> DriverPod:
    """The driver with what it reports of its role."""
    state = progress.state if progress else None
    return replace(
        driver,
        delivers=state in (State.REPLAYING, State.RUNNING, State.DRAINING, State.RESTARTING),
        stands_by=state is State.STANDBY,
    )


def _with_run(observed: Workload, pipeline: DeliveryPipeline, status: Status, now: datetime) -> Workload:
    """The workload with the current bounded run, and whether it is recorded as completed."""
    trigger = pipeline.spec.trigger
    if trigger.schedule is not None:
        return with_scheduled_run(observed, pipeline, status.schedule, status.finished_run, now)
    if not trigger.available_now:
        return observed
    run = run_of(pipeline)
    return replace(observed, run=run, finished=is_finished(run, status.finished_run, observed))


class Observer:
    """Observes one pipeline per call. Several threads may call it, each for another pipeline."""

    def __init__(
        self,
        connections: Connections,
        settings: OperatorSettings,
        index: PipelineIndex,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._connections, self._settings, self._index = connections, settings, index
        self._now, self._clock = now, clock
        self._policy = policy(settings)
        self._shared: dict[str, _Shared] = {}  # by the key of a connection
        self._steady_topics = SteadyTopics(clock)

    def cluster(
        self, resource: Object, objects: Sequence[Object], progress_by_address: Reports, memory: Memory
    ) -> ClusterState:
        """The state in Kubernetes, out of objects that the watches bring, and the driver's progress."""
        observed = workload(objects, resource["metadata"]["uid"])
        reports = {d.name: progress_by_address.get(d.address) for d in observed.drivers if d.address}
        if len(observed.drivers) > 1:
            observed = replace(observed, drivers=tuple(_with_role(d, reports.get(d.name)) for d in observed.drivers))
        progress = reports.get(observed.driver.name) if observed.driver else None
        memory.tracker.update(progress, self._clock())
        ready = observed.driver.uid if observed.driver and observed.driver.ready else None
        memory.contact.update(ready, self._clock(), answered=progress is not None)
        group_owner = self._index.group_owner(in_force(resource))
        return ClusterState(observed, progress, group_owner, versions(resource, objects, group_owner))

    def pipeline(
        self,
        resource: Object,
        status: Status,
        declared: Declaration,
        cluster: ClusterState,
        memory: Memory,
    ) -> Observation:
        """Everything that the next steps depend on, with the state of Kafka."""
        generation = resource["metadata"].get("generation")
        decision = self._decision(resource, status, declared, cluster, memory.namespace_uid)
        pipeline = decision.pipeline
        conflicts = self._index.conflicting_declarations(resource, pipeline)
        recorded = recorded_topics(status, pipeline.metadata.annotations, conflicts)
        delivery_plan = plan(pipeline)
        kafka = self._kafka(pipeline, delivery_plan, recorded, memory)
        return Observation(
            pipeline=pipeline,
            plan=delivery_plan,
            generation=generation,
            invalid=declared.invalid,
            edit=declared.edit,
            decision=decision,
            status=status,
            workload=_with_run(cluster.workload, pipeline, status, self._now()),
            progress=cluster.progress,
            kafka=kafka,
            recorded=recorded,
            group_owner=self._index.group_owner({**resource, "spec": decision.accepted.spec}),
            credentials=self._credentials(pipeline, kafka, cluster.workload),
            stuck=memory.tracker.is_stuck(pipeline, self._settings.stuck, self._clock()),
            expired=self._is_expired(memory, status, generation),
            heard=memory.contact.heard,
            unreachable=memory.contact.is_lost(self._clock()),
        )

    def _decision(
        self,
        resource: Object,
        status: Status,
        declared: Declaration,
        cluster: ClusterState,
        namespace_uid: str | None,
    ) -> Decision:
        """By which spec the pipeline runs now."""
        spec = resource["spec"]
        generation, now = resource["metadata"].get("generation") or 0, self._now()
        present = Accepted(
            generation=generation,
            hash=digest(spec),
            spec=spec,
            since=format_time(now),
            namespace_uid=namespace_uid,
        )
        return decide(
            resource,
            status,
            declared,
            _with_run(cluster.workload, declared.pipeline, status, now),
            cluster.progress,
            present=present,
            hash_of=digest,
            policy=self._policy,
            settings=self._settings,
            now=now,
        )

    def _kafka(
        self, pipeline: DeliveryPipeline, delivery_plan: DeliveryPlan, recorded: RecordedTopics, memory: Memory
    ) -> Mapping[ClusterRole, KafkaState | AckwrightError]:
        """The state of each Kafka cluster, or why it cannot be read."""
        check_brokers = self._clock() - memory.brokers_checked > _BROKERS_EVERY_S
        states: dict[ClusterRole, KafkaState | AckwrightError] = {}
        suitable = check_brokers
        for role, part in parts(delivery_plan).items():
            throttled = recorded_on(delivery_plan, role, recorded).throttled
            state = states[role] = self._cluster(pipeline, role, part, throttled, check_brokers=check_brokers)
            premises = state.premises if isinstance(state, KafkaState) else None
            suitable = suitable and premises is not None and unsuitable(part, premises) is None
        if suitable:
            memory.brokers_checked = self._clock()
        return states

    def _cluster(
        self,
        pipeline: DeliveryPipeline,
        role: ClusterRole,
        part: DeliveryPlan,
        throttled: Collection[str],
        *,
        check_brokers: bool,
    ) -> KafkaState | AckwrightError:
        """The state of one cluster. Raises ConnectionBusy if it is not to be read now."""
        needed = needed_topics(part)
        return self._read(
            pipeline, role, lambda _, kafka: kafka_state(kafka, part, needed, throttled, check_brokers=check_brokers)
        )

    def _read(
        self, pipeline: DeliveryPipeline, role: ClusterRole, read: Callable[[str, Kafka], T]
    ) -> T | AckwrightError:
        """What `read` returns for the connection with this key, or why the cluster cannot be read."""
        try:
            key, kafka = self._connections.kafka(pipeline, role)
        except AckwrightError as e:
            return e
        try:
            with self._connections.attempt(key, kafka, pipeline.metadata.namespace):
                return read(key, kafka)
        except AckwrightError as e:
            if REASONS[e.reason].of_connection:
                self._connections.failed(key, e)
            return e

    def with_kafka(
        self, steady: SteadyState, resource: Object, observation: Observation, memory: Memory
    ) -> SteadyState:
        """The state with all that kafka_is_unchanged() compares, and until when nothing else needs to be read again.

        The same state if times decide about the pipeline, or what happens in Kafka.
        """
        pipeline, decision = observation.pipeline, observation.decision
        settled = decision.held is None and (decision.accepted.delivered or pipeline.spec.rollback is None)
        ending = any(driver.deleting for driver in observation.workload.drivers)
        digests = self._digests(observation)
        if pipeline.spec.trigger.available_now or not settled or ending or digests is None:
            return steady
        written = (resource.get("status") or {}).get("observedAt")
        return replace(
            steady,
            deadline=min(
                memory.brokers_checked + _BROKERS_EVERY_S,
                self._clock() + RENEWED_EVERY_S - seconds_since(written, self._now()),
            ),
            job=job_state(observation.progress),
            kafka=digests,
            credentials=self._connections.credentials(pipeline),
            conflicts=observation.recorded.conflicts,
        )

    def _digests(self, observation: Observation) -> Mapping[ClusterRole, KafkaDigest] | None:
        """The observed state of each cluster; None if one could not be read, or replicas move there."""
        digests = {}
        for role, part in parts(observation.plan).items():
            state = observation.kafka[role]
            throttled = recorded_on(observation.plan, role, observation.recorded).throttled
            if isinstance(state, AckwrightError) or state.moving or state.moves_forbidden or throttled:
                return None
            names = kafka_states.topic_names(part, needed_topics(part))
            digests[role] = KafkaDigest(names, kafka_states.digest(state.racks, state.topics, names))
        return digests

    def kafka_is_unchanged(self, resource: Object, steady: SteadyState) -> bool:
        """Whether brokers, topics, Secrets, and what other pipelines declare are as in this state.

        Raises ConnectionBusy if a cluster is not to be read now.
        """
        if self._index.conflicting_declarations(resource, steady.pipeline) != steady.conflicts:
            return False
        for role, before in steady.kafka.items():
            if self._read(steady.pipeline, role, partial(self._digest, before.names)) != before.value:
                return False
        return self._connections.credentials(steady.pipeline) == steady.credentials

    def _digest(self, names: Sequence[str], key: str, kafka: Kafka) -> int:
        now = self._clock()
        shared = self._shared.get(key)
        if shared is not None and now - shared.read_at < _SHARED_EVERY_S:
            observed = self._steady_topics.read(key, kafka, names)
        else:
            racks, observed = kafka.racks(), topics(kafka, (*names, *INTERNAL))
            shared = _Shared(now, racks, {name: observed[name] for name in INTERNAL if name in observed})
            recent = {k: v for k, v in self._shared.copy().items() if now - v.read_at < _SHARED_EVERY_S}
            self._shared = {**recent, key: shared}
            self._steady_topics.forget_old()
        return kafka_states.digest(shared.racks, {**shared.internal, **observed}, names)

    def _credentials(
        self,
        pipeline: DeliveryPipeline,
        kafka: Mapping[ClusterRole, KafkaState | AckwrightError],
        observed: Workload,
    ) -> str:
        """Which Secrets the driver is to have: the present ones once the brokers have accepted them.

        Until then those that it has, with which it may still be connected.
        """
        accepted = all(isinstance(state, KafkaState) for state in kafka.values())
        present = self._connections.credentials(pipeline) if accepted else None
        return credentials_of(observed.children, pipeline) if present is None else present

    def _is_expired(self, memory: Memory, status: Status, generation: int | None) -> bool:
        """Whether a change takes longer than it may. It stays expired until the pipeline is ready, or edited."""
        stalled, reconciling = status.condition("Stalled"), status.condition("Reconciling")
        if stalled and stalled.reason == ConditionReason.DEADLINE_EXCEEDED:
            return stalled.observed_generation == generation
        if reconciling is None or reconciling.status != "True" or reconciling.observed_generation != generation:
            return False
        if reconciling.reason == ConditionReason.CHECKING_EDIT:  # the check has a separate limit
            return False
        # An edit during a change does not move the transition's time, but gets the whole time too.
        changing = seconds_since(reconciling.last_transition_time, self._now())
        times = [changing, self._clock() - memory.edited]
        if status.accepted is not None and status.accepted.since is not None:  # its check took time
            times.append(seconds_since(status.accepted.since, self._now()))
        return min(times) > self._settings.settle
