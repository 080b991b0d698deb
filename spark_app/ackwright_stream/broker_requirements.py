"""What every pipeline requires of its brokers and its consumer group.

Standard library only: the job and the operator share it, and each reads the state by its own client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ackwright_stream.reasons import Reason

VERIFICATION = "transaction.partition.verification.enable"
LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_SINCE_3_7 = "group.coordinator.rebalance.protocols", "telemetry.max.bytes"  # settings that older brokers do not have


class OtherMembers(NamedTuple):
    """Members of a group that are not the pipeline's driver."""

    client_ids: tuple[str, ...]  # sorted; of the classic protocol
    new_protocol: bool  # whether there are members with group.protocol=consumer (KIP-848)

    def __bool__(self) -> bool:
        return bool(self.client_ids) or self.new_protocol

    def __str__(self) -> str:
        if self.new_protocol:
            return "group.protocol=consumer"
        return f"client.id {', '.join(self.client_ids[:3])}"


@dataclass(frozen=True)
class Unmet:
    """A requirement that a broker or the group does not meet."""

    reason: Reason
    cause: str
    remedy: str


@dataclass(frozen=True)
class Requirement:
    """What a setting of a broker must satisfy if positions move in transactions of Kafka."""

    setting: str
    holds: Callable[[str], bool]
    because: str
    remedy: str
    absent: str  # the value that a broker without the setting counts as


def of_transactions(timeout_ms: int) -> tuple[Requirement, ...]:
    """The requirements of transactions with that time-out.

    Without the verification, a late offset commit can stay pending forever (docs/protocol.md#rule-11, KIP-890 part 1).
    """
    return (
        Requirement(
            VERIFICATION,
            lambda value: value == "true",
            "a late offset commit could stay pending forever",
            f"set {VERIFICATION}=true",
            absent="false",
        ),
        Requirement(
            LONGEST_TRANSACTION,
            lambda value: int(value) >= timeout_ms,
            f"the job's transactions need {timeout_ms}",
            f"set {LONGEST_TRANSACTION}={timeout_ms} or more",
            absent=str(timeout_ms),
        ),
    )


def is_recent(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings runs Kafka 3.7 or newer."""
    return any(name in settings for name in _SINCE_3_7)


def unmet_by_broker(broker: int, settings: Mapping[str, str], timeout_ms: int | None) -> Iterator[Unmet]:
    """What the broker with these settings does not meet (BROKERS_UNSUPPORTED).

    timeout_ms: of the job's transactions; None: its positions move in no transaction of Kafka.
    """
    if not is_recent(settings):
        yield Unmet(Reason.BROKERS_UNSUPPORTED, f"broker {broker} is older than Kafka 3.7", "upgrade it")
        return
    for required in of_transactions(timeout_ms) if timeout_ms is not None else ():
        value = settings.get(required.setting, required.absent)
        if not required.holds(value):
            cause = f"broker {broker} has {required.setting}={value}: {required.because}"
            yield Unmet(Reason.BROKERS_UNSUPPORTED, cause, required.remedy)


def unmet_by_group(group: str, others: OtherMembers) -> Unmet | None:
    """GROUP_IN_USE if the group has members besides the driver: their commits move the pipeline's positions.

    (docs/protocol.md#rule-10)
    """
    if not others:
        return None
    return Unmet(
        Reason.GROUP_IN_USE,
        f"consumer group {group} is used by other consumers ({others})",
        "stop them, or recreate the pipeline with another source.groupId",
    )
