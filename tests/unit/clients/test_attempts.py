"""How many workers wait for clusters that do not answer: of eight workers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ackwright.clients.attempts import Attempts, ConnectionBusy
from ackwright.clients.deadline import limited, time_left
from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Cluster, Reason

WORKERS = 8


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.attempts = Attempts(WORKERS, lambda: self.now)

    def use(self, key: str, *, address: str = "", namespace: str = "ops", seconds: float = 0.1) -> None:
        """One use of a connection that takes so many seconds."""
        with self.attempts.attempt(key, address or key, namespace):
            self.now += seconds

    def waiting(self, namespaces: dict[str, str], address: str = "", *, seconds: float = 0.1) -> set[str]:
        """The connections that may be used at once, of these, and are used for so long; namespaces: by connection."""
        with ExitStack() as stack:
            begun = set()
            for key, namespace in namespaces.items():
                try:
                    stack.enter_context(self.attempts.attempt(key, address or key, namespace))
                except ConnectionBusy:
                    continue
                begun.add(key)
            self.now += seconds
            return begun

    def tries_at_once(self, key: str) -> int:
        """How many workers may use one connection at the same time."""
        with ExitStack() as stack:
            for number in range(WORKERS + 1):
                try:
                    stack.enter_context(self.attempts.attempt(key, key, "ops"))
                except ConnectionBusy:
                    return number
        raise AssertionError("all workers")


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_connection_is_tried_by_one_worker(world: World) -> None:
    assert world.tries_at_once("a") == 1
    assert world.tries_at_once("a") == 6, "it has answered"


def test_a_cluster_that_answers_promptly_leaves_a_quarter_of_the_workers_to_others(world: World) -> None:
    world.use("a")
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(world.attempts.attempt("a", "a", "ops"))
        with pytest.raises(ConnectionBusy):
            stack.enter_context(world.attempts.attempt("a", "a", "ops"))
        world.use("b")
    world.use("a")


def test_connections_without_an_answer_hold_a_quarter_of_the_workers_per_namespace_and_half_in_total(
    world: World,
) -> None:
    dead = {f"{team}-{i}": team for i in range(25) for team in ("hostile", "careless", "other")}
    assert len(world.waiting(dict.fromkeys(dead, "hostile"), seconds=8.0)) == 2
    assert len(world.waiting(dead, seconds=8.0)) == 4
    hostile = {f"hostile-{i}": "hostile" for i in range(25)}
    assert "new" in world.waiting({**hostile, "new": "ops"}), "another namespace has its share"


def test_a_slow_answer_makes_a_connection_one_of_those_and_a_prompt_one_ends_it(world: World) -> None:
    for key in "abcde":
        world.use(key)
    assert world.waiting(dict.fromkeys("abcde", "ops")) == set("abcde")
    for key in "abcde":
        world.use(key, seconds=8.0)
    assert len(world.waiting(dict.fromkeys("abcde", "ops"), seconds=8.0)) == 2
    for key in "abcde":
        world.use(key)
    assert world.waiting(dict.fromkeys("abcde", "ops")) == set("abcde")


def test_all_connections_to_an_address_are_tried_one_by_one_after_one_has_failed(world: World) -> None:
    """Two hundred teams with separate credentials: an outage of their cluster must not cost each of them a worker."""
    teams = {f"team-{i}": f"team-{i}" for i in range(200)}
    for key in teams:
        world.use(key, address="k:9092", namespace=key)
    assert len(world.waiting(teams, "k:9092")) == 6
    world.use("team-7", address="k:9092", namespace="team-7", seconds=8.0)
    assert len(world.waiting(teams, "k:9092", seconds=8.0)) == 4
    world.use("elsewhere", namespace="team-7")
    assert world.waiting({"elsewhere": "ops"}) == {"elsewhere"}
    world.use("team-9", address="k:9092", namespace="team-9")
    assert len(world.waiting(teams, "k:9092")) == 6, "the cluster is back"


def test_a_refusal_is_an_answer(world: World) -> None:
    world.use("a")
    with pytest.raises(ValueError, match="refused"), world.attempts.attempt("a", "a", "ops"):
        raise ValueError("refused")
    assert len(world.waiting({"a": "ops"})) == 1
    with world.attempts.attempt("a", "a", "ops"), world.attempts.attempt("a", "a", "ops"):
        pass


def test_one_worker_alone_can_use_any_connection() -> None:
    world = World()
    world.attempts = Attempts(1, lambda: world.now)
    for seconds in (0.1, 8.0, 0.1):
        world.use("a", seconds=seconds)


# -- the deadline of all calls ------------------------------------------------------------------------------------


@contextmanager
def silent_broker() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_calls_share_a_deadline() -> None:
    with silent_broker() as address:
        kafka = Kafka(Cluster(address), timeout=60.0)
        started = time.monotonic()
        with limited(1.0):
            for call in (kafka.racks, lambda: kafka.topics(["in"]), lambda: kafka.broker_config(1)):
                with pytest.raises(AckwrightError) as caught:
                    call()
                assert caught.value.reason is Reason.BROKERS_UNREACHABLE
            assert "all requests together may take 1 s" in caught.value.message
        assert time.monotonic() - started < 30, "three calls of 60 s"


def test_control_outside_of_a_deadline_a_call_has_the_whole_time_and_inside_what_is_left() -> None:
    assert time_left(8.0, "k:9092") == 8.0
    with limited(5.0):
        assert 0 < time_left(8.0, "k:9092") <= 5.0
        assert time_left(1.0, "k:9092") == 1.0
    assert time_left(8.0, "k:9092") == 8.0
