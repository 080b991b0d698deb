"""Waits, with Spark started, until no other driver owns the pipeline (hot standby, spec.standby).

The group's membership fences, whenever a driver takes the pipeline: what is decided here costs time when it is
wrong, and never a record. The owner publishes an address together with its first positions. The standby keeps a
connection to it, on which the owner sends a sign of life as long as it is the member of the group. The kernel closes
the connection when the process dies, which the standby sees at once.

A healthy driver must not be deposed. So a driver that was never reached is not called gone because it cannot be
reached: the standby then waits until the group has no member. And a driver that was deposed by mistake doubles its
patience with silence.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StandbyTimes
from ackwright_stream.progress import OWNER_PATH
from ackwright_stream.sinks.base import Owner, Sink

# Between two reads of the group, while its owner cannot be followed. Each lists the group's members and reads the lanes
# topic, so the pause doubles as long as the owner is the same.
_READ_EVERY_S = 0.5
_READ_AT_LEAST_EVERY_S = 5.0
_ANSWER_S = 1.0  # for a connection and for the next sign of life
_CHECK_EVERY_S = 2.0  # whether this driver is ready
_AGAIN_S = 0.05  # before the next connection to the owner
_TAKING_S = 10.0  # that a driver may need to take the pipeline
log = logging.getLogger(__name__)


class _Answer(Enum):
    """What the owner's address tells."""

    GONE = auto()  # the process has ended, or has sent no sign of life for too long
    NOT_OWNER = auto()  # it lives, and says that it is not that member (any more)
    UNKNOWN = auto()


class Standby:
    """The waiting of one driver process."""

    def __init__(
        self,
        sink: Sink,
        stop: threading.Event,
        times: StandbyTimes,
        *,
        address: str | None = None,  # at which this driver is reached, as announced
        require_ready: Callable[[], None] = lambda: None,  # raises JobError if this driver could not take over
    ) -> None:
        self._sink, self._stop, self._address = sink, stop, address
        self._silent_s, self._silent_max_s = times.silent_ms / 1000, times.silent_max_ms / 1000
        self._require_ready, self._next_check = require_ready, 0.0
        # Seconds since the last sign of life of an owner that was reached, by its member id. Time in which this process
        # was suspended itself does not count.
        self._silence_s: dict[str, float] = {}
        self._known_since: dict[str, float] = {}  # when the owner was first seen, by its member id

    def deposed(self) -> None:
        """Notes that another driver has deposed this one, which lives."""
        self._silent_s = min(2 * self._silent_s, self._silent_max_s)

    def wait(self, wait_begins: Callable[[], None]) -> bool:
        """Waits until this driver may take the pipeline, or stop is set. Returns whether another driver owned it.

        Raises JobError if this driver could not take over any more, or may not read the group.

        wait_begins: called once, as soon as another driver is known to own it, and followed if it can be reached.
        """
        self._begin: Callable[[], None] | None = wait_begins
        denied: dict[str, float] = {}  # when a driver first denied to be that member
        member, pause = "", _READ_EVERY_S
        while not self._stop.is_set():
            self._check_readiness()
            owner = self._owner()
            if owner is None or owner.member == self._sink.member():
                break
            if owner.address is None:
                if self._has_stopped(owner):
                    break
            elif owner.stopped or owner.address == self._address:  # the latter: of an earlier process in this pod
                break
            else:
                answer, now = self._follow(owner.member, owner.address), time.monotonic()
                # A driver whose membership has ended joins again, as another member, or stops, which it records first.
                if answer is _Answer.NOT_OWNER and now - denied.setdefault(owner.member, now) <= _TAKING_S:
                    self._stop.wait(_AGAIN_S)
                    continue
                if answer is not _Answer.UNKNOWN:
                    log.info("the driver at %s is gone; this one takes the pipeline", owner.address.partition("@")[0])
                    break
            self._report_waiting()
            pause = min(2 * pause, _READ_AT_LEAST_EVERY_S) if owner.member == member else _READ_EVERY_S
            member = owner.member
            self._stop.wait(pause)
        return self._begin is None

    def _check_readiness(self) -> None:
        if time.monotonic() >= self._next_check:
            self._require_ready()
            self._next_check = time.monotonic() + _CHECK_EVERY_S

    def _report_waiting(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()

    def _owner(self) -> Owner | None:
        """The driver that joined last, read until the brokers answer. Raises JobError for other failures."""
        while True:
            try:
                return self._sink.owner()
            except JobError as e:
                if e.reason is not Reason.BROKERS_UNREACHABLE or self._stop.is_set():
                    raise
                log.warning("%s", e.message)
            self._stop.wait(_READ_EVERY_S)

    def _has_stopped(self, owner: Owner) -> bool:
        """Whether a driver that has announced no address has drained and stopped: it has not just joined."""
        first = self._known_since.setdefault(owner.member, time.monotonic())
        return owner.stopped and time.monotonic() - first > _TAKING_S

    def _follow(self, member: str, address: str) -> _Answer:
        """Returns when the owner cannot be followed any more, or when stop is set."""
        reached_at, _, host_id = address.partition("@")
        if host_id not in ("", _this_host()):
            return _Answer.UNKNOWN  # what answers here, or does not, is not the owner
        host, _, port = reached_at.rpartition(":")
        host = host.strip("[]")
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            return _Answer.UNKNOWN
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                with socket.create_connection((host, int(port)), _ANSWER_S) as connection:
                    connection.sendall(f"GET {OWNER_PATH}{member} HTTP/1.0\r\n\r\n".encode())
                    status = connection.recv(12).partition(b" ")[2]
                    if status == b"410":
                        return _Answer.NOT_OWNER
                    if status != b"200":
                        return _Answer.UNKNOWN
                    self._report_waiting()
                    self._silence_s[member] = 0.0
                    self._listen(connection, member)
            except ConnectionRefusedError:
                # Where it was reached before, nobody listens any more. On this machine no firewall refuses instead.
                return _Answer.GONE if member in self._silence_s or _is_here(host) else _Answer.UNKNOWN
            except OSError:  # a time-out is one, too
                if member not in self._silence_s:
                    return _Answer.UNKNOWN
                self._add_silence(member, started)
            if self._is_silent(member):
                return _Answer.GONE
            self._stop.wait(_AGAIN_S)
        return _Answer.UNKNOWN

    def _listen(self, connection: socket.socket, member: str) -> None:
        """Returns when the connection ends, when the owner is silent, or when stop is set. Raises OSError."""
        while not self._stop.is_set() and not self._is_silent(member):
            self._check_readiness()
            started = time.monotonic()
            try:
                if not connection.recv(4096):
                    return
                self._silence_s[member] = 0.0
            except TimeoutError:
                self._add_silence(member, started)

    def _add_silence(self, member: str, since: float) -> None:
        self._silence_s[member] += min(time.monotonic() - since, 2 * _ANSWER_S)

    def _is_silent(self, member: str) -> bool:
        return self._silence_s[member] > self._silent_s


def announced(address: str) -> str:
    """The address, host:port, as other drivers need it: a loopback address with the host that it is on.

    On any other host it would name another process, or none.
    """
    host = address.rpartition(":")[0].strip("[]")
    return f"{address}@{_this_host()}" if _is_here(host) else address


@cache
def _this_host() -> str:
    """Names the loopback interface of this process: containers on one machine have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
