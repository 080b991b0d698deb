"""The permissions on a group are read without librdkafka's describe_consumer_groups(), which may end the process."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import errors as kafka_errors

from ackwright.clients import permissions, reassignments
from ackwright.errors import AckwrightError
from ackwright.planning.acls import Answers, Kind, Operation, Resource
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

SETTINGS = {"bootstrap.servers": "k:9092", "sasl.username": "ann"}
GROUP = Resource(Kind.GROUP, "ops.p")


class Librdkafka:
    """librdkafka's client of a cluster that the principal may not describe; it has no call about groups."""

    def describe_cluster(self, **_: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(authorized_operations=None))
        return answer


def answers(monkeypatch: pytest.MonkeyPatch, *of_group: dict[str, Any] | Exception) -> Answers:
    """of_group: what kafka-python returns or raises at each call."""
    left = list(of_group)

    class KafkaPython:
        def __init__(self, **_: Any) -> None:
            pass

        def describe_groups(self, names: list[str]) -> dict[str, Any]:
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return dict.fromkeys(names, answer)

        def close(self) -> None:
            pass

    def translate(error: object, action: str) -> AckwrightError:
        return AckwrightError(Reason.UNEXPECTED, f"{action}: {error}")

    monkeypatch.setattr(reassignments, "KafkaAdminClient", KafkaPython)
    admin = cast(AdminClient, Librdkafka())
    return permissions.answers(admin, SETTINGS, translate, 5.0, topics=(), groups=["ops.p"], acls=False)


def described(error: type[kafka_errors.BrokerResponseError] | None, *operations: str) -> dict[str, Any]:
    """A description in the form that kafka-python returns."""
    if error is not None:
        return {"error": str(error("")), "authorized_operations": None}
    return {"error": None, "authorized_operations": list(operations)}


def test_the_operations_on_a_group_are_those_that_its_coordinator_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = answers(monkeypatch, described(None, "READ", "DESCRIBE", "OF_ANOTHER_RELEASE"))
    assert reported.authorized[GROUP] == {Operation.READ, Operation.DESCRIBE}
    assert (GROUP in reported.refused, reported.principal) == (False, "User:ann")


@pytest.mark.parametrize(
    "refusal",
    [
        kafka_errors.GroupAuthorizationFailedError("the coordinator is not named"),
        described(kafka_errors.GroupAuthorizationFailedError),
    ],
    ids=["coordinator", "group"],
)
def test_a_group_that_the_principal_may_not_describe_is_refused(
    monkeypatch: pytest.MonkeyPatch, refusal: dict[str, Any] | Exception
) -> None:
    reported = answers(monkeypatch, refusal)
    assert (GROUP in reported.refused, GROUP in reported.authorized) == (True, False)


def test_nothing_is_known_of_a_group_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = answers(monkeypatch, described(kafka_errors.GroupIdNotFoundError))
    assert (GROUP in reported.refused, GROUP in reported.authorized) == (False, False)


def test_a_group_whose_coordinator_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = answers(
        monkeypatch,
        kafka_errors.CoordinatorNotAvailableError("none yet"),
        described(kafka_errors.NotCoordinatorError),
        described(None, "READ"),
    )
    assert reported.authorized[GROUP] == {Operation.READ}


def test_any_other_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AckwrightError, match=r"reading the permissions on group ops.p failed: InvalidGroupIdError"):
        answers(monkeypatch, described(kafka_errors.InvalidGroupIdError))
