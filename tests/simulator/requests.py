"""The producer's requests: what happens to one that is not acknowledged."""

from __future__ import annotations

from .state import Request, Settings, State


def first(t: State, *phases: str) -> Request:
    return next(r for r in t.requests if r.phase in phases)


def without(t: State, r: Request) -> State:
    i = t.requests.index(r)
    return t._replace(requests=t.requests[:i] + t.requests[i + 1 :])


def with_outcome(t: State, value: int, outcome: str) -> State:
    return t._replace(outcomes=(*t.outcomes[: value - 1], outcome, *t.outcomes[value:]))


def retry(s: Settings, t: State, r: Request) -> tuple[State, str]:
    """The state after the producer has learnt that r was not acknowledged, and whether it retries or fails."""
    t = without(t, r)
    if s.acks == "0":
        return t, "lost"
    if not s.retries:
        return with_outcome(t, r.value, "failed"), "failed"
    return t._replace(requests=(*t.requests, r._replace(phase="request", offset=-1))), "retried"


def break_connection(s: Settings, t: State) -> tuple[State, str]:
    """The state after the connection to the leader broke, and the first request's end.

    Requests and answers of a connection keep their order, so every request without an answer is affected.
    """
    ends = []
    for r in t.requests:
        t, end = retry(s, t, r)
        ends.append(end)
    return t, ends[0] if ends else ""
