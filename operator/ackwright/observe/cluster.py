"""Checks whether the brokers and the consumer group can serve a pipeline, before anything is written. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from ackwright.clients.kafka import Kafka, run_checks
from ackwright.errors import AckwrightError
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.readiness import LONGEST_TRANSACTION, VERIFICATION, recent
from ackwright_stream.jobspec import INSTANCE_ID, Reason


def check(kafka: Kafka, plan: DeliveryPlan) -> None:
    """Raises AckwrightError with every reason why the brokers cannot serve this plan."""
    brokers, in_kafka = kafka.brokers(), not plan.sink.positions
    checks = [lambda: check_brokers(kafka, brokers, transactions=in_kafka)]
    run_checks([*checks, lambda: check_group(kafka, plan.group)] if in_kafka else checks)


def check_brokers(kafka: Kafka, brokers: Sequence[int], *, transactions: bool = True) -> None:
    """Raises AckwrightError (BrokersUnsupported) if a broker's version or settings cannot serve a pipeline.

    Brokers have to be Kafka 3.7 or newer. transactions: whether positions move in transactions of Kafka, as they do
    under each guarantee unless the sink keeps them. Then brokers have to allow transactions as long as the job's, and
    to verify their partitions: otherwise a late offset commit can stay pending forever (KIP-890, part 1).
    """
    problems: list[str] = []
    for broker in brokers:
        try:
            config = kafka.broker_config(broker)
        except AckwrightError as e:
            if e.reason is Reason.AUTHORIZATION_FAILED:
                return  # the principal may not read settings; the job's own calls will show what is missing
            raise
        if not recent(config):
            problems.append(f"broker {broker} is older than Kafka 3.7; upgrade it")
            continue
        if not transactions:
            continue
        if config.get(VERIFICATION) != "true":
            problems.append(f"broker {broker} has {VERIFICATION}={config.get(VERIFICATION)}; set it to true")
        allowed = config.get(LONGEST_TRANSACTION)
        if allowed and int(allowed) < TRANSACTION_TIMEOUT_MS:
            problems.append(
                f"broker {broker} has {LONGEST_TRANSACTION}={allowed}, but the job's transactions need "
                f"{TRANSACTION_TIMEOUT_MS}; raise it"
            )
    if problems:
        raise AckwrightError(Reason.BROKERS_UNSUPPORTED, "\n".join(problems))


def check_group(kafka: Kafka, group: str) -> None:
    """Raises AckwrightError (GroupInUse) if another consumer than the pipeline's driver is a member of the group.

    Its commits move the pipeline's positions (docs/protocol.md#rule-10).
    """
    others = kafka.other_members(group, INSTANCE_ID)
    if others:
        raise AckwrightError(
            Reason.GROUP_IN_USE,
            f"consumer group {group} is used by other consumers ({others}); stop them, or choose another "
            "source.groupId",
        )
