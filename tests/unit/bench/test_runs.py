"""The script of Spark's own sink runs although its directory contains a package `operator`, a name of Python's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.runs import spark_sink_command

from waiting import ANSWER


def standard_error(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False).stderr


def test_the_script_reads_its_settings(tmp_path: Path) -> None:
    command = spark_sink_command(tmp_path / "missing.json")
    assert "FileNotFoundError" in standard_error(command)
    assert "ImportError" in standard_error([word for word in command if word != "-P"]), "the control"
