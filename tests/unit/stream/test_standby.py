"""When a standby driver takes the pipeline: as soon as the owner's process is gone, and never from a healthy driver."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import standby
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StandbyTimes
from ackwright_stream.progress import Progress, serve
from ackwright_stream.reports import State
from ackwright_stream.sinks.base import Owner, Sink
from ackwright_stream.standby import Standby, announced
from minimal_job import minimal_job
from waiting import wait_until

SECONDS = 30
MEMBER = "ackwright-1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_READ_EVERY_S", 0.01)
    monkeypatch.setattr(standby, "_READ_AT_LEAST_EVERY_S", 0.05)
    monkeypatch.setattr(standby, "_TAKING_S", 0.1)
    monkeypatch.setattr(standby, "_CHECK_EVERY_S", 0.1)


class Group:
    """A sink of which only the group is asked, by this driver or for it."""

    def __init__(self, owner: Owner | None, own: str | None = None) -> None:
        self.current, self.own = owner, own
        self.reads = 0

    def owner(self) -> Owner | None:
        self.reads += 1
        return self.current

    def member(self) -> str | None:
        return self.own


TIMES = StandbyTimes(silent_ms=5000, silent_max_ms=45_000)


class Waiting:
    """A standby that waits in another thread."""

    def __init__(self, group: Group, silent_s: float = 60.0) -> None:
        self.group, self.stop, self.begun = group, threading.Event(), 0
        self.standby = Standby(cast(Sink, group), self.stop, replace(TIMES, silent_ms=int(silent_s * 1000)))
        self._pool = ThreadPoolExecutor(1)
        self.result: Future[bool] = self._pool.submit(self.standby.wait, self._begin)

    def _begin(self) -> None:
        self.begun += 1

    def still_waits(self) -> bool:
        """Whether it still waits after more reads of the group."""
        reads = self.group.reads
        wait_until(lambda: self.group.reads > reads + 3 or self.result.done(), "more reads at the group", SECONDS)
        return not self.result.done()

    def follows(self) -> None:
        wait_until(lambda: self.begun, "it follows the owner", SECONDS)

    def end(self) -> None:
        self.stop.set()
        self._pool.shutdown()


@contextmanager
def waiting(group: Group, silent_s: float = 60.0) -> Iterator[Waiting]:
    it = Waiting(group, silent_s)
    try:
        yield it
    finally:
        it.end()


@contextmanager
def owner(member: Callable[[], str | None] = lambda: MEMBER) -> Iterator[Progress]:
    """The server of a driver that owns the pipeline."""
    progress = Progress(minimal_job())
    server = serve(progress, "127.0.0.1", 0)
    progress.member = member
    try:
        yield progress
    finally:
        progress.member = lambda: None
        server.shutdown()
        server.server_close()


def of(progress: Progress, member: str = MEMBER) -> Owner:
    return Owner(member, progress.address, stopped=False)


def unused_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# ------------------------------------------------ it takes the pipeline


@pytest.mark.parametrize(
    "group",
    [
        Group(None),
        Group(Owner(MEMBER, None, stopped=False), own=MEMBER),  # its query restarts
        Group(Owner(MEMBER, "192.0.2.1:1", stopped=True)),
    ],
    ids=["no member", "itself", "stopped in order"],
)
def test_at_once_if_nobody_else_owns_it(group: Group) -> None:
    with waiting(group) as it:
        assert it.result.result(SECONDS) is False
    assert it.begun == 0


def test_when_the_owners_process_ends() -> None:
    with owner() as progress, waiting(Group(of(progress))) as it:
        it.follows()
        assert not it.result.done()
        reads = it.group.reads
        it.group.current = None  # not what it learns from: it would read the group only later
        progress.member = lambda: None
        assert it.result.result(SECONDS) is True
    assert it.group.reads <= reads + 1


def test_when_nobody_listens_at_an_address_of_this_machine() -> None:
    with waiting(Group(Owner(MEMBER, f"127.0.0.1:{unused_port()}", stopped=False))) as it:
        it.result.result(SECONDS)


def test_when_nobody_listens_at_an_address_that_is_announced_on_this_host() -> None:
    address = announced(f"127.0.0.1:{unused_port()}")
    with waiting(Group(Owner(MEMBER, address, stopped=False))) as it:
        it.result.result(SECONDS)


def test_when_the_owners_process_is_no_member_for_long() -> None:
    """It may be about to join again: it may need some time for that."""
    with owner(lambda: None) as progress, waiting(Group(of(progress))) as it:
        started = time.monotonic()
        it.result.result(SECONDS)
        assert time.monotonic() - started > 0.1


def test_at_once_from_an_earlier_process_at_its_own_address() -> None:
    """The container has restarted, and nobody else has taken over."""
    with owner(lambda: None) as progress:
        subject = Standby(cast(Sink, Group(of(progress))), threading.Event(), TIMES, address=progress.address)
        assert subject.wait(lambda: None) is False


@pytest.mark.parametrize("address", ["", "host", "host:", "host:port", "127.0.0.1:65536", "127.0.0.1:²"])
def test_not_because_an_address_is_none(address: str) -> None:
    with waiting(Group(Owner(MEMBER, address, stopped=False))) as it:
        assert it.still_waits()


def test_when_the_owner_is_silent() -> None:
    """A process that is suspended, or a node that is lost: the connection stays."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with waiting(Group(Owner(MEMBER, address, stopped=False)), silent_s=1.5) as it:
            connection, _ = listening.accept()
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n.")
            it.follows()
            started = time.monotonic()
            assert it.result.result(SECONDS) is True
            assert time.monotonic() - started > 1.4
            connection.close()


def test_when_a_driver_without_an_address_has_stopped_and_no_other_has_just_joined() -> None:
    with waiting(Group(Owner(MEMBER, None, stopped=False))) as it:
        assert it.still_waits()
        it.group.current = Owner("another", None, stopped=True)
        it.result.result(SECONDS)
    assert it.standby._known_since.keys() == {MEMBER, "another"}


# ------------------------------------------------ it does not


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_not_because_nobody_listens_at_a_loopback_address_of_another_host(host: str) -> None:
    address = f"{host}:{unused_port()}"
    elsewhere = announced(address).replace("@", "@another-")
    assert elsewhere != address
    with waiting(Group(Owner(MEMBER, elsewhere, stopped=False))) as it:
        assert it.still_waits()


def test_an_address_that_other_hosts_can_reach_is_announced_as_it_is() -> None:
    assert announced("10.0.0.7:4040") == "10.0.0.7:4040"


def test_not_while_the_owner_lives() -> None:
    """The signs of life come on one connection, so nobody asks the brokers meanwhile."""
    with owner() as progress, waiting(Group(of(progress)), silent_s=1.0) as it:
        it.follows()
        ends = time.monotonic() + 3.0
        wait_until(lambda: time.monotonic() > ends or it.result.done(), "three times its patience", SECONDS)
        assert not it.result.done()
        assert (it.group.reads, it.begun) == (1, 1)


def test_not_because_it_was_suspended_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a laptop, or a virtual machine, with both drivers: the first sign of life comes when both continue."""
    subject = Standby(cast(Sink, Group(None)), threading.Event(), TIMES)
    subject._silence_s[MEMBER] = 0.0
    monkeypatch.setattr(standby, "time", SimpleNamespace(monotonic=lambda: 3600.0))
    subject._add_silence(MEMBER, 0.0)
    assert not subject._is_silent(MEMBER)
    for _ in range(3):
        subject._add_silence(MEMBER, 0.0)
    assert subject._is_silent(MEMBER)


def test_not_from_an_owner_that_was_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network policy may forbid it. Two drivers would depose one another forever."""
    monkeypatch.setattr(standby, "_is_here", lambda _: False)
    with waiting(Group(Owner(MEMBER, f"127.0.0.1:{unused_port()}", stopped=False)), silent_s=0.01) as it:
        assert it.still_waits()
        it.group.current = None  # its session has ended
        it.result.result(SECONDS)


def test_control_a_refusal_counts_once_the_owner_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_is_here", lambda _: False)
    with waiting(Group(None)) as it:
        it.result.result(SECONDS)
        it.standby._silence_s[MEMBER] = 0.0
        assert it.standby._follow(MEMBER, f"127.0.0.1:{unused_port()}") is standby._Answer.GONE


def test_not_from_a_driver_that_joins_again() -> None:
    """Each query of a driver joins again. The first membership has ended, and the driver is as healthy as before."""
    with owner() as progress, waiting(Group(of(progress))) as it:
        it.follows()
        it.group.current = of(progress, "ackwright-2")
        progress.member = lambda: "ackwright-2"
        wait_until(lambda: "ackwright-2" in it.standby._silence_s, "it follows the new membership", SECONDS)
        assert not it.result.done()


def test_not_from_a_driver_that_has_joined_and_not_settled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The final positions are there until it settles."""
    monkeypatch.setattr(standby, "_TAKING_S", 600.0)
    with waiting(Group(Owner(MEMBER, None, stopped=True))) as it:
        assert it.still_waits()


def test_an_owner_that_cannot_be_followed_is_read_less_and_less_often() -> None:
    """Each read lists the group's members and reads the lanes topic."""

    class Pauses(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float | None] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.seconds.append(timeout)
            if len(self.seconds) == 5:
                group.current = Owner("another", None, stopped=False)
            if len(self.seconds) == 7:
                self.set()
            return self.is_set()

    group, stop = Group(Owner(MEMBER, None, stopped=False)), Pauses()
    Standby(cast(Sink, group), stop, TIMES).wait(lambda: None)
    assert stop.seconds == [0.01, 0.02, 0.04, 0.05, 0.05, 0.01, 0.02]


def test_not_because_another_server_answers_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        ended = threading.Event()

        def refuse() -> None:
            while not ended.is_set():
                connection, _ = listening.accept()
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        with waiting(Group(Owner(MEMBER, address, stopped=False)), silent_s=0.01) as it:
            assert it.still_waits()
        ended.set()


def test_not_while_the_brokers_do_not_answer() -> None:
    class Unreachable(Group):
        def owner(self) -> Owner | None:
            self.reads += 1
            if self.reads < 5:
                raise JobError(Reason.BROKERS_UNREACHABLE, "no broker")
            return None

    group = Unreachable(None)
    with waiting(group) as it:
        it.result.result(SECONDS)
    assert group.reads == 5


def test_another_failure_is_raised() -> None:
    class Refused(Group):
        def owner(self) -> Owner | None:
            raise JobError(Reason.AUTHORIZATION_FAILED, "not allowed")

    with waiting(Refused(None)) as it, pytest.raises(JobError):
        it.result.result(SECONDS)


def test_a_driver_that_could_not_take_over_does_not_wait() -> None:
    """Spark's JVM may be killed while its driver stands by: the pod has to be restarted, and not the pipeline lost."""
    checks = 0

    def require_ready() -> None:
        nonlocal checks
        checks += 1
        if checks > 1:
            raise JobError(Reason.UNEXPECTED, "Spark's JVM has ended")

    with owner() as progress:
        subject = Standby(cast(Sink, Group(of(progress))), threading.Event(), TIMES, require_ready=require_ready)
        with pytest.raises(JobError) as caught:
            subject.wait(lambda: None)
    assert caught.value.reason is Reason.UNEXPECTED


def test_it_ends_when_it_is_asked_to() -> None:
    with owner() as progress, waiting(Group(of(progress))) as it:
        it.follows()
        it.stop.set()
        assert it.result.result(SECONDS) is True


def test_a_driver_that_was_deposed_by_mistake_doubles_its_patience() -> None:
    subject = Standby(cast(Sink, Group(None)), threading.Event(), TIMES)
    patience: list[Any] = []
    for _ in range(6):
        patience.append(subject._silent_s)
        subject.deposed()
    assert patience == [5, 10, 20, 40, 45, 45]


# ------------------------------------------------ the owner's side


def test_the_owners_address_is_where_its_executors_reach_it() -> None:
    for host, expected in (("10.1.2.3", "10.1.2.3"), ("fd00::7", "[fd00::7]")):
        progress = Progress(minimal_job(spark={"spark.driver.host": host}))
        server = serve(progress, "127.0.0.1", 0)
        assert progress.address == f"{expected}:{server.server_port}"
        server.shutdown()
        server.server_close()


def test_a_standby_reports_neither_positions_nor_a_failure_of_its_earlier_life() -> None:
    progress = Progress(minimal_job())
    progress.owns(3, {})
    progress.failed(JobError(Reason.SUPERSEDED, "driver 4 owns the pipeline"))
    progress.stands_by()
    report = progress.snapshot()
    assert (report.state, report.driver, report.positions, report.last_error) == (State.STANDBY, 0, {}, None)
