"""One idempotent reconcile of a pipeline: observe, plan, write the intent, act, write the status.

It starts from the actual state, never from what it remembers. The intent is written before anything is done: after a
crash the next operator reads in the status which steps may have been taken, and in the cluster which have been. Every
mapping from facts to steps, findings and status is pure and lives elsewhere (planning/, render/, conditions/); this
module does the reads and writes around them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ackwright.api.status import Intent, ScheduleStatus, Status, format_time, parse_status, seconds_since, status_json
from ackwright.apply.objects import write_event
from ackwright.apply.steps import Clients, take_steps
from ackwright.apply.topic_changes import refusal
from ackwright.clients.connections import Connections
from ackwright.clients.deadline import limited
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.conditions import report
from ackwright.conditions.report import Outcome
from ackwright.conditions.staleness import RENEWED_EVERY_S
from ackwright.conditions.transitions import is_bad, never_valid, transitions
from ackwright.deletion import finish
from ackwright.errors import AckwrightError
from ackwright.memory import Memory, SteadyState, job_state, versions
from ackwright.observe.topics import topics
from ackwright.observe.workload import hidden_owners
from ackwright.observer import ClusterState, Observer, Reports
from ackwright.pipeline_index import PipelineIndex
from ackwright.planning.clusters import ClusterRole
from ackwright.planning.declared import NeverValid, declaration, suspended
from ackwright.planning.edits import expects_positions, identity
from ackwright.planning.kafka_work import KafkaWork, without_refused
from ackwright.planning.observation import Observation
from ackwright.planning.observed import KafkaState
from ackwright.planning.plan import plan
from ackwright.planning.policy import policy
from ackwright.planning.scheduled_runs import seconds_until_next_run
from ackwright.planning.steps import Step, replaces_driver, situation, steps, without_driver_change
from ackwright.planning.topic_steps import TopicStep, topic_of
from ackwright.render.check import check_objects
from ackwright.render.names import FINALIZER
from ackwright.render.workload import objects as render
from ackwright.rollouts import Rollouts
from ackwright.settings import OperatorSettings
from ackwright_stream.reports import State

Object = Mapping[str, Any]

_LIMIT_S = 60.0  # all calls to Kafka of one reconcile may take this long
_SOON_S = 3.0  # until the next reconcile of a pipeline that is changing
# Of all pipelines together: many healthy pipelines must not delay an unhealthy one.
_REQUESTS_PER_S = 20  # for progress
_RECONCILES_PER_S = 12  # of steady pipelines
_LONGEST_PAUSE_S = 200.0  # however many pipelines there are: a status is renewed long before it counts as stale


@dataclass(frozen=True)
class _Plan:
    """What to do about a pipeline."""

    kafka: KafkaWork
    steps: tuple[Step, ...]
    intent: Intent | None  # the steps, as the status records them
    waits: bool = False  # whether the driver's replacement waits for its turn

    @property
    def idle(self) -> bool:
        return not self.steps and self.kafka.refused is None and not self.waits


class Reconciler:
    """Reconciles one pipeline per call. Several threads may call it, each for another pipeline."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        connections: Connections,
        settings: OperatorSettings,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        index: PipelineIndex | None = None,
        pipelines_listed: Callable[[], bool] = lambda: True,
    ) -> None:
        """index: all pipelines, for what they share. pipelines_listed: whether it has all watched ones."""
        self._kubernetes, self._connections, self._settings = kubernetes, connections, settings
        self._now, self._clock = now, clock
        self._policy = policy(settings)
        self._index = index or PipelineIndex(self._policy)
        self._pipelines_listed = pipelines_listed
        self._observer = Observer(connections, settings, self._index, now=now, clock=clock)
        self._rollouts = Rollouts(settings.max_unavailable, late=settings.settle, clock=clock)
        self._memory: dict[str, Memory] = {}

    def reconcile(self, resource: Object, objects: Iterable[Object], reports: Reports) -> float | None:
        """Brings a pipeline closer to its spec. resource: as the API server has it; objects: all that carry its label;
        reports: those of its drivers that have answered.

        Returns the seconds until the next reconcile; None: nothing is left to do. Raises ApiError if the API server did
        not accept a write, and ConnectionBusy if a cluster is not to be read now; then reconcile again soon.
        """
        with limited(_LIMIT_S):
            return self._reconcile(resource, objects, reports)

    def finish_in_lost_namespace(self, resource: Object) -> float | None:
        """Takes one step of the deletion of a pipeline whose objects cannot be listed. Returns and raises as above."""
        with limited(_LIMIT_S):
            return self._finish(resource, None)

    def _reconcile(self, resource: Object, objects: Iterable[Object], reports: Reports) -> float | None:
        meta, objects = resource["metadata"], tuple(objects)
        if meta.get("deletionTimestamp"):
            return self._finish(resource, objects)
        objects = (*objects, *self._hidden(meta, objects))
        memory = self._memory.setdefault(meta["uid"], Memory())
        cluster = self._observer.cluster(resource, objects, reports, memory)
        steady = memory.steady
        if steady is not None and self._is_steady(steady, memory, cluster):
            if self._clock() >= steady.until and self._is_unchanged(resource, steady, cluster):
                steady = memory.steady = replace(steady, until=self._clock() + self._resync())
            if self._clock() < steady.until:
                return min(self._seconds_between_requests(), self._seconds_until_run(steady.schedule))
        memory.steady = None
        memory.update_generation(meta.get("generation"), self._clock())
        status = parse_status(resource.get("status"))
        declared = declaration(resource, status, self._policy)
        if isinstance(declared, NeverValid):
            self._rollouts.end(meta["uid"])
            return self._report_never_valid(resource, status, declared.invalid)

        memory.namespace_uid = memory.namespace_uid or self._namespace_uid(meta["namespace"], status)
        observation = self._observer.pipeline(resource, status, declared, cluster, memory)
        todo = self._plan(resource, observation)
        resource = self._write_intent(resource, observation, todo)
        if observation.stuck:  # noted before the restart: if its status write fails, it is not repeated at once
            memory.tracker.restarted(self._clock())
        resource, status = self._act(resource, observation, todo)
        return self._remember(memory, resource, objects, status, observation=observation, todo=todo)

    def _hidden(self, meta: Object, objects: tuple[Object, ...]) -> Iterator[Object]:
        """Objects of the pipeline that control its drivers, and whose labels somebody has removed. They get them back
        by the next step.
        """
        for api_version, kind, name, uid in hidden_owners(objects):
            owner = self._kubernetes.get(api_version, kind, meta["namespace"], name)
            references = owner["metadata"].get("ownerReferences", ()) if owner is not None else ()
            if owner and owner["metadata"]["uid"] == uid and any(r["uid"] == meta["uid"] for r in references):
                yield {"apiVersion": api_version, "kind": kind, **owner}

    def wrote(self, resource: Object) -> bool:
        """Whether this version of the resource is the one that the last reconcile left, so that it holds no news.

        The event of a write may arrive before its answer: then this is False, and one reconcile finds nothing to do.
        """
        memory = self._memory.get(resource["metadata"]["uid"])
        return memory is not None and memory.written == resource["metadata"]["resourceVersion"]

    def forget(self, uid: str) -> None:
        """Forgets a pipeline that is gone."""
        self._memory.pop(uid, None)
        self._rollouts.end(uid)

    def forget_all(self) -> None:
        """Forgets everything that was remembered, since another operator may have acted meanwhile."""
        self._memory.clear()
        self._rollouts.clear()

    def _is_steady(self, steady: SteadyState, memory: Memory, cluster: ClusterState) -> bool:
        """Whether a whole reconcile would find the same as the last one.

        Progress is read more often than everything else is read.
        """
        now = self._clock()
        if steady.versions != cluster.versions:
            return False
        driver = cluster.workload.driver
        running = cluster.progress is not None and cluster.progress.state is State.RUNNING
        # Without a time to live, the pod of a completed run stays for good, and reports no progress.
        ttl = steady.pipeline.spec.trigger.ttl_seconds_after_finished
        stays = driver is not None and driver.phase == "Succeeded" and ttl is None
        if driver is not None and not stays and not running:
            return False
        if memory.tracker.is_stuck(steady.pipeline, self._settings.stuck, now):
            return False
        return report.figures(steady.delivery, cluster.progress, self._now()) == steady.delivery

    def _is_unchanged(self, resource: Object, steady: SteadyState, cluster: ClusterState) -> bool:
        """Whether a whole reconcile, which takes several times as long, would decide the same as the last one."""
        if self._clock() >= steady.deadline or job_state(cluster.progress) != steady.job:
            return False
        return self._observer.kafka_is_unchanged(resource, steady)

    # -- plan ------------------------------------------------------------------------------------------------------

    def _namespace_uid(self, namespace: str, status: Status) -> str:
        if status.accepted is not None and status.accepted.namespace_uid is not None:
            return status.accepted.namespace_uid
        answer = self._kubernetes.get("v1", "Namespace", "", namespace)
        if answer is None:
            raise ApiError(404, f"namespace {namespace} does not exist; its pipelines are about to be deleted")
        return str(answer["metadata"]["uid"])

    def _plan(self, resource: Object, observation: Observation) -> _Plan:
        """The steps for an observed pipeline, without those that the brokers would refuse."""
        meta, now = resource["metadata"], self._now()
        work = self._without_refused(observation, observation.kafka_work())
        pipeline = suspended(observation.pipeline) if work.pause else observation.pipeline
        desired = render(
            pipeline,
            observation.plan,
            meta["uid"],
            self._settings,
            observation.credentials,
            identity=identity(observation.decision.accepted, meta["uid"]),
            run=observation.workload.run,
            expects_positions=observation.decision.accepted.expects_positions,
        )
        desired = (*desired, *self._check(observation, meta["uid"]))
        has_finalizer = FINALIZER in meta.get("finalizers", ())
        depends_on = situation(observation, work, has_finalizer=has_finalizer, settings=self._settings, now=now)
        todo = steps(desired, observation.workload, depends_on)
        waits = self._waits(meta, observation, todo, stopped=pipeline.spec.suspend)
        todo = without_driver_change(todo) if waits else todo
        return _Plan(work, todo, report.intent(observation.status, todo, now), waits)

    def _waits(self, meta: Object, observation: Observation, todo: tuple[Step, ...], *, stopped: bool) -> bool:
        """Whether a driver that delivers has to wait before it is replaced. An edit never waits.

        stopped: whether the pipeline is to have no driver.
        """
        workload, accepted = observation.workload, observation.decision.accepted
        ready = any(driver.ready for driver in workload.drivers)
        if replaces_driver(todo):
            before = observation.status.accepted
            edited = before is None or before.spec != accepted.spec or not accepted.delivered
            return ready and not edited and not self._rollouts.admit(meta["uid"], meta["namespace"])
        if stopped or workload.complete or workload.idle or (ready and not workload.rolling):
            self._rollouts.end(meta["uid"])
        return False

    def _check(self, observation: Observation, uid: str) -> tuple[dict[str, Any], ...]:
        """The objects that check an edit; none without one."""
        edited, held = observation.decision.check, observation.decision.held
        if edited is None or held is None:
            return ()
        expects = expects_positions(observation.status, observation.decision.pipeline, edited)
        return check_objects(
            edited,
            plan(edited),
            uid,
            self._settings,
            held.hash,
            identity=identity(observation.decision.accepted, uid),
            expects_positions=expects,
        )

    def _without_refused(self, observation: Observation, work: KafkaWork) -> KafkaWork:
        """The work without the steps that fail in a dry run: these are neither taken nor recorded as intent."""
        pipeline = observation.pipeline
        for role in ClusterRole:
            steps_there = tuple(s for s in work.steps if observation.role_of(topic_of(s)) is role)
            if not steps_there:
                continue
            try:
                key, kafka = self._connections.kafka(pipeline, role)
                with self._connections.attempt(key, kafka, pipeline.metadata.namespace, writes=True):
                    refused = refusal(kafka, steps_there)
            except AckwrightError as e:
                work = without_refused(work, steps_there, e)
                continue
            if refused:
                work = without_refused(work, refused.steps, refused.error)
        return work

    # -- act -------------------------------------------------------------------------------------------------------

    def _write_intent(self, resource: Object, observation: Observation, todo: _Plan) -> Object:
        """Records the steps and a new spec before the first step is taken. Returns the resource as it is then."""
        before = observation.status
        decision = observation.decision
        edited = observation.generation != before.observed_generation or decision.accepted != before.accepted
        if todo.intent is None or not (edited or observation.expired or todo.intent != before.intent):
            return resource
        outcome = Outcome(todo.kafka, observation.workload, pending=todo.steps, intent=todo.intent, waits=todo.waits)
        status = report.status(before, observation, outcome, self._now())
        return self._write_status(resource, status)

    def _kafka_of(self, observation: Observation, step: TopicStep) -> Kafka:
        """The cluster of a step's topics. Raises AckwrightError without a connection."""
        return self._connections.kafka(observation.pipeline, observation.role_of(topic_of(step)))[1]

    @contextmanager
    def _writing(self, observation: Observation, work: KafkaWork) -> Iterator[None]:
        """The context in which the steps are taken. Raises ConnectionBusy; the next reconcile continues then."""
        pipeline, connected = observation.pipeline, []
        for role in ClusterRole:
            if any(observation.role_of(topic_of(s)) is role for s in work.steps):
                with suppress(AckwrightError):  # without a connection its steps fail with this error
                    connected.append(self._connections.kafka(pipeline, role))
        if not connected:
            yield
            return
        # One attempt for both clusters, since a worker that waits for a second one could wait forever.
        key, kafka = "/".join(key for key, _ in connected), connected[0][1]
        with self._connections.attempt(key, kafka, pipeline.metadata.namespace, writes=True):
            yield

    def _act(self, resource: Object, observation: Observation, todo: _Plan) -> tuple[Object, Status]:
        """Takes the steps and writes the status. Returns the resource and its status as they are then."""
        clients = Clients(
            self._kubernetes,
            kafka=partial(self._kafka_of, observation),
            read_topics=lambda kafka: partial(topics, kafka),
            replication_rate=self._settings.replication_rate,
        )
        with self._writing(observation, todo.kafka):
            applied = take_steps(clients, todo.steps, resource, observation.workload)
        # The ids of new topics are recorded by the next reconcile. Until then the intent says that they are the
        # pipeline's own, which a deletion has to know.
        left = todo.intent if todo.kafka.topics.created else None
        outcome = Outcome(todo.kafka, applied.workload, intent=left, failure=todo.kafka.refused, waits=todo.waits)
        if applied.failure:
            outcome = replace(outcome, pending=todo.steps, intent=todo.intent, failure=applied.failure)
        before = parse_status(applied.resource.get("status"))
        status = report.status(before, observation, outcome, self._now())
        return self._write_status(applied.resource, status), status

    def _finish(self, resource: Object, objects: Iterable[Object] | None) -> float | None:
        """Takes one step of a deletion. objects: None: they cannot be listed."""
        meta = resource["metadata"]
        self.forget(meta["uid"])
        return finish(
            self._kubernetes,
            self._connections,
            resource,
            objects,
            shared=self._index.shared_topics(resource),
            pipelines_listed=self._pipelines_listed(),
            age=seconds_since(meta["deletionTimestamp"], self._now()),
            limit=self._settings.settle,
            now=lambda: format_time(self._now()),
            own_namespace=self._settings.own_namespace,
        )

    # -- report ----------------------------------------------------------------------------------------------------

    def _report_never_valid(self, resource: Object, status: Status, invalid: str) -> float:
        generation = resource["metadata"].get("generation")
        conditions = never_valid(status.conditions, invalid, format_time(self._now()), generation)
        reported = {"conditions": conditions, "lost_topics": None, "moved_positions": None, "lost_state": None}
        changed = status.model_copy(update={"observed_generation": generation, **reported})
        self._write_status(resource, changed)
        return self._resync()

    def _write_status(self, resource: Object, status: Status) -> Object:
        """Writes the status if it has changed, or not for long, and Events for its transitions.

        Returns the resource as it is then. Raises ApiError with status 409 if the resource has changed since it was
        read.
        """
        before, now = parse_status(resource.get("status")), self._now()
        same = status_json(status.model_copy(update={"observed_at": before.observed_at})) == resource.get("status")
        if same and before.observed_at and seconds_since(before.observed_at, now) < RENEWED_EVERY_S:
            return resource
        changed = status_json(status.model_copy(update={"observed_at": format_time(now)}))
        answer = self._kubernetes.put_status({**resource, "status": changed})
        for c in transitions(before.conditions, status.conditions):
            write_event(
                self._kubernetes,
                resource,
                reason=c.reason,
                message=f"{c.type} is {c.status}" + (f": {c.message}" if c.message else ""),
                warning=is_bad(c),
                now=format_time(self._now()),
            )
        return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], **answer}

    # -- next ------------------------------------------------------------------------------------------------------

    def _remember(
        self,
        memory: Memory,
        resource: Object,
        objects: Iterable[Object],
        status: Status,
        *,
        observation: Observation,
        todo: _Plan,
    ) -> float:
        """Remembers what this reconcile has done. Returns the seconds until the next one."""
        memory.written = resource["metadata"]["resourceVersion"]
        until_run = self._seconds_until_run(status.schedule)
        if status.condition_is("Reconciling", "True"):
            moving = any(isinstance(state, KafkaState) and state.moving for state in observation.kafka.values())
            return self._settings.progress_every if moving else _SOON_S
        if todo.idle and not observation.invalid and status.condition_is("Stalled", "False"):
            known = versions(resource, objects, observation.group_owner)
            until = self._clock() + min(self._resync(), until_run)
            steady = SteadyState(known, until, observation.pipeline, status.delivery, status.schedule, deadline=until)
            memory.steady = self._observer.with_kafka(steady, resource, observation, memory)
        return min(self._seconds_between_requests(), self._resync(), until_run)

    def _resync(self) -> float:
        """Seconds until a steady pipeline is reconciled as a whole."""
        return max(min(self._settings.resync, RENEWED_EVERY_S), self._pause(_RECONCILES_PER_S))

    def _seconds_until_run(self, schedule: ScheduleStatus | None) -> float:
        """Seconds until the next run of a schedule is due; infinite if it is due already, or there is none."""
        return seconds_until_next_run(schedule, self._now()) or math.inf

    def _seconds_between_requests(self) -> float:
        """Seconds until the progress of a running driver is read again."""
        return max(self._settings.progress_every, self._pause(_REQUESTS_PER_S))

    def _pause(self, per_second: float) -> float:
        """Seconds between two turns of each pipeline, of which so many have theirs in a second."""
        return min(len(self._memory) / per_second, _LONGEST_PAUSE_S)
