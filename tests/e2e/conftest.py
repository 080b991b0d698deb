"""The cluster of all end-to-end tests, with the operator installed by its chart, and three real brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pipelines import Installation, installation
from lab.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("only root can create the lab's network namespaces; run the tests as root")
    with Cluster.up() as running:
        yield running


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Installation]:
    """The operator, which watches one namespace that enforces Pod Security."""
    with installation(cluster) as release:
        yield release
