"""`python -m tests.lab up|down|status|env`: the lab for interactive use."""

from __future__ import annotations

import argparse
import sys

from ackwright.errors import AckwrightError

from . import images
from .cluster import Cluster, print_progress
from .netns import NetnsCluster, leftovers, remove
from .processes import LabError

_USAGE = """
  eval "$(.venv/bin/python -m tests.lab env)"     (sets KUBECONFIG={cluster.kubeconfig}, and PATH for kubectl and helm)
  kubectl get nodes
"""
_BROKERS = """
  Kafka, from here:      {bootstrap}
         from pods:      kafka:9092 (or kafka-1:9092, …); TLS and SCRAM at port 9094, users {users}
  disconnect a host:     .venv/bin/python -m tests.lab cut node2   (then: reconnect node2; or kafka-1, control, dns)
  remove everything:     make cluster-down
"""


def up(nodes: int) -> None:
    """Starts the cluster, or uses the running one, and prints how to use it."""
    cluster = Cluster.up(nodes)
    print(_USAGE.format(cluster=cluster), end="")
    if isinstance(cluster, NetnsCluster):
        users = ", ".join(cluster.brokers.security.users) if cluster.brokers.security else "none"
        print(_BROKERS.format(bootstrap=cluster.brokers.bootstrap_servers, users=users), end="")


def status() -> int:
    """Prints the state of every part; returns 0 if the cluster can be used."""
    try:
        cluster = NetnsCluster.find()
    except LabError as e:
        print(e)
        for leftover in leftovers():
            print(f"left over: {leftover}; remove it with `make cluster-down`")
        return 1
    problem = cluster.problem()
    ready = [] if problem else cluster.ready_nodes()
    print(f"cluster    {problem or 'runs'}")
    for name in cluster.nodes:
        print(f"{name:<10} {'Ready' if name in ready else 'NotReady'}{_connection(cluster, name)}")
    for broker, host in zip(cluster.brokers.brokers, cluster.brokers.hosts.values(), strict=True):
        state = "runs" if broker.alive else "is down"
        print(f"{host.name:<10} {state} at {broker.address}{_connection(cluster, host.name)}")
    return 1 if problem else 0


def _connection(cluster: NetnsCluster, host: str) -> str:
    return ", disconnected" if cluster.hosts[host].is_cut else ""


def env() -> None:
    """Prints settings for a shell."""
    cluster = NetnsCluster.find()
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.programs}:$PATH")
    print(f"export KAFKA={cluster.brokers.bootstrap_servers}")


def load_images() -> None:
    """Builds the images of operator and Spark, loads them on every node, and prints their names as shell settings."""
    cluster = NetnsCluster.find()
    for target in ("operator", "spark"):
        image = images.build(target, print_progress)
        cluster.load_image(image)
        print(f"export {target.upper()}_IMAGE={image.reference}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up_parser = commands.add_parser("up", help="start the cluster, or use the running one; print how to use it")
    up_parser.add_argument("--nodes", type=int, default=2, help="number of nodes; default: 2")
    commands.add_parser("down", help="remove everything")
    commands.add_parser("status", help="print the state of every part")
    commands.add_parser("env", help='settings for a shell: eval "$(python -m tests.lab env)"')
    commands.add_parser("images", help='build and load the images: eval "$(python -m tests.lab images)"')
    for verb, text in (("cut", "disconnect a host from the network"), ("reconnect", "connect it again")):
        commands.add_parser(verb, help=text).add_argument("host", help="node1, kafka-1, control, dns, …")
    arguments = parser.parse_args()
    try:
        match arguments.command:
            case "up":
                up(arguments.nodes)
            case "down":
                remove()
                print_progress("removed")
            case "status":
                return status()
            case "env":
                env()
            case "images":
                load_images()
            case "cut":
                NetnsCluster.find().cut(arguments.host)
            case "reconnect":
                NetnsCluster.find().reconnect(arguments.host)
    except (LabError, AckwrightError) as e:
        print(f"lab: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
