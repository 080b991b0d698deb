"""The transitions of the replicas: replication, in-sync replicas, and the election of leaders."""

from __future__ import annotations

from .requests import break_connection
from .state import Entry, Settings, State, Step


def log_at(t: State, broker: int) -> tuple[Entry, ...]:
    return t.brokers[broker - 1].log


def with_broker(t: State, broker: int, **changes: object) -> State:
    b = t.brokers[broker - 1]._replace(**changes)  # type: ignore[arg-type]
    return t._replace(brokers=(*t.brokers[: broker - 1], b, *t.brokers[broker:]))


def append(t: State, e: Entry) -> tuple[State, int]:
    log = log_at(t, t.leader)
    return with_broker(t, t.leader, log=(*log, e)), len(log)


def append_marker(s: Settings, t: State, e: Entry) -> State:
    """The coordinator writes a marker, and repeats it until all in-sync replicas have it."""
    t, _ = append(t, e)
    return replicate(s, t).state


def advance(s: Settings, t: State) -> State:
    """The high watermark rises to what all in-sync replicas have, and answers the requests that wait for it.

    Under the minimum of in-sync replicas it stays (KIP-966).
    """
    if not t.leader or len(t.isr) < s.min_insync:
        return t
    common = min(common_length(log_at(t, t.leader), log_at(t, b)) for b in t.isr)
    t = t._replace(high_watermark=max(t.high_watermark, common))
    requests = tuple(
        r._replace(phase="reply") if r.phase == "stored" and r.offset < t.high_watermark else r for r in t.requests
    )
    return t._replace(requests=requests)


def common_length(a: tuple[Entry, ...], b: tuple[Entry, ...]) -> int:
    """The length of the common beginning of two logs."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def replicate(s: Settings, t: State) -> Step:
    log = log_at(t, t.leader)
    for b in t.isr:
        t = with_broker(t, b, log=log)
    return Step(advance(s, t), "replicate", t.leader)


def with_isr(s: Settings, t: State, isr: tuple[int, ...]) -> State:
    """The state with other in-sync replicas; those that leave below the minimum stay eligible as leaders (KIP-966)."""
    eligible = () if len(isr) >= s.min_insync else tuple(sorted({*t.elr, *t.isr} - {*isr}))
    return t._replace(isr=isr, elr=eligible)


def lag(s: Settings, t: State, broker: int) -> Step:
    after = with_isr(s, t, tuple(b for b in t.isr if b != broker))
    return Step(advance(s, after), "lag.below" if len(after.isr) < s.min_insync else "lag.enough", broker)


def kill_leader(s: Settings, t: State) -> Step:
    dead, had = t.leader, log_at(t, t.leader)
    t = with_broker(t, dead, alive=False)._replace(leader=0)
    t = with_isr(s, t, tuple(b for b in t.isr if b != dead))
    t, _ = break_connection(s, t)
    after, kind = elect(s, t)
    if not after.leader:
        return Step(after, "kill-leader.none", dead)
    has_all = common_length(had, log_at(after, after.leader)) == len(had)
    return Step(after, f"kill-leader.{kind}-{'complete' if has_all else 'shorter'}", after.leader)


def elect(s: Settings, t: State) -> tuple[State, str]:
    """The state with a new leader, if there is a candidate, and the kind of election."""
    for kind, candidates in (
        ("clean", t.isr),
        ("eligible", t.elr),
        ("unclean", range(1, s.replicas + 1) if s.unclean else ()),
    ):
        alive = [b for b in candidates if t.brokers[b - 1].alive]
        if not alive:
            continue
        new, end = alive[0], len(log_at(t, alive[0]))
        if kind == "unclean":
            t = t._replace(isr=(new,), elr=())
        elif kind == "eligible":
            t = with_isr(s, t, (new,))
        c = t.consumer
        t = t._replace(
            leader=new,
            leader_epoch=t.leader_epoch + 1,
            high_watermark=min(t.high_watermark, end),
            # A consumer detects that the log was truncated, and resumes where the logs part (KIP-320).
            committed=min(t.committed, end),
            consumer=c._replace(position=min(c.position, end)),
        )
        return advance(s, t), kind
    return t, "none"


def return_(s: Settings, t: State, broker: int) -> Step:
    t = with_broker(t, broker, alive=True)
    if t.leader:
        t = with_broker(t, broker, log=log_at(t, t.leader))
        t = with_isr(s, t, (*t.isr, broker))
        return Step(advance(s, t), "return.follower", broker)
    after, kind = elect(s, t)
    return Step(after, f"return.{kind}", broker)
