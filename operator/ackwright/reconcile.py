"""One idempotent look at a pipeline: what is declared, what is there, what to do about it, what to say of it.

Whatever triggers it, it starts from what it sees, never from what it remembers. Intent is written before anything is done: a successor
after a crash finds in the status what may have been done and in the cluster what has been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ackwright import conditions
from ackwright.api import status as api
from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Accepted, Delivery, DriverStatus, Intent, Status
from ackwright.apply import objects as apply
from ackwright.apply import topic_changes as apply_topics
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.conditions import Facts
from ackwright.deletion import finish
from ackwright.errors import AckwrightError
from ackwright.memory import Calm, Memory, versions
from ackwright.neighbours import Neighbours
from ackwright.observe import delivery as observe_delivery
from ackwright.observe import topics as observe_topics
from ackwright.observe.delivery import Kept
from ackwright.observe.workload import progress, workload
from ackwright.planning.changes import Change
from ackwright.planning.declared import accepted, edit, given_up, judged, needed_topics, suspended, topics_to_delete
from ackwright.planning.observed import DriverPod, Progress, Workload
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.steps import Apply, Delete, Finalizer, Situation, Step, steps
from ackwright.planning.topic_steps import CreateTopics, TopicStep
from ackwright.render.names import FINALIZER, digest
from ackwright.render.workload import credentials_of
from ackwright.render.workload import objects as render
from ackwright.settings import OperatorSettings
from ackwright_stream.reasons import REASONS, ExitCode

Object = Mapping[str, Any]

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_SOON_S = 3.0  # until the next look at a pipeline that is on its way
_FIGURES_EVERY_S = 30.0  # how often the status follows the driver's figures
_ASKED_A_SECOND = (
    50  # drivers, of all pipelines together: a thousand that are well must not keep one waiting that is not
)
_BROKERS_EVERY_S = 300.0  # how often the brokers' own settings are looked at


@dataclass(frozen=True)
class Seen:
    """A valid pipeline and what was found of it. edit: what differs from the spec that was accepted before; expired: it has been on its way
    for too long."""

    pipeline: DeliveryPipeline
    plan: DeliveryPlan
    workload: Workload
    delivery: observe_delivery.Delivery
    progress: Progress | None
    stuck: bool
    expired: bool
    edit: tuple[Change, ...]


class Reconciler:
    """Looks at one pipeline at a time; several threads may each look at another one."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        connections: Connections,
        settings: OperatorSettings,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[str], Progress | None] = progress,
        neighbours: Neighbours | None = None,
    ) -> None:
        """neighbours: the other pipelines, as far as they share something with one."""
        self._kubernetes, self._connections, self._settings = kubernetes, connections, settings
        self._now, self._clock, self._ask = now, clock, ask
        self._neighbours = neighbours or Neighbours()
        self._memory: dict[str, Memory] = {}

    def reconcile(self, resource: Object, objects: Iterable[Object]) -> float | None:
        """Brings a pipeline closer to what it declares. resource: as the API server has it; objects: what carries its label.

        Returns the seconds until the next look, None if there is nothing left to look at. Raises ApiError if the API server did not take
        what was written; then look again soon.
        """
        meta = resource["metadata"]
        if meta.get("deletionTimestamp"):
            self._memory.pop(meta["uid"], None)
            age, limit = self._age(meta["deletionTimestamp"]), self._settings.settle
            keep = self._neighbours.declared_elsewhere(resource)
            return finish(
                self._kubernetes, self._connections, resource, objects, keep=keep, age=age, limit=limit, now=self._time
            )
        memory, objects = self._memory.setdefault(meta["uid"], Memory()), list(objects)
        found, owner = workload(objects, meta["uid"]), self._neighbours.owner_of_group(resource)
        told = self._told(found.driver)
        memory.pace.saw(told, self._clock())
        seen_versions = versions(resource, objects, owner)
        if self._is_calm(memory, seen_versions, found.driver, told):
            return self._pause()
        memory.calm = None
        memory.saw_generation(meta.get("generation"), self._clock())
        before = api.read(resource.get("status"))
        pipeline, violations = judged(resource)
        invalid = "; ".join(str(v) for v in violations) or None
        if invalid:
            pipeline = accepted(resource, before)
        if pipeline is None:
            said = conditions.never_valid(before.conditions, invalid or "", self._time(), meta.get("generation"))
            self._write(
                resource, before.model_copy(update={"observed_generation": meta.get("generation"), "conditions": said})
            )
            return self._settings.resync
        made = plan(pipeline)
        seen = Seen(
            pipeline,
            made,
            found,
            self._delivery(pipeline, made, memory, owner, self._kept(resource, before, pipeline)),
            told,
            stuck=memory.pace.is_stuck(pipeline, self._settings.stuck, self._clock()),
            expired=self._is_expired(memory, before, meta.get("generation")),
            edit=edit(resource, before, pipeline),
        )
        if seen.stuck:
            memory.pace.replaced(self._clock())
        after, status, idle = self._bring(resource, before, seen, invalid)
        memory.written = after["metadata"]["resourceVersion"]
        if status.says("Reconciling", "True"):
            return self._settings.progress_every if seen.delivery.moving else _SOON_S
        if idle and not invalid and status.says("Stalled", "False"):
            memory.calm = Calm(versions(after, objects, owner), self._clock() + self._settings.resync, pipeline, status)
        return min(self._pause(), self._settings.resync)

    def _pause(self) -> float:
        """Seconds until a running driver is asked again."""
        return max(self._settings.progress_every, len(self._memory) / _ASKED_A_SECOND)

    def wrote(self, resource: Object) -> bool:
        """Whether it is what the last look left behind, and says nothing new. The answer to a write may come later than its event: then
        this is False, and one look finds nothing to do."""
        memory = self._memory.get(resource["metadata"]["uid"])
        return memory is not None and memory.written == resource["metadata"]["resourceVersion"]

    def forget(self, uid: str) -> None:
        """The pipeline is gone."""
        self._memory.pop(uid, None)

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def _told(self, driver: DriverPod | None) -> Progress | None:
        return self._ask(driver.address) if driver and driver.address and driver.phase == "Running" else None

    def _is_calm(self, memory: Memory, seen: frozenset[str], driver: DriverPod | None, told: Progress | None) -> bool:
        """Whether a whole look would find what the last one found: drivers are asked more often than everything else is looked at."""
        calm, now = memory.calm, self._clock()
        if calm is None or calm.versions != seen or now >= calm.until:
            return False
        if driver is not None and (told is None or told.state != "running"):
            return False
        stuck = memory.pace.is_stuck(calm.pipeline, self._settings.stuck, now)
        return not stuck and self._figures(calm.status.delivery, told) == calm.status.delivery

    def _kept(self, resource: Object, before: Status, pipeline: DeliveryPipeline) -> Kept:
        return Kept(
            ids={t.name: t.id for t in before.topics},
            throttled={t.name: t.throttled_brokers for t in before.topics if t.throttled_brokers is not None},
            given_up=given_up(pipeline.metadata.annotations),
            declared_before=self._neighbours.declared_before(resource, pipeline),
        )

    def _delivery(
        self, pipeline: DeliveryPipeline, made: DeliveryPlan, memory: Memory, owner: str | None, kept: Kept
    ) -> observe_delivery.Delivery:
        check_brokers = self._clock() - memory.brokers_checked > _BROKERS_EVERY_S
        try:
            key, kafka = self._connections.kafka(pipeline)
        except AckwrightError as e:
            return observe_delivery.unreachable(e)
        found = observe_delivery.delivery(kafka, made, needed_topics(pipeline), kept, check_brokers=check_brokers)
        if found.blocked is not None and REASONS[found.blocked.reason].of_connection:
            self._connections.failed(key, found.blocked)
        elif check_brokers and found.blocked is None:
            memory.brokers_checked = self._clock()
        return observe_delivery.taken(found, pipeline.group, owner) if owner else found

    def _is_expired(self, memory: Memory, before: Status, generation: int | None) -> bool:
        """Whether the pipeline has been on its way for too long; it stays so until it is ready, or edited."""
        stalled, reconciling = before.condition("Stalled"), before.condition("Reconciling")
        if stalled and stalled.reason == "DeadlineExceeded":
            return stalled.observed_generation == generation
        if reconciling is None or reconciling.status != "True" or reconciling.observed_generation != generation:
            return False
        # An edit on the way leaves the time of the transition as it was, and gets the whole time all the same.
        return min(self._age(reconciling.last_transition_time), self._clock() - memory.edited) > self._settings.settle

    # -- acting ----------------------------------------------------------------------------------------------------------------

    def _bring(self, resource: Object, before: Status, seen: Seen, invalid: str | None) -> tuple[Object, Status, bool]:
        """Takes the steps and says so. Returns the resource and its status as they are then, and whether there was nothing to do."""
        uid, generation = resource["metadata"]["uid"], resource["metadata"].get("generation")
        pipeline = suspended(seen.pipeline) if seen.delivery.paused else seen.pipeline
        refusal = self._refusal(seen)
        if refusal:
            seen = replace(seen, delivery=observe_delivery.refused(seen.delivery, refusal.steps, refusal.error))
        desired = render(pipeline, seen.plan, uid, self._settings, self._credentials(seen))
        todo = steps(desired, seen.workload, self._situation(before, seen, resource))
        last_valid = before.accepted
        if invalid is None:
            last_valid = Accepted(generation=generation or 0, hash=digest(resource["spec"]), spec=resource["spec"])
        said: dict[str, Any] = {"invalid": invalid, "accepted": last_valid, "generation": generation}
        intent = self._intent(before, todo)
        # What is tried again is on record, and so is how it failed.
        if intent and (intent != before.intent or generation != before.observed_generation or seen.expired):
            resource = self._write(resource, self._status(before, seen, todo=todo, intent=intent, **said))
        outcome, after, resource = self._carry_out(todo, seen, resource)
        seen = replace(seen, workload=after)
        left = () if outcome is None else todo
        left_over = None if outcome is None else intent
        if outcome is None and refusal:
            outcome = refusal.error.reason.value, refusal.error.message
        status = self._status(
            api.read(resource.get("status")), seen, todo=left, intent=left_over, outcome=outcome, **said
        )
        return self._write(resource, status), status, not todo and not refusal

    def _intent(self, before: Status, todo: tuple[Step, ...]) -> Intent | None:
        """What is about to be done, and since when."""
        actions = tuple(str(s)[:512] for s in todo)[:64]
        if before.intent and before.intent.actions == actions:
            return before.intent
        return Intent(actions=actions, since=self._time()) if actions else None

    def _situation(self, before: Status, seen: Seen, resource: Object) -> Situation:
        driver = seen.workload.driver
        # What halted, or was refused, waits for a person: a fresh pod would only forget why.
        passing = driver is not None and driver.exit_code not in (ExitCode.HALTED, ExitCode.INVALID)
        waits = driver is not None and passing and driver.waiting == "CrashLoopBackOff" and driver.ended_at is not None
        overdue = frozenset(d.uid for d in seen.workload.drivers if self._age(d.gone_by) > self._settings.node_lost)
        holds = FINALIZER in resource["metadata"].get("finalizers", ())
        # A throttle that is about to be set counts: nobody but us would end it.
        throttles = any(
            t.throttled_brokers is not None for t in observe_delivery.told(seen.delivery, before.topics, done=False)
        )
        wanted = throttles or bool(topics_to_delete(seen.pipeline))
        return Situation(
            finalizer=wanted if wanted != holds else None,
            may_start=seen.delivery.may_start(seen.plan),
            topics=seen.delivery.work.steps,
            stuck=seen.stuck,
            overdue=overdue,
            retry_now=waits and self._age(driver.ended_at if driver else None) > self._settings.crash_delay_max,
        )

    def _carry_out(
        self, todo: tuple[Step, ...], seen: Seen, resource: Object
    ) -> tuple[tuple[str, str] | None, Workload, Object]:
        """Takes the steps in their order, up to the first that fails. Returns that failure (reason, message), and the workload and the
        resource by then."""
        children = dict(seen.workload.children)
        failure: tuple[str, str] | None = None
        for step in todo:
            of_topics = isinstance(step, TopicStep)
            if failure and of_topics:
                continue
            try:
                match step:
                    case Finalizer():
                        resource = apply.finalizer(self._kubernetes, resource, step)
                    case Apply():
                        found = apply.apply(self._kubernetes, step)
                        children[found["kind"], found["metadata"]["name"]] = found
                    case Delete():
                        apply.delete(self._kubernetes, seen.pipeline.metadata.namespace, step)
                    case _:
                        self._change_topics(step, seen.pipeline)
            except ApiError as e:
                if e.passing:
                    raise
                failure = e.reason.value, f"{step}: {e.message}"
            except AckwrightError as e:
                failure = e.reason.value, e.message
            # A topic that cannot be changed is no reason to leave the job alone; one that cannot be made is.
            if failure and (not of_topics or isinstance(step, CreateTopics)):
                break
        return failure, replace(seen.workload, children=children), resource

    def _refusal(self, seen: Seen) -> apply_topics.Refusal | None:
        """What the brokers would not take of the changes to topics: those are then not begun, nor on record."""
        steps_ = seen.delivery.work.steps
        try:
            return apply_topics.refusal(self._connections.kafka(seen.pipeline)[1], steps_) if steps_ else None
        except AckwrightError as e:
            return apply_topics.Refusal(steps_, e)

    def _change_topics(self, step: TopicStep, pipeline: DeliveryPipeline) -> None:
        _, kafka = self._connections.kafka(pipeline)

        def look(names: Iterable[str]) -> Mapping[str, Any]:
            return observe_topics.topics(kafka, names)

        apply_topics.carry_out(kafka, step, look=look, rate=self._settings.replication_rate)

    def _credentials(self, seen: Seen) -> str:
        """Which Secrets the driver is to have: those that are there, once the brokers have let us in with them; until then those that it
        has, for it may still be connected."""
        known = self._connections.credentials(seen.pipeline) if seen.delivery.observed is not None else None
        return credentials_of(seen.workload.children, seen.pipeline) if known is None else known

    # -- saying ----------------------------------------------------------------------------------------------------------------

    def _status(
        self,
        before: Status,
        seen: Seen,
        *,
        invalid: str | None,
        accepted: Accepted | None,
        generation: int | None,
        todo: tuple[Step, ...],
        intent: Intent | None = None,
        outcome: tuple[str, str] | None = None,
    ) -> Status:
        spec, driver = seen.pipeline.spec, seen.workload.driver
        edited = tuple(str(c) for c in seen.edit) if todo else ()
        facts = Facts(
            suspended=spec.suspend,
            paused=seen.delivery.paused,
            topics=seen.delivery.topics,
            guarantee=seen.delivery.guarantee,
            workload=seen.workload,
            progress=seen.progress,
            invalid=invalid,
            outcome=outcome,
            pending=(*edited, *(str(s) for s in todo)),
            stuck=seen.stuck,
            expired=seen.expired,
        )
        return Status(
            observed_generation=generation,
            guarantee=spec.guarantee,
            group=seen.pipeline.group,
            topics=observe_delivery.told(seen.delivery, before.topics, done=not todo),
            topics_ready=observe_delivery.summary(seen.delivery, seen.plan) or before.topics_ready,
            conditions=conditions.merged(before.conditions, conditions.findings(facts), self._time(), generation),
            accepted=accepted,
            intent=intent,
            driver=DriverStatus(
                pod=driver.name,
                uid=driver.uid,
                node=driver.node,
                number=seen.progress.driver if seen.progress else (before.driver.number if before.driver else None),
                restarts=driver.restarts,
                last_error=(driver.error or "")[:2048] or None,
            )
            if driver
            else None,
            delivery=self._figures(before.delivery, seen.progress),
        )

    def _figures(self, before: Delivery | None, told: Progress | None) -> Delivery | None:
        """The driver's figures, not more often than every half minute: a status is no time series, and each write goes to all who watch."""
        if told is None:
            return before
        fresh = Delivery(
            batch=told.batch,
            lag=told.lag,
            records_per_second=told.records_per_second,
            abandoned_records=told.abandoned,
            malformed_records=told.malformed,
            expired_records=told.expired,
            observed_at=self._time(),
        )
        if before is None:
            return fresh
        same = fresh.model_copy(update={"observed_at": before.observed_at}) == before
        return before if same or self._age(before.observed_at) < _FIGURES_EVERY_S else fresh

    def _write(self, resource: Object, status: Status) -> Object:
        """Writes the status if it differs from what is there, and Events for the transitions. Returns the resource as it is then; raises
        ApiError with status 409 if somebody has changed it since it was read."""
        wanted = api.written(status)
        if wanted == resource.get("status"):
            return resource
        known = api.read(resource.get("status"))
        written = self._kubernetes.put_status({**resource, "status": wanted})
        for c in conditions.transitions(known.conditions, status.conditions):
            text = f"{c.type} is {c.status}" + (f": {c.message}" if c.message else "")
            apply.tell(
                self._kubernetes,
                resource,
                reason=c.reason,
                message=text,
                warning=conditions.is_bad(c),
                now=self._time(),
            )
        return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], **written}

    def _time(self) -> str:
        return self._now().strftime(_TIME)

    def _age(self, moment: str | None) -> float:
        """Seconds since then."""
        if moment is None:
            return 0.0
        return (self._now() - datetime.strptime(moment, _TIME).replace(tzinfo=UTC)).total_seconds()
