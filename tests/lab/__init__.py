"""A real Kubernetes cluster and real Kafka brokers on one Linux machine, each node and broker a host that can be cut off.

    python -m tests.lab up | down | status | env

The cluster is made from the Go modules under tools/ and a few Debian packages, so no image registry and no container engine is needed.
Every node, every broker, the control plane and the name server is a process tree in network and mount namespaces of its own, joined by
one switch. All addresses are from 198.18.0.0/15, which is set aside for tests, and there is no way from there to the outside.
"""
