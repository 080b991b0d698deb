"""Jobspecs of earlier releases: a driver of this release refuses each by what differs, and starts none of them.

The files in jobspecs/ were rendered by the code of their version, from examples/delayed-flights-exactly-once.yaml. Any
other reading would leave out a setting on which the guarantee depends.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ackwright_stream.jobspec import VERSION, ExitCode, Reason, from_json
from ackwright_stream.reports import Ending

DIRECTORY = Path(__file__).parent / "jobspecs"
REMEDY = "the operator and the job image must be of the same release"
# Before the first release, fields were added to version 5.
REFUSALS = {
    "version-3": f"jobspec version 3 is not {VERSION}; {REMEDY}",
    "version-4": f"jobspec version 4 is not {VERSION}; {REMEDY}",
    "version-5-first": "jobspec has missing fields: source.dead_letter_fraction, source.schema_version, "
    f"source.subject, source.writer_schemas; {REMEDY}",
}


def test_each_file_has_its_refusal() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == REFUSALS.keys()


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        from_json((DIRECTORY / f"{name}.json").read_text())
    assert str(refused.value) == REFUSALS[name]


def test_a_driver_ends_without_spark_and_tells_why(tmp_path: Path) -> None:
    ending = tmp_path / "ending.json"
    jobspec = DIRECTORY / "version-4.json"
    argv = [sys.executable, "-m", "ackwright_stream", "--jobspec", str(jobspec), "--ending", str(ending)]
    driver = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert driver.returncode == ExitCode.INVALID
    reported = Ending.from_json(ending.read_text())
    assert reported is not None
    assert reported.failure is not None
    assert reported.failure.reason is Reason.INVALID_SPEC
    assert reported.failure.message == f"{jobspec}: {REFUSALS['version-4']}"
