"""The examples with a README: the page lists them, and their commands, files and topics fit one another."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ackwright.api import document
from ackwright.pipeline_index import PipelineIndex
from ackwright.planning.declared import parse_resource
from ackwright.planning.plan import load
from integration.support.gallery import Example
from unit.documents import EXAMPLES, ROOT

PAGE = (ROOT / "docs" / "examples.md").read_text()
NAMES = sorted(file.parent.name for file in (ROOT / "examples").glob("*/README.md"))


def test_the_page_lists_every_example() -> None:
    assert len(NAMES) >= 10
    assert sorted(re.findall(r"^\| `examples/([\w-]+)` \|", PAGE, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_and_the_readme_name_the_guarantees_of_the_pipelines(name: str) -> None:
    guarantees = {load(ROOT / file)[0].spec.guarantee for file in Example(name).files}
    [row] = re.findall(rf"^\| `examples/{name}` \|.*$", PAGE, re.MULTILINE)
    if len(guarantees) == 1:
        assert f"| {next(iter(guarantees))} |" in row
    readme = Example(name).readme.read_text()
    assert all(f"**{str(guarantee).capitalize()}**" in readme for guarantee in guarantees)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_feeds_the_source_and_reads_the_sink(name: str) -> None:
    example = Example(name)
    specs = [load(ROOT / file)[0].spec for file in example.files]
    sources = {topic for spec in specs for topic in spec.source.topics}
    fed = [words[3:] for words in example.commands("python", "examples/records.py", "feed")]
    assert [topic for topic, _ in fed] == sorted(sources)
    assert all((ROOT / file).read_text() for _, file in fed)
    declared = {topic.name for spec in specs for topic in spec.topics}
    read = [words[3:] for words in example.commands("python", "examples/records.py", "read")]
    assert {topic for topic, _ in read} <= declared - sources
    assert sum(int(count) for _, count in read) in (0, len(example.output))
    assert [words[words.index("-f") + 1] for words in example.commands("ackwright", "audit")] == example.files


# ------------------------------------------------ all examples in one cluster


def conflicts(resources: list[Any]) -> list[str]:
    """What each of these pipelines, applied in this order, could not have because of the ones before it."""
    index = PipelineIndex()
    for second, resource in enumerate(resources):
        resource["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{second:02}Z", "uid": str(second)}
        index.update((resource["metadata"]["namespace"], resource["metadata"]["name"]), resource)
    shared = []
    for resource in resources:
        pipeline, violations = parse_resource(resource)
        assert pipeline is not None, violations
        shared += [f"{pipeline.metadata.name}: {t}" for t in index.conflicting_declarations(resource, pipeline)]
        shared += [f"{pipeline.metadata.name}: {owner}" for owner in [index.group_owner(resource)] if owner]
    return shared


def resources() -> list[Any]:
    return [document.read(file) for file in EXAMPLES]


def test_all_examples_can_be_applied_together() -> None:
    names = [(r["metadata"]["namespace"], r["metadata"]["name"]) for r in resources()]
    assert len(set(names)) == len(names) == len(EXAMPLES) > 20
    assert conflicts(resources()) == conflicts(resources()[::-1]) == []


def test_control_examples_that_share_a_topic_or_a_group_differently_are_in_conflict() -> None:
    one, other = resources()[0], resources()[0]
    other["metadata"]["name"] = "other"
    other["spec"]["topics"][0]["partitions"] += 1
    topic = other["spec"]["topics"][0]["name"]
    assert conflicts([one, other]) == [f"other: {topic}"]
    other["spec"]["topics"][0]["partitions"] -= 1
    other["spec"]["source"]["groupId"] = f"{one['metadata']['namespace']}.{one['metadata']['name']}"
    assert conflicts([one, other]) == [f"other: {one['metadata']['namespace']}/{one['metadata']['name']}"]


def test_no_two_examples_write_one_topic_or_read_it_in_two_registered_formats() -> None:
    writers: dict[tuple[str, str], str] = {}
    schemas: dict[tuple[str, str], set[str]] = {}
    for file in EXAMPLES:
        spec = load(file)[0].spec
        servers = (spec.sink.declared.cluster() or spec.kafka).bootstrap_servers
        letters = spec.sink.declared.dead_letters()
        topics = {*spec.sink.declared.topics(), *([letters.name] if letters and letters.kind == "topic" else [])}
        for topic in topics:
            assert writers.setdefault((servers, topic), str(file)) == str(file), topic
        for topic in spec.source.topics:
            schemas.setdefault((spec.kafka.bootstrap_servers, topic), set()).add(spec.source.format)
    registered = {"avro", "jsonSchema", "protobuf"}
    assert [topic for topic, formats in schemas.items() if len(formats) > 1 and formats & registered] == []
