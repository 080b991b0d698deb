"""A real Kafka cluster on this machine, for `ackwright run --embedded`, the demo, the tests and the benchmarks.

Each node is broker and controller (KRaft, combined mode), and runs as a process from Kafka's own jars. Tests can
therefore kill, suspend and restart brokers. All of them end with the process that started them, even if it is killed.
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
from typing import IO, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ackwright.errors import AckwrightError
from ackwright.local import certificates, data_directories, jars
from ackwright.local.broker import START_TIMEOUT, Broker, Process
from ackwright.local.broker_settings import INTERNAL_PARTITIONS, Ports, Security, broker_settings
from ackwright.local.coordinators import internal_partition
from ackwright.local.kafka_id import kafka_uuid
from ackwright.local.ports import free_ports, is_free
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

__all__ = ["Broker", "EmbeddedKafka", "Security", "wait_for"]

_FORMAT_TIMEOUT = 180.0  # seconds; takes 2 s on two idle cores
_FORMAT_FLAGS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The C1 compiler alone starts a broker in two thirds of the CPU time and delivers more records per second in the first
# minutes, because the C2 compiler competes with the brokers and Spark for the cores. The serial collector starts the
# fewest threads.
_BROKER_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr")
_JAVA_IS_MISSING = "java is not on the PATH, and Kafka needs it; install a Java runtime, 17 or newer"


class EmbeddedKafka:
    """A cluster of `brokers` nodes. Use it as a context manager, or call start() and stop().

    By default a topic has one replica per broker, at most 3, and min.insync.replicas is one fewer, at least 1. Ports
    stay the same for the lifetime of the object.

    directory: stores data, settings and logs, is kept, and can be used again; it must not contain data-* of another
    program. None creates a temporary directory, which stop() removes, or the watch when this process dies.
    overrides: broker settings that replace the defaults of broker_settings.
    racks: broker.rack by node id. java_flags: None selects the flags with the fastest start. host: the address of this
    machine at which all brokers listen.
    """

    _names: Sequence[str] = ("localhost",)  # host names, beside the addresses, for which the certificate is valid

    def __init__(
        self,
        directory: Path | None = None,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        security: Security | None = None,
        java_flags: Sequence[str] | None = None,
        *,
        racks: Mapping[int, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._permanent_directory = directory
        self._overrides = dict(overrides or {})
        self._racks = dict(racks or {})
        self._host = host
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
        """Formats new data directories, starts all brokers, and waits until they and both coordinators answer."""
        self._prepare_java()
        self.directory = (self._permanent_directory or Path(tempfile.mkdtemp(prefix="ackwright-kafka-"))).resolve()
        self._watch = Watch(remove=() if self._permanent_directory else (self.directory,))
        try:
            self._lock_directory()
            free = free_ports(3 * self._count)
            nodes = range(1, self._count + 1)
            self._ports = {n: Ports(*free[3 * n - 3 : 3 * n], host=self._host) for n in nodes}
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
        """Ends the brokers: with SIGTERM if their directory is kept, otherwise with SIGKILL, removing the directory."""
        if self._permanent_directory:
            for broker in self._brokers.values():
                if broker.alive:
                    os.kill(broker.pid, signal.SIGCONT)
                    os.kill(broker.pid, signal.SIGTERM)
            # The last brokers have no one to hand leadership to, and no quorum: they never end by themselves.
            deadline = time.monotonic() + 10
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
        """The addresses of the listener configured by `security`."""
        return ",".join(f"{ports.host}:{ports.secure}" for ports in self._ports.values())

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the brokers' certificate (with security.tls)."""
        return self.directory / "ca.crt"

    def leader(self, topic: str, partition: int) -> Broker:
        """The current leader of the partition; waits until there is one."""
        leaders: list[int] = []

        def has_leader() -> bool:
            metadata = self._admin().list_topics(topic, timeout=5).topics[topic].partitions.get(partition)
            leaders[:] = [metadata.leader] if metadata and metadata.leader in self._brokers else []
            return bool(leaders)

        wait_for(has_leader, f"{topic}-{partition} has a leader", 60)
        return self._brokers[leaders[0]]

    def coordinator(self, group: str) -> Broker:
        """The coordinator of a consumer group: the leader of its partition of __consumer_offsets."""
        return self._coordinator("__consumer_offsets", "offsets.topic.num.partitions", group)

    def transaction_coordinator(self, transactional_id: str) -> Broker:
        return self._coordinator("__transaction_state", "transaction.state.log.num.partitions", transactional_id)

    def wait_until_in_sync(self, timeout: float = 60) -> None:
        """Returns when all replicas of every partition, including internal topics, are in sync. timeout: seconds."""
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

    def _lock_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{self.directory} is in use by another embedded cluster; stop that one or choose another directory",
            ) from None

    def _format(self) -> None:
        identity_file = self.directory / "cluster.json"
        is_new = not identity_file.exists()
        identity: dict[str, Any] = (
            {"clusterId": kafka_uuid(), "brokers": self._count} if is_new else json.loads(identity_file.read_text())
        )
        if (count := identity["brokers"]) != self._count:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{self.directory} holds a cluster with {count} broker{'s' if count != 1 else ''}, and {self._count} "
                "are requested; choose another directory",
            )
        if is_new:
            data_directories.begin_formatting(self.directory)
        if self.security and self.security.tls and not self.ca_file.exists():
            certificates.create(self.directory, [*sorted({ports.host for ports in self._ports.values()}), *self._names])
        for node in self._brokers:
            settings = (
                broker_settings(node, self._ports, self.directory, self.security, self._racks.get(node))
                | self._overrides
            )
            lines = (f"{name}={value}\n" for name, value in settings.items())
            (self.directory / f"broker-{node}.properties").write_text("".join(lines))
        if not is_new:
            data_directories.finish_formatting(self.directory)  # the last set-up may have been interrupted before this
            return
        self._run_storage_tool(identity["clusterId"])
        data_directories.copy_to_other_nodes(self.directory, self._count)
        identity_file.write_text(json.dumps(identity))  # from here on the directory is not new
        data_directories.finish_formatting(self.directory)

    def _run_storage_tool(self, cluster_id: str) -> None:
        users = self.security.users if self.security else {}
        scram = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in users.items()]
        arguments = ["format", "-t", cluster_id, "-c", str(self.directory / "broker-1.properties")]
        for user in scram:
            arguments += ["--add-scram", user]
        argv = ["java", *_FORMAT_FLAGS, "-cp", self._classpath, "kafka.tools.StorageTool", *arguments]
        try:
            completed = subprocess.run(
                argv, env=_environment(), capture_output=True, text=True, timeout=_FORMAT_TIMEOUT, check=False
            )
        except FileNotFoundError:
            raise AckwrightError(Reason.UNEXPECTED, _JAVA_IS_MISSING) from None
        except subprocess.TimeoutExpired:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE,
                f"Kafka's storage tool has not formatted {self.directory} within {_FORMAT_TIMEOUT:g} s",
                "end other programs that use the processors or the disk, and start again",
            ) from None
        if completed.returncode:
            lines = (completed.stderr or completed.stdout).strip().splitlines()
            raise AckwrightError(
                Reason.UNEXPECTED, f"Kafka's storage tool failed: {lines[-1] if lines else 'no output'}"
            )

    def _command(self, node: int) -> list[str]:
        settings = str(self.directory / f"broker-{node}.properties")
        return ["java", *(self._java_flags or ()), "-cp", self._classpath, "kafka.Kafka", settings]

    def _log(self, node: int) -> Path:
        return self.directory / f"broker-{node}.log"

    def start_process(self, node: int) -> Process:
        """Starts the process of a node; it ends with the watch."""
        if self._watch is None:
            raise RuntimeError("the cluster is not started")
        with self._log(node).open("ab") as log:
            return self._watch.start(
                self._command(node), env=_environment(), stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def exit_cause(self, node: int) -> str:
        """Why a broker has ended: a port in use, or the last error in its log."""
        ports = self._ports[node]
        # Kafka logs a port in use only with a logging configuration, and these brokers have none.
        in_use = [port for port in (ports.plain, ports.controller, ports.secure) if not is_free(port)]
        if in_use:
            return f"port {in_use[0]} is in use by another program; start again to get other ports"
        with contextlib.suppress(OSError):
            lines = self._log(node).read_text(errors="replace").splitlines()
            errors = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
            if errors:
                return errors[-1]
        return "its log is empty"

    def _wait_for_coordinators(self) -> None:
        """Waits until both coordinators answer; the first request to each creates its internal topic."""
        common = {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}
        consumer = Consumer({**common, "group.id": "ackwright-embedded-ready"})
        producer = Producer({**common, "transactional.id": "ackwright-embedded-ready"})

        def offsets_available() -> bool:
            return consumer.committed([TopicPartition("__consumer_offsets", 0)], timeout=5)[0].error is None

        def transactions_available() -> bool:
            producer.init_transactions(5)
            return True

        try:
            wait_for(offsets_available, "the group coordinator answers", START_TIMEOUT)
            wait_for(transactions_available, "the transaction coordinator answers", START_TIMEOUT)
        finally:
            consumer.close()


def _environment() -> dict[str, str]:
    """The environment of a broker.

    Without the options of a job's JVM that this process has set: a broker with Spark's class archive ends when it is to
    create its own.
    """
    return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}


def _class_archive() -> tuple[str, ...]:
    """The Java flag that selects an archive of the broker's classes (class data sharing, JEP 350).

    A start with the archive takes a third less time and half the CPU. The first call creates the archive by starting
    and stopping one broker; it is cached per Java and set of jars.
    """
    java = shutil.which("java")
    if java is None:
        raise AckwrightError(Reason.UNEXPECTED, _JAVA_IS_MISSING)
    kafka_jars = jars.directory("kafka")
    runtime = Path(java).resolve()
    identity = f"{runtime} {runtime.stat().st_mtime_ns} {kafka_jars} {_BROKER_FLAGS}"
    archive = jars.cache_directory() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        unfinished = archive.with_suffix(f".{os.getpid()}")
        flags = (*_BROKER_FLAGS, f"-XX:ArchiveClassesAtExit={unfinished}")
        with EmbeddedKafka(brokers=1, java_flags=flags) as cluster:
            cluster.broker(1).stop(120)
        if not unfinished.exists():  # a JVM without class data sharing starts its brokers more slowly
            return ()
        unfinished.rename(archive)  # atomic: other processes never see an incomplete archive
    return (f"-XX:SharedArchiveFile={archive}",)
