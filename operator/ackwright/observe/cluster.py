"""Whether the brokers and the group are fit for a pipeline, before anything is written. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from ackwright.clients.kafka import Kafka, together
from ackwright.errors import AckwrightError
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.readiness import LONGEST_TRANSACTION, VERIFICATION, recent
from ackwright_stream.jobspec import Reason


def check(kafka: Kafka, plan: DeliveryPlan) -> None:
    """Raises AckwrightError with everything that keeps the brokers from serving this plan."""
    brokers = kafka.brokers()
    together([lambda: check_brokers(kafka, brokers), lambda: check_group(kafka, plan.group)])


def check_brokers(kafka: Kafka, brokers: Sequence[int]) -> None:
    """Kafka 3.7 or newer that verifies transactions' partitions: else a late offset commit can stay pending for ever (KIP-890, part 1).
    And one that takes our transactions, in which positions move under each guarantee."""
    problems: list[str] = []
    for broker in brokers:
        try:
            config = kafka.broker_config(broker)
        except AckwrightError as e:
            if e.reason is Reason.AUTHORIZATION_FAILED:
                return  # a principal that may not look; the job's own calls will tell
            raise
        if not recent(config):
            problems.append(f"broker {broker} is older than Kafka 3.7; upgrade it")
            continue
        if config.get(VERIFICATION) != "true":
            problems.append(f"broker {broker} has {VERIFICATION}={config.get(VERIFICATION)}; set it to true")
        allowed = config.get(LONGEST_TRANSACTION)
        if allowed and int(allowed) < TRANSACTION_TIMEOUT_MS:
            needed = TRANSACTION_TIMEOUT_MS
            problems.append(
                f"broker {broker} has {LONGEST_TRANSACTION}={allowed}, and the lanes' transactions need {needed}; raise it"
            )
    if problems:
        raise AckwrightError(Reason.BROKERS_UNSUPPORTED, "\n".join(problems))


def check_group(kafka: Kafka, group: str) -> None:
    """A group that has or ever had a subscribing member expires as a whole, and takes commits beside ours. (design, section 3, rule 10)"""
    found = kafka.group(group)
    if found is not None and not found.is_simple_consumer_group:
        raise AckwrightError(
            Reason.GROUP_IN_USE,
            f"consumer group {group} is or was used by a subscribing consumer (state {found.state.name}); choose another "
            "source.groupId, or delete the group if nobody needs it",
        )
