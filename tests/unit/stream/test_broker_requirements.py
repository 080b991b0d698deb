"""What a pipeline requires of brokers and group: the same for the job, the operator and `ackwright check`."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.planning.readiness import Observed, Verdict, checks
from ackwright_stream.broker_requirements import OtherMembers, is_recent, unmet_by_broker, unmet_by_group
from ackwright_stream.jobspec import Reason
from unit.planning.good_brokers import GOOD, RACKS

VERIFICATION, LONGEST = "transaction.partition.verification.enable", "transaction.max.timeout.ms"
SIGNS = ("telemetry.max.bytes", "group.coordinator.rebalance.protocols")


def changed(**settings: str | None) -> dict[str, str]:
    """The good settings, some changed or (None) absent; in their names, __ is a dot."""
    merged: dict[str, Any] = {**GOOD, **{name.replace("__", "."): value for name, value in settings.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def unmet(settings: dict[str, str], timeout_ms: int | None = 60_000) -> list[str]:
    problems = list(unmet_by_broker(7, settings, timeout_ms))
    assert {p.reason for p in problems} <= {Reason.BROKERS_UNSUPPORTED}
    assert all(p.remedy for p in problems)
    return [p.cause for p in problems]


@pytest.mark.parametrize("sign", SIGNS)
def test_one_sign_of_kafka_3_7_is_enough(sign: str) -> None:
    old = changed(telemetry__max__bytes=None)
    assert not is_recent(old)
    assert unmet(old) == ["broker 7 is older than Kafka 3.7"]
    assert is_recent({**old, sign: "1"})
    assert unmet({**old, sign: "1"}) == []


@pytest.mark.parametrize(
    ("settings", "causes"),
    [
        ({}, []),
        (
            {"transaction__partition__verification__enable": "false"},
            [f"broker 7 has {VERIFICATION}=false: a late offset commit could stay pending forever"],
        ),
        (
            {"transaction__partition__verification__enable": None},
            [f"broker 7 has {VERIFICATION}=false: a late offset commit could stay pending forever"],
        ),
        ({"transaction__max__timeout__ms": "60000"}, []),
        ({"transaction__max__timeout__ms": None}, []),
        (
            {"transaction__max__timeout__ms": "59999"},
            [f"broker 7 has {LONGEST}=59999: the job's transactions need 60000"],
        ),
    ],
)
def test_what_transactions_require(settings: dict[str, str | None], causes: list[str]) -> None:
    present = changed(**settings)
    assert unmet(present) == causes
    assert unmet(present, timeout_ms=None) == [], "positions outside Kafka need none of it"
    if VERIFICATION in present:
        results = checks(Observed(RACKS, dict.fromkeys(RACKS, present)), None, ())
        assert any(c.verdict is Verdict.FAILED for c in results) is bool(causes), "`ackwright check` says the same"


def test_a_group_with_other_members_is_in_use() -> None:
    assert unmet_by_group("g", OtherMembers((), False)) is None
    in_use = unmet_by_group("g", OtherMembers(("alpha", "beta", "gamma", "zeta"), False))
    assert in_use is not None
    assert in_use.reason is Reason.GROUP_IN_USE
    assert in_use.cause == "consumer group g is used by other consumers (client.id alpha, beta, gamma)"
    assert in_use.remedy == "stop them, or recreate the pipeline with another source.groupId"
    new = unmet_by_group("g", OtherMembers((), True))
    assert new is not None
    assert "(group.protocol=consumer)" in new.cause
