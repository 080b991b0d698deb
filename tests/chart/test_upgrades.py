"""Exactly the values that the README names restart drivers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ackwright.planning.plan import plan
from ackwright.render.workload import objects
from ackwright.shards import Shard
from chart.rendered import CHART
from unit.render.pipelines import EXAMPLES, SETTINGS, UID

_SETTINGS = {  # values whose setting has another name
    "image.spark": "SPARK_IMAGE",
    "image.pullPolicy": "IMAGE_PULL_POLICY",
    "image.sparkPullSecrets": "IMAGE_PULL_SECRETS",
}


def documented() -> set[str]:
    """The settings whose values restart drivers according to the README."""
    readme = (CHART / "README.md").read_text()
    sentence = re.search(r"The values that change them are (.*?)\. A driver", readme, re.DOTALL)
    assert sentence
    names = set(re.findall(r"`([\w.]+)`", sentence[1])) - {"spec.spark.image"}
    return {_SETTINGS.get(name, name.removeprefix("settings.")) for name in names}


def other_value(value: Any) -> Any:
    if isinstance(value, Shard):
        return Shard(1, 2)
    if isinstance(value, tuple):
        return (*value, "x")
    return f"{value}x" if isinstance(value, str) else type(value)(value + 1)


@pytest.mark.parametrize("setting", vars(SETTINGS))
def test_the_readme_names_exactly_the_values_that_restart_drivers(setting: str) -> None:
    changed = replace(SETTINGS, **{setting: other_value(getattr(SETTINGS, setting))})
    restarted = [
        p.metadata.name
        for p in EXAMPLES
        if objects(p, plan(p), UID, changed, identity="uid") != objects(p, plan(p), UID, SETTINGS, identity="uid")
    ]
    assert bool(restarted) == (setting.upper() in documented())
