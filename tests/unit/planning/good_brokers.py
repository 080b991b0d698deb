"""Three brokers, each in its own rack, whose settings pass every check."""

from __future__ import annotations

GOOD = {
    "telemetry.max.bytes": "1",
    "transaction.partition.verification.enable": "true",
    "transaction.max.timeout.ms": "900000",
    "offsets.retention.minutes": "10080",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "x",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
RACKS = {1: "a", 2: "b", 3: "c"}
