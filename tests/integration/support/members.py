"""Members of consumer groups: what a pipeline's group must not have."""

from __future__ import annotations

from confluent_kafka import Consumer

from waiting import wait_until


def join(member: Consumer, topic: str, timeout: float = 30) -> None:
    """Subscribes and polls until the group has assigned partitions to the member (seconds)."""
    member.subscribe([topic])

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    wait_until(assigned, f"the member of the group has partitions of {topic}", timeout)
