"""A real Kafka cluster on loopback, for `ackwright run --embedded`, the demo, the tests and the benchmarks.

Each node is broker and controller at once (KRaft, combined mode). The brokers are ordinary processes of Kafka's own jars, so they can
be killed, suspended and brought back as real ones are. They end with the process that started them, whatever happens to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from ackwright.errors import AckwrightError
from ackwright.local import certificates, data_directories, jars
from ackwright.local.broker_settings import INTERNAL_PARTITIONS, Ports, Security, broker_settings
from ackwright.local.coordinators import internal_partition
from ackwright.local.kafka_id import kafka_uuid
from ackwright.local.ports import free_ports, is_free
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

__all__ = ["Broker", "EmbeddedKafka", "Security", "wait_for"]

START_TIMEOUT = 90.0  # seconds; 8 to 10 measured on two busy cores
_FORMAT_FLAGS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# On two cores that Spark needs as well, C1 alone beats C1 and C2: two thirds of the CPU time to start, and more
# records a second in the first minutes, because no compiler competes with the brokers. The serial collector starts the fewest threads.
_BROKER_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr")


class Process(Protocol):
    """What a broker asks of its process; subprocess.Popen has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Broker:
    """One node. All waits are bounded; each ends with an AckwrightError when its time is over."""

    def __init__(self, node: int, cluster: EmbeddedKafka, ports: Ports, process: Process | None = None) -> None:
        self.node = node
        self.port = ports.plain
        self._host = ports.host
        self._cluster = cluster
        self._process = process

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"broker {self.node} was never started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists; a suspended one does."""
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True) -> None:
        """Starts the process; with wait, returns once it answers and knows of itself as a member of the cluster."""
        if self.alive:
            return
        self._process = self._cluster._spawn(self.node)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, timeout: float = START_TIMEOUT) -> None:
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200})

        def ready() -> bool:
            if not self.alive:
                raise AckwrightError(
                    Reason.UNEXPECTED, f"broker {self.node} has ended: {self._cluster._last_words(self.node)}"
                )
            return self.node in client.list_topics(timeout=2).brokers

        wait_for(ready, f"broker {self.node} at {self.address} answers", timeout)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        self._end(signal.SIGKILL, 10)

    def stop(self, timeout: float = 30) -> None:
        """SIGTERM: leadership is handed over first. Killed if that takes longer than timeout (seconds)."""
        self._end(signal.SIGTERM, timeout)

    def suspend(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered, as with a hung machine."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: int, timeout: float) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # a suspended process would take a SIGTERM only once it runs again
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


class EmbeddedKafka:
    """A cluster of `brokers` nodes. Use it as a context manager, or call start() and stop().

    directory: where data, settings and logs go; it is kept, and can be used again, but not one with data-* of somebody else's. None: a
    temporary one, removed by stop() or when this process dies. overrides: broker settings that win over the ones here. Topics get as many
    replicas as there are brokers, at most 3, and need one in-sync replica fewer (at least 1). racks: of nodes that name one, by their id.
    java_flags: None: the ones that start fastest. Ports stay the same for as long as the object lives.
    """

    _names: Sequence[str] = ("localhost",)  # that the certificate is valid for, beside the addresses

    def __init__(
        self,
        directory: Path | None = None,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        security: Security | None = None,
        java_flags: Sequence[str] | None = None,
        *,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self._given = directory
        self._overrides = dict(overrides or {})
        self._racks = dict(racks or {})
        self.security = security
        self._count = brokers
        self._java_flags = java_flags
        self._brokers: dict[int, Broker] = {}
        self._ports: dict[int, Ports] = {}
        self._watch: Watch | None = None
        self._lock: IO[str] | None = None
        self._classpath = ""
        self.directory = Path()

    def start(self) -> EmbeddedKafka:
        """Formats what is new, starts all brokers, and returns when each answers and both coordinators can be used."""
        self._prepare_java()
        self.directory = (self._given or Path(tempfile.mkdtemp(prefix="ackwright-kafka-"))).resolve()
        self._watch = Watch(remove=() if self._given else (self.directory,))
        try:
            self._claim_directory()
            found = free_ports(3 * self._count)
            self._ports = {node: Ports(*found[3 * node - 3 : 3 * node]) for node in range(1, self._count + 1)}
            self._brokers = {node: Broker(node, self, ports) for node, ports in self._ports.items()}
            self._launch()
            self._wait_until_usable()
        except BaseException:
            self.stop()
            raise
        return self

    def _prepare_java(self) -> None:
        self._classpath = f"{jars.directory('kafka')}/*"
        if self._java_flags is None:
            self._java_flags = (*_BROKER_FLAGS, *_class_archive())

    def _launch(self) -> None:
        self._format()
        for broker in self._brokers.values():
            broker.start(wait=False)

    def _wait_until_usable(self) -> None:
        for broker in self._brokers.values():
            broker.wait_until_ready()
        self._wait_for_coordinators()

    def stop(self) -> None:
        """Ends the brokers: properly if their data is to stay, else at once and without trace."""
        if self._given:
            for broker in self._brokers.values():
                if broker.alive:
                    os.kill(broker.pid, signal.SIGCONT)
                    os.kill(broker.pid, signal.SIGTERM)
            deadline = (
                time.monotonic() + 10
            )  # the last brokers cannot hand over to anybody, and wait for a quorum in vain
            while any(broker.alive for broker in self._brokers.values()) and time.monotonic() < deadline:
                time.sleep(0.05)
        for broker in self._brokers.values():
            broker.kill()
        if self._watch:
            self._watch.close()
            self._watch = None
        if self._lock:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def brokers(self) -> tuple[Broker, ...]:
        return tuple(self._brokers.values())

    def broker(self, node: int) -> Broker:
        """The broker with this id; ids start at 1."""
        return self._brokers[node]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self._brokers.values())

    @property
    def secure_bootstrap_servers(self) -> str:
        """The addresses of the listener that `security` describes."""
        return ",".join(f"{ports.host}:{ports.secure}" for ports in self._ports.values())

    @property
    def ca_file(self) -> Path:
        """The certificate authority that signed the brokers' certificate (with security.tls)."""
        return self.directory / "ca.crt"

    def leader(self, topic: str, partition: int) -> Broker:
        """The broker that leads the partition now, waiting until there is one."""
        found: list[int] = []

        def known() -> bool:
            metadata = self._admin().list_topics(topic, timeout=5).topics[topic].partitions.get(partition)
            found[:] = [metadata.leader] if metadata and metadata.leader in self._brokers else []
            return bool(found)

        wait_for(known, f"{topic}-{partition} has a leader", 60)
        return self._brokers[found[0]]

    def coordinator(self, group: str) -> Broker:
        """The broker that keeps the group's offsets (Kafka: leader of the __consumer_offsets partition that the id hashes to)."""
        return self._coordinator("__consumer_offsets", "offsets.topic.num.partitions", group)

    def transaction_coordinator(self, transactional_id: str) -> Broker:
        return self._coordinator("__transaction_state", "transaction.state.log.num.partitions", transactional_id)

    def wait_until_in_sync(self, timeout: float = 60) -> None:
        """Returns when every partition, internal ones included, has all its replicas in sync (seconds)."""
        admin = self._admin()

        def in_sync() -> bool:
            topics = admin.list_topics(timeout=5).topics.values()
            return all(len(p.isrs) == len(p.replicas) for topic in topics for p in topic.partitions.values())

        wait_for(in_sync, "all replicas are in sync", timeout)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _coordinator(self, topic: str, setting: str, key: str) -> Broker:
        partitions = int(self._overrides.get(setting, INTERNAL_PARTITIONS))
        return self.leader(topic, internal_partition(key, partitions))

    def _claim_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{self.directory} is in use by another embedded cluster; give another directory or stop that one",
            ) from None

    def _format(self) -> None:
        known = self.directory / "cluster.json"
        fresh = not known.exists()
        identity: dict[str, Any] = (
            {"clusterId": kafka_uuid(), "brokers": self._count} if fresh else json.loads(known.read_text())
        )
        if identity["brokers"] != self._count:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{self.directory} holds a cluster of {identity['brokers']} brokers, not {self._count}; give another directory",
            )
        if fresh:
            data_directories.clear(self.directory)
        if self.security and self.security.tls and not self.ca_file.exists():
            certificates.create(self.directory, [*sorted({ports.host for ports in self._ports.values()}), *self._names])
        for node in self._brokers:
            settings = (
                broker_settings(node, self._ports, self.directory, self.security, self._racks.get(node))
                | self._overrides
            )
            lines = (f"{name}={value}\n" for name, value in settings.items())
            (self.directory / f"broker-{node}.properties").write_text("".join(lines))
        if not fresh:
            data_directories.settle(self.directory)  # which the last set-up may not have come to
            return
        self._run_storage_tool(identity["clusterId"])
        data_directories.multiply(self.directory, self._count)
        known.write_text(json.dumps(identity))  # until it is there the directory counts as new
        data_directories.settle(self.directory)

    def _run_storage_tool(self, cluster_id: str) -> None:
        users = self.security.users if self.security else {}
        scram = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in users.items()]
        arguments = ["format", "-t", cluster_id, "-c", str(self.directory / "broker-1.properties")]
        for user in scram:
            arguments += ["--add-scram", user]
        argv = ["java", *_FORMAT_FLAGS, "-cp", self._classpath, "kafka.tools.StorageTool", *arguments]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        except FileNotFoundError:
            raise AckwrightError(
                Reason.UNEXPECTED, "java is needed to run Kafka: install a Java runtime, 17 or newer"
            ) from None
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise AckwrightError(
                Reason.UNEXPECTED, f"Kafka's storage tool failed: {lines[-1] if lines else 'no output'}"
            )

    def _command(self, node: int) -> list[str]:
        settings = str(self.directory / f"broker-{node}.properties")
        return ["java", *(self._java_flags or ()), "-cp", self._classpath, "kafka.Kafka", settings]

    def _log(self, node: int) -> Path:
        return self.directory / f"broker-{node}.log"

    def _spawn(self, node: int) -> Process:
        if self._watch is None:
            raise RuntimeError("the cluster is not started")
        with self._log(node).open("ab") as log:
            return self._watch.start(self._command(node), stdout=log, stderr=subprocess.STDOUT, cwd=self.directory)

    def _last_words(self, node: int) -> str:
        """Why a broker has ended. Without a logger of its own Kafka does not say that somebody else has its port."""
        ports = self._ports[node]
        taken = [port for port in (ports.plain, ports.controller, ports.secure) if not is_free(port)]
        if taken:
            return f"port {taken[0]} is in use by another program; start again, for other ports"
        with contextlib.suppress(OSError):
            lines = self._log(node).read_text(errors="replace").splitlines()
            telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
            if telling:
                return telling[-1]
        return "it left no log"

    def _wait_for_coordinators(self) -> None:
        """The first use creates __consumer_offsets and __transaction_state; returns when both serve."""
        common = {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}
        consumer = Consumer({**common, "group.id": "ackwright-embedded-ready"})
        producer = Producer({**common, "transactional.id": "ackwright-embedded-ready"})

        def offsets() -> bool:
            return consumer.committed([TopicPartition("__consumer_offsets", 0)], timeout=5)[0].error is None

        def transactions() -> bool:
            producer.init_transactions(5)
            return True

        try:
            wait_for(offsets, "the group coordinator serves", START_TIMEOUT)
            wait_for(transactions, "the transaction coordinator serves", START_TIMEOUT)
        finally:
            consumer.close()


def _class_archive() -> tuple[str, ...]:
    """The flag for an archive of the broker's classes (JEP 350: class data sharing), which spares every start parsing them: a third of
    the time, half of the CPU. Made on first use, by a broker of its own that is ended properly, and cached per Java and set of jars."""
    java = shutil.which("java")
    if java is None:
        raise AckwrightError(Reason.UNEXPECTED, "java is needed to run Kafka: install a Java runtime, 17 or newer")
    kafka_jars = jars.directory("kafka")
    runtime = Path(java).resolve()
    identity = f"{runtime} {runtime.stat().st_mtime_ns} {kafka_jars} {_BROKER_FLAGS}"
    archive = jars.cache_directory() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        fresh = archive.with_suffix(f".{os.getpid()}")
        with EmbeddedKafka(brokers=1, java_flags=(*_BROKER_FLAGS, f"-XX:ArchiveClassesAtExit={fresh}")) as trial:
            trial.broker(1).stop(120)
        if not fresh.exists():  # a JVM that cannot share classes starts its brokers slower, that is all
            return ()
        fresh.rename(archive)  # the only step that makes it visible
    return (f"-XX:SharedArchiveFile={archive}",)
