"""Three Kafka brokers outside the Kubernetes cluster, reachable from its pods, each on a host that can be disconnected.

In pods their names are `kafka` (all), `kafka-1`, `kafka-2` and `kafka-3`; this machine uses addresses. Port 9092 is
plaintext. Port 9094 is TLS with SCRAM-SHA-512, for the users in SECURITY.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackwright.local.broker_settings import Ports
from ackwright.local.kafka import Broker, EmbeddedKafka, Security

from .network import Host, broker_address, pod_routes
from .processes import STATE, Daemon

PLAIN, CONTROLLER, SECURE = 9092, 9093, 9094
SECURITY = Security(users={"operator": "operator-secret", "job": "job-secret"}, tls=True)


class Brokers(EmbeddedKafka):
    """The brokers of the lab, running or not. They outlive the process that started them."""

    def __init__(self, count: int = 3) -> None:
        super().__init__(STATE / "kafka", brokers=count, security=SECURITY)
        self.directory = STATE / "kafka"
        self.hosts = {i: Host(f"kafka-{i}", broker_address(i)) for i in range(1, count + 1)}
        self._names = ("kafka", *(host.name for host in self.hosts.values()))
        self._ports = {i: Ports(PLAIN, CONTROLLER, SECURE, host=host.address) for i, host in self.hosts.items()}
        self._brokers = {i: Broker(i, self, ports, self._daemon(i)) for i, ports in self._ports.items()}

    @property
    def names(self) -> Mapping[str, list[str]]:
        """Host names and their addresses, for the name server."""
        return {"kafka": [h.address for h in self.hosts.values()]} | {h.name: [h.address] for h in self.hosts.values()}

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return tuple(self._daemon(i) for i in self.hosts)

    def boot(self, nodes: int) -> None:
        """Creates the hosts. nodes: number of nodes in the Kubernetes cluster, whose pods need routes."""
        for host in self.hosts.values():
            host.boot(pod_routes(nodes))

    def launch(self) -> None:
        """Formats data directories and starts all brokers, without waiting until they answer."""
        self._prepare_java()
        self.directory.mkdir(exist_ok=True)
        self._launch()

    def start(self) -> Brokers:
        """Starts the brokers that do not run, and returns when all brokers and both coordinators answer."""
        self.launch()
        self._wait_until_usable()
        return self

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def _daemon(self, node: int) -> Daemon:
        return Daemon(f"kafka-{node}")

    def start_process(self, node: int) -> Daemon:
        self._prepare_java()
        daemon = self._daemon(node)
        daemon.start(self._command(node), self.hosts[node].enter, log=self._log(node), cwd=self.directory)
        return daemon
