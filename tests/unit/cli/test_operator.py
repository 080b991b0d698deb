"""Which namespaces the operator watches: options count more than the environment, and that more than its own namespace. And what it waits
for before it begins."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from ackwright.cli.operator import await_crd, chosen
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
    found = chosen(namespaces, everything, "own", {**environment, "ACKWRIGHT_WORKERS": "3"})
    assert (found.namespaces, found.own_namespace, found.workers) == (expected, "own", 3)


class Answers:
    """An API server that gives one after the other."""

    def __init__(self, *given: bool | ApiError) -> None:
        self.given = list(given)

    def serves(self, api_version: str, kind: str) -> bool:
        assert (api_version, kind) == ("ackwright.io/v1alpha1", "DeliveryPipeline")
        found = self.given.pop(0)
        if isinstance(found, ApiError):
            raise found
        return found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((True,), []),
        (
            (False, False, True),
            [
                "the API server has no DeliveryPipeline in ackwright.io/v1alpha1; install the CRD: kubectl apply --server-side -f crds/"
            ],
        ),
        ((ApiError(None, "no answer"), ApiError(503, "starts"), True), ["no answer", "starts"]),
        ((ApiError(403, "forbidden"),), []),
    ],
)
def test_it_waits_until_pipelines_are_served(
    caplog: Any, given: Sequence[bool | ApiError], said: Sequence[str]
) -> None:
    answers, pauses = Answers(*given), list[float]()
    with caplog.at_level(logging.WARNING):
        await_crd(cast(Kubernetes, answers), pauses.append)
    assert answers.given == []
    assert len(pauses) == len(given) - 1
    assert [r.getMessage() for r in caplog.records] == [f"waiting: {s}" for s in said]
