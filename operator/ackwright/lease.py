"""Leader election by a Lease: what a candidate does about the Lease that it has just read. Pure.

The rules are those of client-go's leader election: a candidate takes over a Lease that has not changed for as long as
the candidate's own clock says, so that clocks of several machines are never compared. Every write names the version of
the Lease that was read, and the API server refuses it if another candidate was faster.
https://pkg.go.dev/k8s.io/client-go/tools/leaderelection

Several operators may divide the namespaces among themselves (shards.py); the replicas of each have their own Lease. A
change of the number of shards divides the namespaces differently, so a candidate leads only while no candidate that was
started with another number may write. `tests/model/shards.py` is the model of this part.

The module `leaderelection` of the package `kubernetes` is not used: it measures by the wall clock, its calls have no
deadline, it does not release a Lease, and nothing in it stops the writes of a leader that could not renew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from ackwright.shards import LEASE_NAMES, SHARDS_ANNOTATION, Shard

LEASE_S = 12.0  # another candidate takes over a Lease that has not changed for this long
# A leader begins no write to Kafka or Kubernetes when its last renewal is older, and none takes longer than ENDED_S.
WRITABLE_S = 6.0
ENDED_S = 11.0  # after a renewal, at the latest, the writes of its leader have ended
RENEW_S, POLL_S = 2.0, 1.0  # time between two renewals, and between two reads by the other candidates
_LONGEST_S = 60.0  # duration of a Lease that candidates respect: that of releases without an election


class Action(Enum):
    """What a candidate does next."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


@dataclass(frozen=True)
class Lease:
    """The fields of a Lease that the election uses."""

    holder: str  # empty: nobody
    seconds: float  # for which it is valid after a renewal
    transitions: int  # number of changes of the holder
    renewed: str  # time of the last renewal, by the holder's clock: only for people, and to compare events
    version: str
    name: str = ""
    shards: int = 1  # the number of shards that its last holder was started with


@dataclass(frozen=True)
class Sighting:
    """The version of a Lease, and since when a candidate has known it, in seconds of the candidate's clock."""

    version: str
    since: float

    def update(self, version: str, now: float) -> Sighting:
        """This sighting, or a new one if the version is another. now: after the Lease was read."""
        return self if version == self.version else Sighting(version, now)


NO_SIGHTING = Sighting("", 0.0)


def parse(lease: Mapping[str, Any]) -> Lease:
    """The Lease out of its object, which anybody with permissions may have written."""
    spec, meta = lease.get("spec") or {}, lease["metadata"]
    shards = str((meta.get("annotations") or {}).get(SHARDS_ANNOTATION, "1"))
    return Lease(
        holder=str(spec.get("holderIdentity") or ""),
        seconds=float(spec.get("leaseDurationSeconds") or 0),
        transitions=int(spec.get("leaseTransitions") or 0),
        renewed=str(spec.get("renewTime") or ""),
        version=str(meta.get("resourceVersion", "")),
        name=str(meta.get("name", "")),
        shards=int(shards) if shards.isdecimal() else 1,
    )


def of_other_numbers(leases: Iterable[Lease], shard: Shard) -> tuple[Lease, ...]:
    """The held Leases of candidates that were started with another number of shards.

    Not among them is the one that this shard's replicas compete for: its versions decide about that one.
    """
    return tuple(
        x for x in leases if x.holder and x.name in LEASE_NAMES and x.name != shard.lease and x.shards != shard.of
    )


def seconds_to_wait(lease: Lease, sighting: Sighting, now: float) -> float:
    """Seconds until another candidate may take this Lease; 0: now."""
    if not lease.holder:
        return 0.0
    valid = max(LEASE_S, min(lease.seconds, _LONGEST_S))
    return max(0.0, sighting.since + valid - now)


def decide(identity: str, lease: Lease | None, sighting: Sighting, now: float, *, ready: bool) -> Action:
    """The next action of the candidate with this identity.

    lease: as it has just been read; None: there is none. sighting: of this version. ready: whether the candidate may
    begin to lead; it may not while work that it began as an earlier leader is under way.
    """
    if lease is not None and lease.holder == identity:
        return Action.RENEW
    if not ready:
        return Action.WAIT
    if lease is None:
        return Action.CREATE
    return Action.TAKE if seconds_to_wait(lease, sighting, now) <= 0 else Action.WAIT


def new_lease(identity: str, namespace: str, shard: Shard, now: datetime) -> dict[str, Any]:
    """The Lease that a candidate creates."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": shard.lease, "namespace": namespace, "annotations": {SHARDS_ANNOTATION: str(shard.of)}},
        "spec": _acquired(identity, 0, now),
    }


def taking(identity: str, lease: Lease, shard: Shard, now: datetime) -> dict[str, Any]:
    """The change by which a candidate takes the Lease."""
    change = _change(lease.version, _acquired(identity, lease.transitions + 1, now))
    return {**change, "metadata": {**change["metadata"], "annotations": {SHARDS_ANNOTATION: str(shard.of)}}}


def renewal(version: str, now: datetime) -> dict[str, Any]:
    """The change by which the holder renews the Lease."""
    return _change(version, {"renewTime": _micro_time(now)})


def release(version: str, now: datetime) -> dict[str, Any]:
    """The change by which the holder gives the Lease up, so that another candidate takes it at once."""
    return _change(version, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": _micro_time(now)})


def _acquired(identity: str, transitions: int, now: datetime) -> dict[str, Any]:
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(LEASE_S),
        "leaseTransitions": transitions,
        "acquireTime": _micro_time(now),
        "renewTime": _micro_time(now),
    }


def _change(version: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "spec": spec}


def _micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
