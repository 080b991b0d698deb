"""Whether the brokers and the consumer group can serve a pipeline, before anything is written. Pure."""

from __future__ import annotations

from ackwright.errors import AckwrightError
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS
from ackwright.planning.observed import JobPremises
from ackwright.planning.plan import DeliveryPlan
from ackwright_stream.broker_requirements import Unmet, unmet_by_broker, unmet_by_group


def unsuitable(plan: DeliveryPlan, premises: JobPremises) -> AckwrightError | None:
    """Why these brokers or this group cannot serve the plan, with every requirement that is not met; None if they can.

    Settings that could not be read count as met: the job's own calls will show what is missing.
    """
    # Positions move in transactions of Kafka under each guarantee, unless the sink stores them.
    timeout_ms = TRANSACTION_TIMEOUT_MS if plan.sink.in_kafka else None
    unmet = [u for broker, settings in premises.settings.items() for u in unmet_by_broker(broker, settings, timeout_ms)]
    if premises.others is not None and (in_use := unmet_by_group(plan.group, premises.others)):
        unmet.append(in_use)
    return _together(unmet) if unmet else None


def require_suitable(plan: DeliveryPlan, premises: JobPremises) -> None:
    """Raises AckwrightError if these brokers or this group cannot serve the plan."""
    if (error := unsuitable(plan, premises)) is not None:
        raise error


def _together(unmet: list[Unmet]) -> AckwrightError:
    """One error, with the reason of the first and one line for each."""
    errors = [AckwrightError(u.reason, u.cause, u.remedy) for u in unmet]
    return errors[0] if len(errors) == 1 else AckwrightError(errors[0].reason, "\n".join(e.message for e in errors))
