"""The cluster of all end-to-end tests, with the operator installed by its chart, and three real brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pipelines import NAMESPACE, SYSTEM, Installation
from lab import images
from lab.cluster import Cluster, print_progress

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
    built = {target: images.build(target, print_progress) for target in ("operator", "spark")}
    for image in built.values():
        cluster.load_image(image)
    installation = Installation(cluster, built["operator"], built["spark"])
    installation.create_namespace(SYSTEM)
    installation.create_namespace(NAMESPACE)
    installation.install()
    yield installation
    if not cluster.created:
        installation.uninstall()
