"""A real cluster with the operator installed by its chart from real images, and three real brokers. One for all end-to-end tests."""

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
        pytest.skip("only root can make the lab's network namespaces: run the tests as root")
    with Cluster.up() as found:
        yield found


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Installation]:
    """The operator, watching one namespace in which Pod Security is enforced."""
    built = {target: images.build(target, print_progress) for target in ("operator", "spark")}
    for image in built.values():
        cluster.load_image(image)
    found = Installation(cluster, built["operator"], built["spark"])
    found.namespace(SYSTEM)
    found.namespace(NAMESPACE)
    found.install()
    yield found
    if not cluster.created:
        found.uninstall()
