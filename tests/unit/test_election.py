"""Leader election: the decision, and two or more candidates in every order of steps, delays, failures and clocks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright import lease as leases
from ackwright.clients.fence import Fence
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.election import Election, new_identity
from ackwright.lease import ENDED_S, LEASE_S, NO_SIGHTING, POLL_S, RENEW_S, WRITABLE_S, Action, Lease, Sighting
from ackwright.shards import THE_ONLY_ONE, Shard

NOW = datetime(2026, 11, 25, tzinfo=UTC)


@dataclass
class Server:
    """An API server with Leases. Each call takes time before and after a Lease is read or changed."""

    seconds: float = 1000.0
    latency: tuple[float, float] = (0.0, 0.0)
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 0
    unreachable: bool = False
    on_listed: Callable[[], object] = lambda: None  # called once, after the next list
    lost_answer: bool = False  # of the next write, which takes place

    def get(self, *names: str) -> dict[str, Any] | None:
        self._arrive()
        read = copy.deepcopy(self.leases.get(names[-1]))
        self.seconds += self.latency[1]
        return read

    def listing(self, *_: str) -> tuple[list[dict[str, Any]], str]:
        self._arrive()
        read = copy.deepcopy(list(self.leases.values()))
        on_listed, self.on_listed = self.on_listed, lambda: None
        on_listed()
        self.seconds += self.latency[1]
        return read, ""

    def create(self, desired: dict[str, Any]) -> dict[str, Any]:
        self._arrive()
        if desired["metadata"]["name"] in self.leases:
            raise ApiError(409, "it exists")
        return self._store(desired)

    def merge(self, *arguments: Any) -> dict[str, Any]:
        change: dict[str, Any] = arguments[-1]
        self._arrive()
        lease = self.leases.get(arguments[-2])
        if lease is None or change["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "it has changed")
        spec = lease["spec"] | change["spec"]
        meta = lease["metadata"] | change["metadata"]
        return self._store({"metadata": meta, "spec": {k: v for k, v in spec.items() if v is not None}})

    def _arrive(self) -> None:
        if self.unreachable:
            self.seconds += 2.0
            raise ApiError(None, "no answer")
        self.seconds += self.latency[0]

    def _store(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        self.leases[lease["metadata"]["name"]] = copy.deepcopy(stored)
        self.seconds += self.latency[1]
        if self.lost_answer:
            self.lost_answer = False
            raise ApiError(None, "no answer")
        return stored


@dataclass
class Candidate:
    """A replica whose clock differs from that of the others."""

    server: Server
    name: str
    offset: float = 0.0
    idle: bool = True
    changes: list[bool] = field(default_factory=list)
    shard: Shard = THE_ONLY_ONE

    def __post_init__(self) -> None:
        self.fence = Fence(WRITABLE_S, ENDED_S, self.clock)
        self.election = Election(
            cast(Kubernetes, Connection(self.server)),
            "system",
            self.fence,
            identity=self.name,
            shard=self.shard,
            on_change=self.changes.append,
            is_idle=lambda: self.idle,
            clock=self.clock,
            now=lambda: NOW,
        )

    def clock(self) -> float:
        return self.server.seconds + self.offset

    def last_write_ends(self) -> float:
        """By the server's clock, when a write of this candidate may still be under way."""
        return self.fence._renewed - self.offset + ENDED_S


@dataclass
class Connection:
    server: Server

    def with_timeout(self, _: object) -> Server:
        return self.server


def pair(server: Server) -> tuple[Candidate, Candidate]:
    return Candidate(server, "a"), Candidate(server, "b", offset=5000.0)


def follow(candidate: Candidate, seconds: float) -> float:
    """Steps of one candidate for that long, or until it leads. Returns the seconds that it duration."""
    start = candidate.server.seconds
    while candidate.server.seconds - start < seconds and not candidate.election.leads:
        candidate.server.seconds += candidate.election.step()
    return candidate.server.seconds - start


def test_the_writes_of_a_leader_end_before_another_one_may_take_over() -> None:
    assert WRITABLE_S < ENDED_S < LEASE_S
    assert RENEW_S * 2 < WRITABLE_S, "one failed renewal stops no writes"
    assert LEASE_S + 2 * POLL_S <= 15.0, "the takeover is promised within 15 s"


@given(
    holder=st.sampled_from(["", "me", "other"]),
    duration=st.floats(0, 1e9),
    since=st.floats(0, 100),
    ready=st.booleans(),
)
def test_only_a_lease_that_has_not_changed_for_long_is_taken(
    holder: str, duration: float, since: float, ready: bool
) -> None:
    lease = Lease(holder, duration, 0, "", "7")
    action = leases.decide("me", lease, Sighting("7", since), 100.0, ready=ready)
    if holder == "me":
        assert action is Action.RENEW
    elif not ready:
        assert action is Action.WAIT
    elif holder == "":
        assert action is Action.TAKE
    else:
        assert (action is Action.TAKE) == (100.0 - since >= max(LEASE_S, min(duration, 60.0)))


def test_a_sighting_begins_when_the_version_changes() -> None:
    first = NO_SIGHTING.update("1", 5.0)
    assert first.update("1", 9.0) == first
    assert first.update("2", 9.0) == Sighting("2", 9.0)


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": None}])
def test_a_lease_without_fields_is_free(spec: dict[str, Any] | None) -> None:
    assert leases.parse({"metadata": {}, "spec": spec}) == Lease("", 0.0, 0, "", "")


def test_identities_of_two_processes_of_one_machine_differ() -> None:
    assert new_identity() != new_identity()


def test_the_first_candidate_leads_and_the_second_one_waits() -> None:
    a, b = pair(Server())
    assert a.election.step() == RENEW_S
    assert a.election.leads
    assert follow(b, 5) >= 5
    assert (a.changes, b.changes) == ([True], [])


def test_a_leader_that_disappears_is_followed_within_15_seconds() -> None:
    server = Server()
    a, b = pair(server)
    a.election.step()
    b.election.step()
    server.seconds += RENEW_S
    a.election.step()  # b learns of this renewal as late as it can
    duration = follow(b, 60)
    assert b.election.leads
    assert WRITABLE_S < LEASE_S <= duration <= 15.0


def test_a_leader_that_stops_is_followed_at_the_next_step() -> None:
    a, b = pair(Server())
    a.election.step()
    b.election.step()
    a.election.stop()
    b.election.step()
    assert b.election.leads
    assert not a.fence.is_open()
    assert a.changes == [True, False]
    assert leases.parse(b.server.leases[THE_ONLY_ONE.lease]).transitions == 1


def test_a_leader_with_a_write_under_way_does_not_release() -> None:
    server = Server()
    a, b = pair(server)
    a.fence._ended = 0.05
    a.election.step()
    with a.fence.write():
        a.election.stop()
    b.election.step()
    assert not b.election.leads


def test_a_suspended_leader_that_was_overtaken_writes_nothing_and_does_not_lead() -> None:
    server = Server()
    a, b = pair(server)
    a.election.step()
    follow(b, 60)
    assert not a.fence.is_open(), "before its next step"
    a.election.step()
    a.election.step()
    assert (a.changes, a.election.leads, b.election.leads) == ([True, False], False, True)


def test_an_earlier_leader_does_not_lead_again_while_its_work_is_under_way() -> None:
    server = Server()
    a, b = pair(server)
    a.election.step()
    follow(b, 60)
    a.idle = False
    b.election.stop()
    assert follow(a, 30) >= 30
    a.idle = True
    assert follow(a, 30) < 30


def test_a_renewal_without_an_answer_counts_only_when_it_is_confirmed() -> None:
    server = Server()
    a, _ = pair(server)
    a.election.step()
    before = a.fence._renewed
    server.seconds += RENEW_S
    server.lost_answer = True
    a.election.step()
    assert a.fence._renewed == before
    assert a.election.step() == 0.0, "its version is another one now"
    a.election.step()
    assert a.fence._renewed > before
    assert a.changes == [True]


def test_a_leader_without_an_api_server_stops_writing_and_continues_when_it_is_back() -> None:
    server = Server()
    a, _ = pair(server)
    a.election.step()
    server.unreachable = True
    follow(a, 1)
    server.seconds += WRITABLE_S
    a.election.step()
    assert not a.fence.is_open()
    server.unreachable = False
    a.election.step()
    assert a.fence.is_open()


def test_the_lease_of_a_release_without_an_election_is_respected_for_its_minute() -> None:
    server = Server()
    name = THE_ONLY_ONE.lease
    server._store({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 60}})
    a, _ = pair(server)
    assert 60 <= follow(a, 100) <= 62


OF_ONE, OF_TWO = (THE_ONLY_ONE,), (Shard(1, 2), Shard(2, 2))


def test_leaders_of_another_number_of_shards_follow_when_the_last_one_has_stopped() -> None:
    server = Server()
    old = Candidate(server, "old")
    new = [Candidate(server, f"new-{s.number}", shard=s) for s in OF_TWO]
    old.election.step()
    for candidate in new:
        assert follow(candidate, 5) >= 5, "the only shard has a leader"
        old.election.step()
    old.election.stop()
    for candidate in new:
        assert follow(candidate, 15) <= 15.0
    assert [leases.parse(server.leases[s.lease]).shards for s in OF_TWO] == [2, 2]
    back = Candidate(server, "back")
    new[0].election.stop()
    new[1].election.step()
    assert follow(back, 5) >= 5, "the second of two shards has a leader"


def test_a_suspended_leader_of_another_number_of_shards_cannot_renew_after_it_was_overtaken() -> None:
    server = Server()
    old, new = Candidate(server, "old", shard=Shard(2, 2)), Candidate(server, "new")
    old.election.step()
    duration = follow(new, 60)
    assert LEASE_S <= duration <= 15.0
    for _ in range(2):
        old.election.step()
    assert not old.fence.is_open()
    assert (old.changes, new.election.leads) == ([True, False], True)


def test_a_candidate_that_sees_a_leader_of_another_number_too_late_releases_its_lease() -> None:
    server = Server()
    one, two = Candidate(server, "one"), Candidate(server, "two", shard=Shard(2, 2))
    server.on_listed = one.election.step  # it leads after the other one has seen nobody, and before that one's write
    two.election.step()
    assert (one.election.leads, two.changes) == (True, [])
    assert leases.parse(server.leases[two.shard.lease]).holder == ""


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which candidate steps
        st.floats(0, 9),  # seconds before
        st.tuples(st.floats(0, 2), st.floats(0, 2)),  # of its calls, before and after the server has acted
        st.sampled_from(["works", "works", "works", "works", "unreachable", "lost answer"]),
    ),
    max_size=60,
)


def run(steps: list[tuple[int, float, tuple[float, float], str]], shards: tuple[Shard, ...] = 3 * OF_ONE) -> list[str]:
    """Runs candidates in this order; returns the takeovers at which a write of another one might be under way that
    has pipelines of the same namespaces. shards: of each candidate.
    """
    server = Server()
    candidates = [
        Candidate(server, name, offset, shard=shard)
        for name, offset, shard in zip("abc", (0.0, 3000.0, -900.0), shards, strict=True)
    ]
    violations = []
    for number, pause, latency, event in steps:
        candidate = candidates[number]
        server.seconds += pause
        server.latency = latency
        server.unreachable, server.lost_answer = event == "unreachable", event == "lost answer"
        others = [
            (c.name, c.last_write_ends())
            for c in candidates
            if c is not candidate and (c.shard == candidate.shard or c.shard.of != candidate.shard.of)
        ]
        led = candidate.fence.is_open()
        candidate.election.step()
        if candidate.fence.is_open() and not led:
            now = candidate.fence._renewed - candidate.offset
            violations += [f"{candidate.name} leads at {now}, {name} writes until {t}" for name, t in others if t > now]
    return violations


@given(STEPS)
@settings(max_examples=300)
def test_no_candidate_leads_while_another_one_may_write(steps: list[Any]) -> None:
    assert run(steps) == []


@given(STEPS, st.sampled_from([OF_ONE + OF_TWO, (Shard(2, 2), *OF_ONE, Shard(2, 2)), (*OF_TWO, Shard(3, 3))]))
@settings(max_examples=300)
def test_no_candidate_leads_while_one_of_another_number_of_shards_may_write(
    steps: list[Any], shards: tuple[Shard, ...]
) -> None:
    assert run(steps, shards) == []


def test_candidates_that_ignore_other_numbers_of_shards_write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test before it."""
    monkeypatch.setattr(leases, "of_other_numbers", lambda *_: ())
    still = (0.0, 0.0)
    assert run([(0, 0.0, still, "works"), (2, 0.0, still, "works")], OF_ONE + OF_TWO) != []


def test_with_a_lease_that_is_too_short_two_candidates_write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test before it."""
    monkeypatch.setattr(leases, "LEASE_S", 5.0)
    monkeypatch.setattr(leases, "_LONGEST_S", 5.0)
    still = (0.0, 0.0)
    assert run([(0, 0.0, still, "works"), (1, 0.0, still, "works"), (1, 5.5, still, "works")]) != []
