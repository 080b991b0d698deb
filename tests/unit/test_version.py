"""pyproject.toml holds the version, and every other place has the same one."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from ackwright.cli import main

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_command_line_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--version"]) == 0
    assert capsys.readouterr().out == f"ackwright, version {VERSION}\n"
    assert version("ackwright") == VERSION


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "ackwright" / "Chart.yaml").read_text())
    assert str(chart["appVersion"]) == VERSION


def test_every_image_that_is_named_with_a_version_is_of_this_one() -> None:
    """In the chart, and in every file that users copy from."""
    places = [
        ROOT / "README.md",
        *(ROOT / "charts").rglob("*.*"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.yaml"),
    ]
    tags = {
        (f.name, tag)
        for f in places
        for tag in re.findall(r"ackwright-(?:operator|spark):(\d[\w.-]*\w)", f.read_text())
    }
    assert {tag for _, tag in tags} <= {VERSION}, tags


def test_the_newest_release_in_the_changelog_is_this_one_or_older() -> None:
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sorted(released, key=lambda v: [*map(int, v.split("."))], reverse=True) == released
    assert not released or [*map(int, released[0].split("."))] <= [*map(int, VERSION.split("."))]
