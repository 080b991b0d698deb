"""What is certain of a file before Spark and brokers see it, with its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from ackwright.errors import InvalidSpec, Violation
from ackwright.planning.plan import load, load_judged
from sql_texts import REFUSED_OUTPUTS
from unit.documents import DOCUMENTS, EXAMPLES, blocks

FILE = """\
apiVersion: ackwright.io/v1alpha1
kind: DeliveryPipeline
metadata: {name: flights, namespace: ops}
spec:
  guarantee: exactly-once
  kafka: {bootstrapServers: "localhost:9092"}
  source:
    topics: [flights]
    format: json
    schema: "id BIGINT, name STRING"
  transform:
    sql: |
      SELECT name AS key,
             id
      FROM source
  sink:
    kafka: {topic: delayed, format: json}
  topics:
    - {name: flights, partitions: 6}
    - name: delayed
      partitions: 6
      config: {retention.ms: "604800000"}
"""


def judged(tmp_path: Path, *edits: tuple[str, str]) -> tuple[Violation, ...]:
    """The errors, or else the warnings, of the file with these edits."""
    text = FILE
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    file = tmp_path / "p.yaml"
    file.write_text(text)
    try:
        return load_judged(file)[2]
    except InvalidSpec as e:
        return e.violations


def places(violations: tuple[Violation, ...]) -> list[str]:
    return [f"{v.place.line}:{v.place.column}" if v.place else "" for v in violations]


def test_the_file_is_right(tmp_path: Path) -> None:
    assert judged(tmp_path) == ()


def test_nulls_instead_of_errors_are_a_warning(tmp_path: Path) -> None:
    guarantee = "  guarantee: exactly-once\n"

    def warnings(value: str) -> tuple[Violation, ...]:
        return judged(tmp_path, (guarantee, f'{guarantee}  spark: {{conf: {{spark.sql.ansi.enabled: "{value}"}}}}\n'))

    (warning,) = warnings("False")
    assert str(warning) == (
        "spec.spark.conf['spark.sql.ansi.enabled'] = 'False': an overflow, a bad cast or a division by zero writes a "
        "null instead of failing; remove it, and use try_cast or nullif where a null is right"
    )
    assert places((warning,)) == ["6:18"]
    assert warnings("true") == ()


@pytest.mark.parametrize(
    ("edit", "place", "words"),
    [
        (("SELECT name", "SELEC name"), "13:7", "did you mean SELECT?"),
        (("FROM source", "FROM orders"), "15:12", "select FROM source"),
        (("             id\n", "             idd\n"), "14:14", "there is no column idd; did you mean id?"),
        (("             id\n", "             count(*) AS n\n"), "14:14", "aggregate function count"),
        (("id BIGINT", "id INTT"), "10:17", "did you mean INT?"),
        (('"id BIGINT,', '"id BIGINT'), "10:24", "no comma"),
        (("name AS key", "id AS key"), "13:14", "the column key as BIGINT"),
        (("topic: delayed, ", ""), "13:7", "no sink.kafka.topic"),
        (("format: json}", "format: string}"), "13:7", "no column value"),
        (("retention.ms", "retentionms"), "22:16", "did you mean retention.ms?"),
        (('"604800000"', '"7d"'), "22:16", 'write "604800000"'),
        (("- {name: flights,", "- {name: flihgts,"), "19:8", "did you mean flights?"),
        (("guarantee: exactly-once", "guarantee: exactly-onec"), "5:3", "did you mean exactly-once?"),
        (("    format: json\n", "    formt: json\n"), "9:5", "did you mean format?"),
        (("partitions: 6}", "partitions: 0}"), "19:23", "must be at least 1"),
    ],
)
def test_errors_have_line_and_column(tmp_path: Path, edit: tuple[str, str], place: str, words: str) -> None:
    violations = judged(tmp_path, edit)
    assert place in places(violations)
    assert words in str(violations[places(violations).index(place)])


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("SELECT name AS key, idd FROM source", "12:30"),
        ("'SELECT name AS key, ''x'' AS x, idd FROM source'", "12:43"),
        ('"SELECT name AS key, \\"x\\" AS x, idd FROM source"', "12:43"),
        (">-\n      SELECT name AS key,\n      idd\n      FROM source", "14:7"),
        ("|-\n\n      SELECT name AS key,\n\n        idd FROM source", "16:9"),
        ("SELECT name AS key,\n      idd\n      FROM source", "13:7"),
    ],
)
def test_places_in_every_style_of_yaml(tmp_path: Path, written: str, place: str) -> None:
    block = "|\n      SELECT name AS key,\n             id\n      FROM source"
    [violation] = [v for v in judged(tmp_path, (block, written)) if "idd" in v.problem]
    assert places((violation,)) == [place]


def test_a_missing_field_is_shown_at_the_field_above(tmp_path: Path) -> None:
    [violation] = judged(tmp_path, ("    topics: [flights]\n", ""))
    assert (violation.field, places((violation,))) == ("spec.source.topics", ["7:3"])


@pytest.mark.parametrize(
    ("edit", "field", "place"),
    [
        (("  sink:\n    kafka: {topic: delayed, format: json}\n", ""), "spec.sink", "4:1"),
        (("    kafka: {topic: delayed, format: json}\n", ""), "spec.sink", "16:3"),
        ((FILE[FILE.index("spec:") :], "spec:\n"), "spec", "4:1"),
        ((FILE[FILE.index("spec:") :], ""), "spec", "1:1"),
    ],
)
def test_a_spec_without_a_sink_is_invalid(tmp_path: Path, edit: tuple[str, str], field: str, place: str) -> None:
    violations = judged(tmp_path, edit)
    assert (violations[0].field, places(violations)[0]) == (field, place)


def test_declared_topics_that_are_not_used_are_warnings(tmp_path: Path) -> None:
    [warning] = judged(tmp_path, ("  topics:\n", "  topics:\n    - {name: other, partitions: 1}\n"))
    assert places((warning,)) == ["19:8"]
    assert "no topic of this pipeline" in str(warning)


def test_of_topics_that_the_transform_names_there_is_no_finding(tmp_path: Path) -> None:
    routed = ("             id\n", "             id, 'other' AS topic\n")
    assert judged(tmp_path, routed, ("  topics:\n", "  topics:\n    - {name: other, partitions: 1}\n")) == ()


def test_topics_that_differ_in_a_number_are_not_misspelt(tmp_path: Path) -> None:
    [warning] = judged(tmp_path, ("topics: [flights]", "topics: [flights-1]"), ("name: flights,", "name: flights-2,"))
    assert "neither source nor sink" in warning.problem


@pytest.mark.parametrize(("sql", "at"), REFUSED_OUTPUTS)
def test_outputs_that_the_sink_refuses(tmp_path: Path, sql: str, at: str) -> None:
    text = yaml.safe_load(FILE)
    text["spec"]["source"] = {"topics": ["flights"]}
    text["spec"]["transform"] = {"sql": sql}
    text["spec"]["sink"] = {"kafka": {"topic": "delayed"}}
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(text))
    with pytest.raises(InvalidSpec) as e:
        load_judged(file)
    assert sql.rindex(at) in [v.offset for v in e.value.violations]


def _files() -> list[tuple[str, str]]:
    """Every pipeline of the examples and the pages."""
    files = [(file.name, file.read_text()) for file in EXAMPLES]
    pages = [(d.name, b) for d in DOCUMENTS for b in blocks(d, "yaml") if "kind: DeliveryPipeline" in b]
    return [*files, *pages]


@pytest.mark.parametrize(("name", "text"), _files(), ids=lambda value: value if "\n" not in value else "")
def test_examples_and_pages_have_no_error_and_no_warning(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    for document in text.split("\n---\n"):
        if "kind: DeliveryPipeline" in document:
            file.write_text(document)
            assert load_judged(file)[2] == ()


def test_the_operators_validation_leaves_sql_to_the_job(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace("FROM source", "FROM orders"))
    assert load(file)[1].transform.sql is not None


def test_without_sqlglot_the_sql_is_not_judged_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without the extra `operator`."""
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    for module in ("transform_sql", "sql_columns", "sql_parser"):
        monkeypatch.delitem(sys.modules, f"ackwright.planning.{module}")
    monkeypatch.delattr("ackwright.planning.transform_sql")
    [warning] = judged(tmp_path, ("FROM source", "FROM orders"))
    assert "sqlglot is not installed" in str(warning)
    assert len(judged(tmp_path, ("id BIGINT", "id INTT"))) == 1


@pytest.mark.parametrize(
    ("edit", "place", "words"),
    [
        (("FROM source", "FROM source |> WHERE id > 1"), "15:19", "it has pipes (|>)"),
        (("             id\n", "             id ?::INT AS id\n"), "14:17", "its syntax is not known here at ?"),
        (("             id\n", f"             {'struct(' * 12}id{')' * 12} AS id\n"), "13:7", "nested too deeply"),
    ],
)
def test_sql_that_is_not_judged_is_a_warning(tmp_path: Path, edit: tuple[str, str], place: str, words: str) -> None:
    [warning] = judged(tmp_path, edit)
    assert places((warning,)) == [place]
    assert words in str(warning)
    assert str(warning).endswith("the job checks it when it starts")
