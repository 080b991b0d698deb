"""An upgrade from images that were built from an earlier commit, step by step, while pipelines deliver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pipelines import Installation, Pipeline, pipeline
from e2e.upgrades import FLIGHTS, identity, wait_until_delivered_and_observed
from lab import images
from lab.cluster import print_progress
from lab.images import REPOSITORY

# Until a release has been tagged: the first commit whose jobs have today's settings, because an upgrade to others
# restarts each driver. It reads every version of the jobspec; test_jobspec_versions.py has older ones.
PREVIOUS = "82be36ae383c8347ec5eb42894f2046a1577eb28"


@pytest.fixture
def released(installed: Installation) -> Iterator[Installation]:
    """The release of the other tests, which is restored at the end."""
    yield installed
    installed.install()


def test_operator_and_job_are_upgraded_one_after_the_other(released: Installation, tmp_path: Path) -> None:
    installed, clone = released, tmp_path / "previous"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", REPOSITORY, clone], check=True, timeout=60)
    subprocess.run(["git", "checkout", "--quiet", PREVIOUS], cwd=clone, check=True, timeout=60)
    operator, spark = (images.build(target, print_progress, clone) for target in ("operator", "spark"))
    for image in (operator, spark):
        installed.cluster.load_image(image)
    of_job = {"spark": spark.reference}

    installed.install(clone / "charts" / "ackwright", image={"operator": operator.reference, **of_job})
    with pipeline(installed, "exactly-once") as once, pipeline(installed, "at-least-once") as least:
        both = (once, least)
        for p in both:
            p.wait_for("TopicsReady", "True")
            p.produce_flights(FLIGHTS)
        for p in both:
            p.wait_for("Ready", "True", "Delivering")
        before = {p.name: identity(p) for p in both}

        installed.install(image={"operator": installed.operator.reference, **of_job})
        wait_until_delivered_and_observed(both, FLIGHTS)
        assert {p.name: identity(p) for p in both} == before, "an upgrade of the operator restarts and rewrites nothing"

        for p in both:
            p.apply(trigger={"interval": "2s"})
            p.wait_for("Ready", "True", "Delivering")
        wait_until_delivered_and_observed(both, 2 * FLIGHTS)
        assert {image_of(p) for p in both} == {spark.reference}, "jobs of the earlier release read today's jobspecs"

        installed.install()
        for p in both:
            wait_for_image(p, installed.spark.reference)
            p.wait_for("Ready", "True", "Delivering")
        wait_until_delivered_and_observed(both, 3 * FLIGHTS)
        for p in both:
            assert p.audit(tmp_path)["exitCode"] == 0


def image_of(p: Pipeline) -> str | None:
    """The image of the driver; None while there is none."""
    driver = p.driver()
    return str(driver["spec"]["containers"][0]["image"]) if driver else None


def wait_for_image(p: Pipeline, image: str) -> None:
    p.wait_until(lambda: image_of(p) == image, f"its driver has the image {image}")
