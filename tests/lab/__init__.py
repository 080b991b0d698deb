"""A real Kubernetes cluster and real Kafka brokers on one Linux machine, on hosts that can be disconnected.

    python -m tests.lab up | down | status | env

The programs are built from the Go modules under tools/ and installed from Debian packages, so the lab needs neither an
image registry nor a container engine. Each node, each broker, the control plane and the name server is a process tree
in separate network and mount namespaces; one switch connects them. All addresses are in 198.18.0.0/15, the range for
benchmarks (RFC 2544), and no route leads outside.
"""
