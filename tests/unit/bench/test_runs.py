"""Spark's own sink is started as a script beside a package that is called like one of Python's modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.runs import spark_sink_command


def said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


def test_it_gets_as_far_as_its_settings(tmp_path: Path) -> None:
    command = spark_sink_command(tmp_path / "missing.json")
    assert "FileNotFoundError" in said(command)
    assert "ImportError" in said([word for word in command if word != "-P"]), "the control"
