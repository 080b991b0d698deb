"""What a driver and a worker import at their start: nothing that only some pipelines need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ackwright_stream.formats import registered_format
from ackwright_stream.jobspec import Format
from waiting import ANSWER

OF_FORMATS = ["antlr4", "fastavro", "google.protobuf", "jsonschema_rs", "proto_schema_parser"]
OF_SINKS = ["deltalake", "psycopg", "pyiceberg"]


def _imported(program: str) -> list[str]:
    """Which of these modules a program imports."""
    report = f"\nimport json, sys; print(json.dumps([m for m in {OF_FORMATS + OF_SINKS!r} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", program + report], capture_output=True, text=True, check=True, timeout=ANSWER
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["driver", "worker_daemon"])
def test_libraries_of_single_formats_and_sinks_are_not_imported_at_the_start(module: str) -> None:
    assert _imported(f"import ackwright_stream.{module}") == []


@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        (Format.AVRO, {"fastavro"}),
        (Format.JSON_SCHEMA, {"jsonschema_rs"}),
        (Format.PROTOBUF, {"google.protobuf", "proto_schema_parser"}),
    ],
)
def test_a_format_imports_its_libraries(name: Format, libraries: set[str]) -> None:
    """The control of the test above."""
    program = f"from ackwright_stream import driver, formats; formats.format_of({name.value!r})"
    assert libraries <= set(_imported(program))


def test_a_format_without_schemas_in_a_registry_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="the format json has no schemas in a registry"):
        registered_format(Format.JSON)
