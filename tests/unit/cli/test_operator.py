"""The namespaces that the operator watches, and what it waits for before it starts.

Options precede the environment, which precedes the namespace that the operator runs in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from ackwright.cli.operator import await_crd, operator_settings
from ackwright.clients.kubernetes import ApiError, Kubernetes


@pytest.mark.parametrize(
    ("namespaces", "everything", "environment", "expected"),
    [
        ((), False, {}, ("own",)),
        ((), False, {"ACKWRIGHT_NAMESPACES": "a, b"}, ("a", "b")),
        ((), False, {"ACKWRIGHT_NAMESPACES": ""}, ()),
        (("c",), False, {"ACKWRIGHT_NAMESPACES": "a"}, ("c",)),
        ((), True, {"ACKWRIGHT_NAMESPACES": "a"}, ()),
    ],
)
def test_watched_namespaces(
    namespaces: Sequence[str], everything: bool, environment: Mapping[str, str], expected: Sequence[str]
) -> None:
    chosen_settings = operator_settings(namespaces, everything, "own", {**environment, "ACKWRIGHT_WORKERS": "3"})
    assert (chosen_settings.namespaces, chosen_settings.own_namespace, chosen_settings.workers) == (expected, "own", 3)


def test_outside_of_a_pod_the_first_namespace_has_the_lease_and_may_have_pipelines() -> None:
    here = operator_settings(("a", "b"), False, None, {})
    assert (here.namespaces, here.own_namespace, here.allow_own_namespace) == (("a", "b"), "a", True)
    assert operator_settings((), False, None, {}).namespaces == ("default",)
    assert operator_settings(("a",), False, "a", {}).allow_own_namespace is False, "in a pod"


class Answers:
    """An API server that returns or raises one answer after the other."""

    def __init__(self, *answers: bool | ApiError) -> None:
        self.remaining = list(answers)

    def serves(self, api_version: str, kind: str) -> bool:
        assert (api_version, kind) == ("ackwright.io/v1alpha1", "DeliveryPipeline")
        answer = self.remaining.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "warnings"),
    [
        ((True,), []),
        (
            (False, False, True),
            [
                "the API server has no DeliveryPipeline in ackwright.io/v1alpha1; "
                "install the CRD: kubectl apply --server-side -f crds/"
            ],
        ),
        ((ApiError(None, "no answer"), ApiError(503, "starts"), True), ["no answer", "starts"]),
        ((ApiError(403, "forbidden"),), []),
    ],
)
def test_it_waits_until_pipelines_are_served(
    caplog: Any, answers: Sequence[bool | ApiError], warnings: Sequence[str]
) -> None:
    server, pauses = Answers(*answers), list[float]()
    with caplog.at_level(logging.WARNING):
        await_crd(cast(Kubernetes, server), pauses.append)
    assert server.remaining == []
    assert len(pauses) == len(answers) - 1
    assert [r.getMessage() for r in caplog.records] == [f"waiting: {w}" for w in warnings]
