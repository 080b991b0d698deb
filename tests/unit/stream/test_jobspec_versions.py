"""Jobspecs of other releases: a driver reads those of operators that it is compatible with, and refuses others by name.

The files in jobspecs/ were rendered by the code of their version, from examples/delayed-flights-exactly-once.yaml or,
where their name says so, from counts-to-postgres.yaml (stateful) and two-clusters.yaml.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream import jobspec, jobspec_sinks, jobspec_values
from ackwright_stream.jobspec import ExitCode, Reason, from_json, to_json
from ackwright_stream.jobspec_versions import ADDED, NEWEST, OLDEST, added, checked, values_of, version_of
from ackwright_stream.reports import Ending

DIRECTORY = Path(__file__).parent / "jobspecs"
REMEDY = "use images of operator and job whose releases are compatible (docs/compatibility.md)"
READABLE = f"version {NEWEST}" if OLDEST == NEWEST else f"versions {OLDEST} to {NEWEST}"
# Before the first release, fields were added to version 5.
REFUSALS = {
    "version-3": f"the jobspec has version 3, and this job reads {READABLE}; {REMEDY}",
    "version-4": f"the jobspec has version 4, and this job reads {READABLE}; {REMEDY}",
    "version-5-first": "the jobspec has missing fields: source.dead_letter_fraction, source.schema_version, "
    f"source.subject, source.writer_schemas; {REMEDY}",
}
READ = ("version-5-stateful", "version-5-stateless", "version-5-two-clusters")


def test_each_file_is_read_or_refused() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == {*REFUSALS, *READ}


@pytest.mark.parametrize("name", READ)
def test_it_is_read_and_the_same_text_is_written_again(name: str) -> None:
    """Another text would restart the driver when the operator is upgraded."""
    text = (DIRECTORY / f"{name}.json").read_text()
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        from_json((DIRECTORY / f"{name}.json").read_text())
    assert str(refused.value) == REFUSALS[name]


@pytest.mark.parametrize("version", [NEWEST + 1, "5", None])
def test_a_version_that_a_later_release_writes_is_refused(version: object) -> None:
    document = json.loads((DIRECTORY / f"{READ[0]}.json").read_text())
    with pytest.raises(ValueError, match=f"the jobspec has version {version}, and this job reads {READABLE}"):
        from_json(json.dumps({**document, "version": version}))


@dataclass(frozen=True)
class Inner:
    of_first: str
    of_third: int = added(OLDEST + 2, 0)


@dataclass(frozen=True)
class Outer:
    inner: Inner
    of_second: str | None = added(OLDEST + 1, None)


@pytest.mark.parametrize(
    ("value", "version", "written"),
    [
        (Outer(Inner("a")), OLDEST, {"inner": {"of_first": "a"}}),
        (Outer(Inner("a"), "b"), OLDEST + 1, {"inner": {"of_first": "a"}, "of_second": "b"}),
        (Outer(Inner("a", 7)), OLDEST + 2, {"inner": {"of_first": "a", "of_third": 7}}),
        (Outer(Inner("a", 7), "b"), OLDEST + 2, {"inner": {"of_first": "a", "of_third": 7}, "of_second": "b"}),
    ],
)
def test_an_added_field_at_its_default_is_not_written_and_needs_no_later_job(
    value: Outer, version: int, written: Any
) -> None:
    assert (version_of(value), values_of(value)) == (version, written)
    read = checked(Outer, written)
    assert Outer(**{**read, "inner": Inner(**checked(Inner, read, "inner"))}) == value


def test_what_is_not_added_must_be_there_and_nothing_else() -> None:
    with pytest.raises(ValueError, match=r"missing fields: inner\.of_first; "):
        checked(Inner, {"inner": {}}, "inner")
    with pytest.raises(ValueError, match="unknown fields: of_fourth; "):
        checked(Inner, {"of_first": "", "of_fourth": 1})


def test_the_newest_version_is_that_of_the_last_added_field() -> None:
    """A field of a later version than NEWEST would be written in jobspecs that no job reads."""
    classes = [
        c for module in (jobspec, jobspec_sinks, jobspec_values) for c in vars(module).values() if is_dataclass(c)
    ]
    versions = [f.metadata[ADDED] for c in classes for f in fields(c) if ADDED in f.metadata]
    assert max(versions, default=OLDEST) == NEWEST


def test_a_driver_ends_without_spark_and_tells_why(tmp_path: Path) -> None:
    ending = tmp_path / "ending.json"
    file = DIRECTORY / "version-4.json"
    argv = [sys.executable, "-m", "ackwright_stream", "--jobspec", str(file), "--ending", str(ending)]
    driver = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert driver.returncode == ExitCode.INVALID
    reported = Ending.from_json(ending.read_text())
    assert reported is not None
    assert reported.failure is not None
    assert reported.failure.reason is Reason.INVALID_SPEC
    assert reported.failure.message == f"{file}: {REFUSALS['version-4']}"
