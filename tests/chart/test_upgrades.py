"""Which values restart drivers: those of which the README says so, and no others."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ackwright.settings import OperatorSettings
from chart.rendered import CHART
from unit.render.pipelines import EXAMPLES, SETTINGS, UID, objects, plan

_VALUES = {  # the other settings are called as they are
    "image.spark": "SPARK_IMAGE",
    "image.pullPolicy": "IMAGE_PULL_POLICY",
    "image.sparkPullSecrets": "IMAGE_PULL_SECRETS",
}


def told() -> set[str]:
    sentence = re.search(r"Of the values these do it: (.*?)\. A driver", (CHART / "README.md").read_text(), re.DOTALL)
    assert sentence
    names = re.findall(r"`([\w.]+)`", sentence[1])
    return {_VALUES.get(name, name.removeprefix("settings.")) for name in names}


def other(value: object) -> object:
    return (
        (*value, "x") if isinstance(value, tuple) else f"{value}x" if isinstance(value, str) else type(value)(value + 1)
    )  # type: ignore[operator, call-arg]


@pytest.mark.parametrize("setting", vars(SETTINGS))
def test_the_readme_says_which_values_restart_drivers(setting: str) -> None:
    changed: OperatorSettings = replace(SETTINGS, **{setting: other(getattr(SETTINGS, setting))})
    unlike = [
        p.metadata.name for p in EXAMPLES if objects(p, plan(p), UID, changed) != objects(p, plan(p), UID, SETTINGS)
    ]
    assert bool(unlike) == (setting.upper() in told())
