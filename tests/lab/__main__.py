"""`python -m tests.lab up|down|status|env`: the lab for a person to play with."""

from __future__ import annotations

import argparse
import sys

from ackwright.errors import AckwrightError

from . import images
from .cluster import Cluster, say
from .netns import NetnsCluster, remove, traces
from .processes import LabError

_USE = """
  export KUBECONFIG={cluster.kubeconfig}      (or: eval "$(.venv/bin/python -m tests.lab env)", which also finds kubectl and helm)
  kubectl get nodes
"""
_BROKERS = """
  Kafka, from here:      {bootstrap}
         from pods:      kafka:9092 (or kafka-1:9092, …); TLS and SCRAM at port 9094, users {users}
  cut a host off:        .venv/bin/python -m tests.lab cut node2   (mend node2; kafka-1, control, dns likewise)
  remove all of it:      make cluster-down
"""


def up(nodes: int) -> None:
    cluster = Cluster.up(nodes)
    print(_USE.format(cluster=cluster), end="")
    if isinstance(cluster, NetnsCluster):
        users = ", ".join(cluster.brokers.security.users) if cluster.brokers.security else "none"
        print(_BROKERS.format(bootstrap=cluster.brokers.bootstrap_servers, users=users), end="")


def status() -> int:
    """Prints the state of every part. 0 if all is well."""
    try:
        cluster = NetnsCluster.find()
    except LabError as e:
        print(e)
        for trace in traces():
            print(f"left over: {trace}; remove it with `make cluster-down`")
        return 1
    problem = cluster.problem()
    ready = [] if problem else cluster.ready_nodes()
    print(f"cluster    {problem or 'runs'}")
    for name in cluster.nodes:
        print(f"{name:<10} {'Ready' if name in ready else 'NotReady'}{_cut(cluster, name)}")
    for broker, host in zip(cluster.brokers.brokers, cluster.brokers.hosts.values(), strict=True):
        print(f"{host.name:<10} {'runs' if broker.alive else 'is down'} at {broker.address}{_cut(cluster, host.name)}")
    return 1 if problem else 0


def _cut(cluster: NetnsCluster, host: str) -> str:
    return ", cut off" if cluster.hosts[host].is_cut else ""


def env() -> None:
    cluster = NetnsCluster.find()
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.programs}:$PATH")
    print(f"export KAFKA={cluster.brokers.bootstrap_servers}")


def load_images() -> None:
    """Builds the operator's image and Spark's, brings them to every node, and prints their names as settings for a shell."""
    cluster = NetnsCluster.find()
    for target in ("operator", "spark"):
        image = images.build(target, say)
        cluster.load_image(image)
        print(f"export {target.upper()}_IMAGE={image.reference}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="start it, or use the one that runs; prints how to use it")
    starting.add_argument("--nodes", type=int, default=2, help="default 2")
    commands.add_parser("down", help="remove it without trace")
    commands.add_parser("status", help="what runs")
    commands.add_parser("env", help='settings for a shell: eval "$(python -m tests.lab env)"')
    commands.add_parser("images", help='build and load the images: eval "$(python -m tests.lab images)"')
    for verb, what in (("cut", "cut a host off the network"), ("mend", "undo it")):
        commands.add_parser(verb, help=what).add_argument("host", help="node1, kafka-1, control, dns, …")
    given = parser.parse_args()
    try:
        match given.command:
            case "up":
                up(given.nodes)
            case "down":
                remove()
                say("removed")
            case "status":
                return status()
            case "env":
                env()
            case "images":
                load_images()
            case "cut":
                NetnsCluster.find().cut(given.host)
            case "mend":
                NetnsCluster.find().mend(given.host)
    except (LabError, AckwrightError) as e:
        print(f"lab: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
