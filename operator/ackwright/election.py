"""Leader election among the replicas of the operator: the loop that reads and renews the Lease.

What to do about a Lease is decided in lease.py; each shard has its own. A replica that leads has the fence open; one
that stands by has its caches filled by the watches, so that it reconciles as soon as it leads.
"""

from __future__ import annotations

import logging
import random
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from ackwright import lease as leases
from ackwright.clients.fence import Fence, clock
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.lease import NO_SIGHTING, POLL_S, RENEW_S, Action, Lease, Sighting
from ackwright.shards import Shard

log = logging.getLogger("ackwright")

_KIND = ("coordination.k8s.io/v1", "Lease")
_CALL_S = (1.0, 2.0)  # to connect, and to wait for the answer: several calls fit into the time until writes end
_CONFLICT = 409


def new_identity() -> str:
    """An identity of this process: the name of its pod, and a suffix, since a restarted container is a new process."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Election:
    """One candidate. Only its own thread calls step(); other threads may read `leads`, and call stop()."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        fence: Fence,
        *,
        identity: str,
        shard: Shard,
        on_change: Callable[[bool], None],
        is_idle: Callable[[], bool] = lambda: True,
        on_lease: Callable[[Lease], None] = lambda _: None,
        clock: Callable[[], float] = clock,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """on_change: called in this thread with whether the candidate leads. is_idle: whether no work is under way that
        was begun as a leader. on_lease: called with each Lease that was read or written. clock: of the fence."""
        self._kubernetes = kubernetes.with_timeout(_CALL_S)
        self._namespace, self._fence, self.identity = namespace, fence, identity
        self._shard, self._name = shard, shard.lease
        self._on_change, self._is_idle, self._on_lease = on_change, is_idle, on_lease
        self._clock, self._now = clock, now
        self._sighting = NO_SIGHTING
        self._held: str | None = None  # the version of the Lease as this candidate last wrote it
        self._is_alone = False  # since it took the Lease, it has seen that no candidate of another number may write
        self._others: dict[str, Sighting] = {}  # of the Leases of candidates of other numbers of shards
        self._waits_for: tuple[str, ...] = ()  # the holders of those that are valid
        self._leads = False
        self._failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def leads(self) -> bool:
        """Whether this candidate holds the Lease and has renewed it in time."""
        return self._leads and self._fence.is_open()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all writes, then releases the Lease, so that the next leader does not wait for its end."""
        self._stopped.set()
        self._fence.close()
        if self._thread.ident is not None:
            self._thread.join(2 * sum(_CALL_S))
        self._fence.close()  # the last step may have opened it
        self._report(False)
        if self._held is None:
            return
        if not self._fence.wait_for_writes():
            log.warning("the Lease %s is not released, because a write has not ended", self._name)
            return
        try:
            self._merge(leases.release(self._held, self._now()))
        except ApiError as e:
            log.warning("the Lease %s is not released: %s", self._name, e.message)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                pause = self.step()
            except Exception:
                log.exception("the election of the leader failed")
                pause = RENEW_S
            if self._leads and not self._fence.is_open():
                self._report(False)
            self._stopped.wait(pause)

    def step(self) -> float:
        """Reads and writes the Lease once. Returns the seconds until the next step."""
        try:
            pause = self._renew(self._held) if self._held is not None else self._contend()
            self._failing = False
            return pause
        except ApiError as e:
            if e.status == _CONFLICT:  # another write came first, or an earlier one of this candidate without an answer
                self._held = None
                return 0.0 if self._leads else POLL_S
            if not self._failing:
                log.warning("the Lease %s cannot be read or renewed: %s", self._name, e.message)
            self._failing = True
            return POLL_S

    def _contend(self) -> float:
        read = self._kubernetes.get(*_KIND, self._namespace, self._name)
        lease, now = leases.parse(read) if read else None, self._clock()
        if lease:
            self._on_lease(lease)
            self._sighting = self._sighting.update(lease.version, now)
        if lease is None or lease.holder != self.identity:
            self._is_alone = False
            self._fence.close()
            self._report(False)
        action = leases.decide(self.identity, lease, self._sighting, now, ready=self._is_idle())
        if action is Action.RENEW and lease:
            return self._renew(lease.version)
        if action in (Action.TAKE, Action.CREATE) and self._waits_for_others():
            return POLL_S
        if action is Action.TAKE and lease:
            sent = self._clock()
            return self._hold(self._merge(leases.taking(self.identity, lease, self._shard, self._now())), sent)
        if action is Action.CREATE:
            sent = self._clock()
            new = leases.new_lease(self.identity, self._namespace, self._shard, self._now())
            return self._hold(leases.parse(self._kubernetes.create(new)), sent)
        remaining = leases.seconds_to_wait(lease, self._sighting, now) if lease else POLL_S
        return min(POLL_S, remaining or POLL_S)

    def _renew(self, version: str) -> float:
        sent = self._clock()
        return self._hold(self._merge(leases.renewal(version, self._now())), sent)

    def _hold(self, lease: Lease, sent: float) -> float:
        """Takes that the Lease is this candidate's as of the time when the request was sent."""
        if lease.holder != self.identity:  # something on the API server's side has changed it
            self._held = None
            self._fence.close()
            self._report(False)
            return POLL_S
        self._held = lease.version
        if not self._is_alone and self._waits_for_others():
            # Candidates of two numbers have taken their Leases at the same time, and each sees that of the other. Both
            # release theirs, and the first to try again after a random time leads. This one has not led meanwhile.
            self._merge(leases.release(self._held, self._now()))
            self._held = None
            return random.uniform(POLL_S, 3 * POLL_S)  # noqa: S311 (jitter)
        self._is_alone = True
        if not self._stopped.is_set():
            self._fence.extend(sent)
            self._on_lease(lease)
            self._report(True)
        return RENEW_S

    def _waits_for_others(self) -> bool:
        """Whether a candidate that was started with another number of shards may still write.

        Clears the Leases of those that may not, so that they cannot renew them: without that, a holder that was
        suspended would renew its own Lease and lead beside this candidate.
        """
        read, _ = self._kubernetes.listing(*_KIND, self._namespace)
        others, now = leases.of_other_numbers(map(leases.parse, read), self._shard), self._clock()
        self._others = {x.name: self._others.get(x.name, NO_SIGHTING).update(x.version, now) for x in others}
        waits_for = [x for x in others if leases.seconds_to_wait(x, self._others[x.name], now) > 0]
        for other in (x for x in others if x not in waits_for):
            self._kubernetes.merge(*_KIND, self._namespace, other.name, leases.release(other.version, self._now()))
        if (holders := tuple(x.holder for x in waits_for)) != self._waits_for and holders:
            log.info("shard %s waits for operators of another number of shards: %s", self._shard, ", ".join(holders))
        self._waits_for = holders
        return bool(holders)

    def _merge(self, change: dict[str, object]) -> Lease:
        return leases.parse(self._kubernetes.merge(*_KIND, self._namespace, self._name, change))

    def _report(self, leads: bool) -> None:
        if leads is self._leads:
            return
        self._leads = leads
        log.info("%s %s", self.identity, "leads" if leads else "leads no more")
        self._on_change(leads)
