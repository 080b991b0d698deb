"""The CRD: the committed file is the generated one, structural and bounded, and accepts what the models accept."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from pydantic import BaseModel, Field

from ackwright.api.checks import Cel, Validation
from ackwright.api.crd import crd, crd_yaml
from ackwright.api.spec import DeliveryPipeline, examine, parse
from ackwright.api.status import Condition, Status, status_json
from ackwright.planning import validation
from ackwright.planning.guarantees import TERMS
from ackwright.planning.topics import LANES_TOPIC, MAX_REPLICAS
from unit.api.drawn import documents
from unit.documents import EXAMPLES, ROOT

COMMITTED = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"

Schema = Mapping[str, Any]


GENERATED = crd_yaml(validation.validations())
VERSION: dict[str, Any] = yaml.safe_load(GENERATED)["spec"]["versions"][0]
SCHEMA: Schema = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}".lstrip("."))
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}[]")


ALL = dict(nodes(SCHEMA))


def refusals(schema: Schema, value: Any, path: str = "") -> list[str]:
    """What a schema of this kind refuses, without its checks in CEL. Unknown fields are ignored."""
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    if not isinstance(value, kinds[schema["type"]]) or (
        schema["type"] in ("integer", "number") and isinstance(value, bool)
    ):
        return [f"{path}: not of type {schema['type']}"]
    problems = []
    sizes = {"object": "Properties", "array": "Items", "string": "Length"}
    size = len(value) if schema["type"] in sizes else value
    if (
        not schema.get("min" + sizes.get(schema["type"], "imum"), size)
        <= size
        <= schema.get("max" + sizes.get(schema["type"], "imum"), size)
    ):
        problems.append(f"{path}: out of bounds")
    if value not in schema.get("enum", [value]) or (
        isinstance(value, str) and not re.search(schema.get("pattern", ""), value)
    ):
        problems.append(f"{path}: not one of these, or of this form")
    if isinstance(value, list):
        problems += [r for entry in value for r in refusals(schema["items"], entry, f"{path}[]")]
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            keys = [
                [entry[k] for k in schema["x-kubernetes-list-map-keys"]] if isinstance(entry, dict) else entry
                for entry in value
            ]
            problems += [f"{path}: {key} twice" for i, key in enumerate(keys) if key in keys[:i]]
    if isinstance(value, dict):
        problems += [f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value]
        for name, entry in value.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            problems += refusals(below, entry, f"{path}.{name}") if below else []
    return problems


def defaulted(schema: Schema, value: Any) -> Any:
    """The value with defaults filled in from the top down, as the API server does."""
    if isinstance(value, list):
        return [defaulted(schema["items"], entry) for entry in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    complete = {n: copy.deepcopy(s["default"]) for n, s in properties.items() if "default" in s} | value
    return {n: defaulted(properties[n], v) if n in properties else v for n, v in complete.items()}


def test_the_committed_file_is_the_generated_one() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == GENERATED, "run `make crd`"


def test_the_hook_that_generates_the_crd_runs_for_each_module_that_it_is_derived_from() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (pattern,) = [hook["files"] for hook in hooks if hook["id"] == "crd"]
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); print(*(n for n in sys.modules if n.startswith('ackwright')))"
    )
    argv = [sys.executable, "-c", code, str(ROOT / "tools" / "crd.py")]
    names = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    places = {"ackwright": "operator", "ackwright_stream": "spark_app"}
    own = [f"{places[name.split('.')[0]]}/{name.replace('.', '/')}.py" for name in names]
    own = [file for file in own if (ROOT / file).exists()]  # without packages
    assert "operator/ackwright/sinks/registry.py" in own
    assert [file for file in own if not re.search(pattern, file)] == []


def test_the_schema_is_structural() -> None:
    known = {
        *(
            "type",
            "description",
            "default",
            "enum",
            "format",
            "pattern",
            "required",
            "properties",
            "items",
            "additionalProperties",
        ),
        *("maxLength", "minItems", "maxItems", "maxProperties", "minimum", "maximum"),
        *(
            "x-kubernetes-validations",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-preserve-unknown-fields",
        ),
    }
    for path, schema in ALL.items():
        assert isinstance(schema["type"], str), path
        assert set(schema) <= known, path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert schema.get("default", "") is not None, path


def test_every_text_list_and_map_is_bounded() -> None:
    """Without bounds the API server assumes the largest size that a request can have, and CEL is too expensive."""
    bounds = {"string": {"maxLength", "enum"}, "array": {"maxItems"}, "object": {"properties", "maxProperties"}}
    unbounded = {
        path
        for path, s in ALL.items()
        if s["type"] in bounds and not bounds[s["type"]] & set(s) and s.get("format") != "date-time"
    }
    free = {path for path, s in ALL.items() if s.get("x-kubernetes-preserve-unknown-fields")}
    assert unbounded == free == {"status.accepted.spec", "status.previous.spec"}


def test_every_field_is_described() -> None:
    assert [
        path
        for path, s in ALL.items()
        if path and not path.startswith("metadata") and not path.endswith("[]") and not s.get("description")
    ] == []


def test_patterns_mean_the_same_to_the_api_server() -> None:
    """Go's RE2 and Rust's regex agree as long as no pattern uses \\d, \\w, \\b, (?…) or case folding.

    \\s and \\S differ for white space beyond ASCII, which the API server accepts.
    """
    for path, schema in ALL.items():
        assert not re.search(r"\(\?|\\[dwbDWBAzZpP]", schema.get("pattern", "")), path


def _column_type(schema: Mapping[str, Any]) -> str:
    """kubectl shows the age of a date."""
    return "date" if schema.get("format") == "date-time" else str(schema["type"])


def test_columns_show_existing_fields() -> None:
    columns = VERSION["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        "Guarantee",
        "Ready",
        "Status",
        "Met",
        "Lag",
        "Age",
    ]
    assert [c["name"] for c in columns if c.get("priority")] == [
        "Observed",
        "Topics",
        "Batch",
        "Records/s",
        "Driver",
        "Last run",
        "Next run",
        "Why",
    ]
    assert columns[0]["jsonPath"] == ".status.guarantee", "that of an edit is not in force before it is accepted"
    for column in columns:
        path = column["jsonPath"].lstrip(".")
        named = re.fullmatch(
            r'status\.conditions\[\?\(@\.type=="(Ready|GuaranteeMet)"\)\]\.(status|reason|message)', path
        )
        expected = (
            "string"
            if named or path == "status.schedule.nextScheduleTime"
            else _column_type(ALL[path])
            if path in ALL
            else {"metadata.creationTimestamp": "date"}[path]
        )
        assert column["type"] == expected, path


def test_the_checks_in_cel_carry_the_constants_of_planning() -> None:
    assert f"self != '{LANES_TOPIC}'" in GENERATED
    assert f"<= {MAX_REPLICAS}" in GENERATED
    checks = ALL["spec"]["x-kubernetes-validations"]
    messages = [check["message"] for check in checks if check.get("fieldPath") == ".sink.kafka.acks"]
    narrow = {g: terms.allowed_acks for g, terms in TERMS.items() if len(terms.allowed_acks) < 3}
    assert len(messages) == len(narrow)
    for guarantee, allowed in narrow.items():
        assert any(f"guarantee: {guarantee}, which allows {' or '.join(allowed)}: " in m for m in messages)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_fit(example: Path) -> None:
    assert refusals(SCHEMA, yaml.safe_load(example.read_text())) == []


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(documents())
def test_accepted_pipelines_fit_and_mean_the_same_with_defaults(document: dict[str, Any]) -> None:
    pipeline, violations = examine(document)
    assume(pipeline is not None and not violations and not validation.check(pipeline))
    filled = defaulted(SCHEMA, document)
    assert refusals(SCHEMA, document) == []
    assert refusals(SCHEMA, filled) == []
    assert parse(filled) == pipeline


def test_a_written_status_fits() -> None:
    condition = Condition.model_validate(
        {
            "type": "Ready",
            "status": "True",
            "reason": "Delivering",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
    )
    document = status_json(Status.model_validate({"observedGeneration": 1, "conditions": [condition]}))
    assert refusals(SCHEMA["properties"]["status"], document) == []
    assert defaulted(SCHEMA["properties"]["status"], document) == document


def test_pydantics_own_keywords_are_translated() -> None:
    class Below(BaseModel):
        kind: Literal["one"]

    class Model(Status):
        share: Annotated[float, Field(gt=0, le=1)]
        offset: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
        below: Below | None = None
        names: dict[str, Annotated[str, Field(max_length=9)]] = Field(default_factory=dict)

    status = crd(DeliveryPipeline, Model, validation.validations())["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
        "properties"
    ]["status"]
    assert status["required"] == ["share"]
    assert status["properties"]["share"] == {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}
    assert status["properties"]["offset"] == {"type": "integer", "minimum": 0, "format": "int64"}
    assert status["properties"]["below"]["properties"]["kind"] == {"type": "string", "enum": ["one"]}
    assert status["properties"]["names"] == {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 9},
    }


def test_models_that_a_structural_schema_cannot_express_are_refused() -> None:
    class Alternatives(Status):
        either: int | str

    with pytest.raises(ValueError, match="no alternatives"):
        crd(DeliveryPipeline, Alternatives, ())


def test_a_validation_of_a_field_that_does_not_exist_is_refused() -> None:
    nowhere = Validation[object](
        "is wrong", "correct it", (), lambda _: iter(()), cel=(Cel("true", on="spec.nowhere"),)
    )
    with pytest.raises(ValueError, match=r"validated, but not in the models: spec\.nowhere"):
        crd(DeliveryPipeline, Status, (nowhere,))


def test_every_check_has_a_message_with_a_remedy() -> None:
    for path, schema in ALL.items():
        for check in schema.get("x-kubernetes-validations", ()):
            assert "; " in check["message"], path
