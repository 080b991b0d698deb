"""Which namespaces the operator watches: options count more than the environment, and that more than its own namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ackwright.cli.operator import chosen


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
def test_watched_namespaces(namespaces: Sequence[str], everything: bool, environment: Mapping[str, str], expected: Sequence[str]) -> None:
    found = chosen(namespaces, everything, "own", {**environment, "ACKWRIGHT_WORKERS": "3"})
    assert (found.namespaces, found.own_namespace, found.workers) == (expected, "own", 3)
