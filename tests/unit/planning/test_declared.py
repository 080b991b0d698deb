"""Which pipeline owns a group, which declaration of a topic has precedence, and which losses are accepted."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION, API_VERSION, KIND
from ackwright.api.status import Accepted, Status
from ackwright.planning import declared
from ackwright.planning.declared import (
    Declaration,
    NeverValid,
    accepted_losses,
    accepted_pipeline,
    conflicting_declarations,
    declaration,
    group_of,
    group_owner,
    parse_resource,
    shared_topics,
    suspended,
    topics_of,
)
from ackwright.planning.policy import Policy
from unit.render.pipelines import MINIMAL


def resource(
    name: str, created: str = "2026-01-01T00:00:00Z", group: str | None = None, brokers: str = "a:9092,b:9092"
) -> dict[str, Any]:
    source = {"topics": ["t"], **({"groupId": group} if group else {})}
    meta = {"namespace": "ops", "name": name, "creationTimestamp": created}
    return {"metadata": meta, "spec": {"source": source, "kafka": {"bootstrapServers": brokers}}}


def test_the_group_is_declared_or_derived_from_namespace_and_name() -> None:
    assert group_of(resource("p")) == "ops.p"
    assert group_of(resource("p", group="g")) == "g"
    assert group_of({"metadata": {"namespace": "ops", "name": "p"}, "spec": {"source": "nonsense"}}) == "ops.p"


def test_the_older_of_two_pipelines_owns_the_group() -> None:
    older, younger = resource("p"), resource("q", "2026-01-02T00:00:00Z", group="ops.p")
    assert group_owner(younger, [older, younger], Policy()) == "ops/p"
    assert group_owner(older, [older, younger], Policy()) is None


def test_of_two_pipelines_created_at_once_exactly_one_owns_the_group() -> None:
    twins = [resource("p", group="g"), resource("q", group="g")]
    assert [group_owner(t, twins, Policy()) for t in twins] == [None, "ops/p"]


def test_the_same_group_in_another_cluster_is_no_conflict() -> None:
    older, younger = resource("p", group="g"), resource("q", "2026-01-02T00:00:00Z", group="g", brokers="c:9092")
    assert group_owner(younger, [older, younger], Policy()) is None
    assert group_owner(resource("q", "2026-01-02T00:00:00Z", group="g", brokers="b:9092"), [older], Policy()) == "ops/p"


def test_of_two_clusters_the_sinks_has_the_group() -> None:
    older, younger = resource("p", group="g"), resource("q", "2026-01-02T00:00:00Z", group="g", brokers="c:9092")
    younger["spec"]["sink"] = {"kafka": {"bootstrapServers": "d:9092"}}
    assert group_owner(younger, [older], Policy()) is None
    older["spec"]["sink"] = {"kafka": {"bootstrapServers": "d:9092"}}
    assert group_owner(younger, [older], Policy()) == "ops/p"


def test_a_loss_is_accepted_by_topic_and_id() -> None:
    assert accepted_losses({ACCEPTED_LOSSES_ANNOTATION: '{"flights": "old", "weather": "older"}', "other": "{}"}) == {
        "flights": "old",
        "weather": "older",
    }


@pytest.mark.parametrize(
    "text", [None, "", "nonsense", '{"flights": ', "[]", '["flights"]', '"flights"', "null", "true", "1", "[" * 100_000]
)
def test_an_invalid_annotation_accepts_no_loss(text: str | None) -> None:
    assert accepted_losses({} if text is None else {ACCEPTED_LOSSES_ANNOTATION: text}) == {}


def test_topic_ids_that_are_not_strings_are_converted() -> None:
    assert accepted_losses({ACCEPTED_LOSSES_ANNOTATION: '{"flights": 7}'}) == {"flights": "7"}


# -- topics that several pipelines declare

OLDER, YOUNGER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
IN = {"name": "in", "partitions": 3}
BROKERS = {"kafka": MINIMAL["kafka"]}


def declares(*topics: Any, name: str = "p", created: str = YOUNGER, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"namespace": "ops", "name": name, "creationTimestamp": created},
        "spec": {**MINIMAL, "topics": list(topics), **spec},
    }


def older(*topics: Any, name: str = "older", **spec: Any) -> dict[str, Any]:
    return declares(*topics, name=name, created=OLDER, **spec)


def before(resource: dict[str, Any], *rivals: dict[str, Any]) -> dict[str, str]:
    pipeline, violations = parse_resource(resource)
    assert pipeline is not None, violations
    return conflicting_declarations(resource, pipeline, rivals, Policy())


OTHERWISE = [
    {**IN, "partitions": 4},
    {**IN, "replicationFactor": 4},
    {**IN, "config": {"retention.ms": "1"}},
    {**IN, "config": {"min.insync.replicas": "3"}},
]
ALIKE = [
    IN,
    {**IN, "replicationFactor": 3},
    {**IN, "config": {"min.insync.replicas": "2"}},
    {**IN, "deletionPolicy": "Delete", "driftPolicy": "alert"},
]


@pytest.mark.parametrize("theirs", OTHERWISE)
def test_the_declaration_of_the_older_pipeline_has_precedence(theirs: dict[str, Any]) -> None:
    assert before(declares(IN), older(theirs)) == {"in": "ops/older"}
    assert before(older(IN), declares(theirs, name="younger")) == {}


@pytest.mark.parametrize("theirs", ALIKE)
def test_an_equal_declaration_in_other_words_is_no_conflict(theirs: dict[str, Any]) -> None:
    assert before(declares(IN), older(theirs), older({"name": "more", "partitions": 1}, theirs, name="other")) == {}


def test_the_same_declaration_under_other_tolerated_failures_is_a_conflict() -> None:
    assert before(declares(IN), older(IN, tolerate={"brokerFailures": 2})) == {"in": "ops/older"}
    assert before(declares(IN), older(IN, guarantee="at-most-once")) == {"in": "ops/older"}
    assert before(declares(IN), older(IN, guarantee="at-least-once", tolerate={"brokerFailures": 1})) == {}


def test_declarations_conflict_only_within_one_cluster() -> None:
    theirs = OTHERWISE[0]
    assert before(declares(IN), older(theirs, kafka={"bootstrapServers": "other:9092"})) == {}
    assert before(declares(IN), older(theirs, kafka={"bootstrapServers": "other:9092, k:9092"})) == {"in": "ops/older"}


def test_an_invalid_declaration_is_no_conflict() -> None:
    for refused in (
        older(OTHERWISE[0], guarantee="once"),
        older({"name": "in", "partitions": 0}),
        older({"name": "in"}),
        older(7, IN),
    ):
        assert parse_resource(refused)[0] is None
        assert before(declares(IN), refused) == {}


def test_only_the_oldest_valid_declaration_decides() -> None:
    """The second pipeline is in conflict with the first, so the third has no conflict with the second."""
    first, second = older(IN, name="a"), older(OTHERWISE[0], name="b")
    assert before(second, first) == {"in": "ops/a"}
    assert before(declares(IN), first, second) == {}
    assert before(declares(OTHERWISE[0]), first, second) == {"in": "ops/a"}
    assert before(declares(IN), second) == {"in": "ops/b"}, "control: without the first, the second decides"
    invalid = older({**IN, "partitions": 3}, name="a", guarantee="once")
    assert before(declares(IN), invalid, second) == {"in": "ops/b"}, "an invalid one decides nothing"


def test_a_pipeline_that_the_platform_refuses_decides_nothing() -> None:
    refused = older(OTHERWISE[0])
    resource = declares(IN)
    pipeline, _ = parse_resource(resource)
    assert pipeline is not None
    assert conflicting_declarations(resource, pipeline, [refused], Policy()) == {"in": "ops/older"}
    assert conflicting_declarations(resource, pipeline, [refused], Policy(own_namespace="ops")) == {}


def test_the_oldest_rival_is_named_for_each_topic_separately() -> None:
    more = {"name": "more", "partitions": 1}
    rivals = [
        older(OTHERWISE[0], {**more, "partitions": 2}, name="b"),
        older(OTHERWISE[1], name="a"),
        declares(OTHERWISE[2], name="z"),
    ]
    assert before(declares(IN, more), *rivals) == {"in": "ops/a", "more": "ops/b"}
    assert before(declares(IN, more, name="zz"), rivals[2]) == {"in": "ops/z"}


def test_a_pipeline_is_not_its_own_rival() -> None:
    same = declares(IN)
    assert before(same, declares(OTHERWISE[0])) == {}


def test_after_an_invalid_edit_the_last_valid_spec_is_compared() -> None:
    """Even if the invalid edit has the same text as the rival."""
    valid, rival = declares(IN), older(OTHERWISE[0])
    edited = declares(
        OTHERWISE[0], spark={"conf": {"spark.kubernetes.x": "y"}}, kafka={"bootstrapServers": "elsewhere:9092"}
    )
    pipeline = accepted_pipeline(edited, Status(accepted=Accepted(generation=1, hash="0", spec=valid["spec"])))
    assert pipeline is not None
    assert parse_resource(edited)[0] is None
    assert conflicting_declarations(edited, pipeline, [rival], Policy()) == {"in": "ops/older"}


def edited(resource: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The pipeline with its spec accepted, and then changed."""
    return {**resource, "status": {"accepted": {"spec": resource["spec"]}}, "spec": {**resource["spec"], **spec}}


def test_an_edit_that_has_no_effect_conflicts_with_no_other_pipeline() -> None:
    """Such as one that is refused. The spec in force counts, also if the edit no longer declares the topic."""
    assert before(declares(IN), edited(older(), topics=[OTHERWISE[0]])) == {}
    assert before(declares(IN), edited(older(IN), topics=[OTHERWISE[0]])) == {}
    assert before(declares(IN), edited(older(IN, kafka={"bootstrapServers": "other:9092"}), topics=[], **BROKERS)) == {}
    edits: tuple[dict[str, Any], ...] = (
        {"topics": []},
        {"guarantee": "twice"},
        {"kafka": {"bootstrapServers": "other:9092"}},
    )
    for edit in edits:
        assert before(declares(IN), edited(older(OTHERWISE[0]), **edit)) == {"in": "ops/older"}


def test_an_edit_that_has_no_effect_takes_no_group_of_another_pipeline() -> None:
    theirs, ours = resource("p", group="g", brokers="other:9092"), resource("q", "2026-01-02T00:00:00Z", group="g")
    moved = edited(theirs, kafka=ours["spec"]["kafka"])
    assert group_owner(ours, [moved], Policy()) is None
    assert group_owner(ours, [{**moved, "status": {"accepted": None}}], Policy()) == "ops/p", "control: it was new"
    leaves = edited(resource("p", group="g"), kafka=theirs["spec"]["kafka"])
    assert group_owner(ours, [leaves], Policy()) == "ops/p"


def test_a_topic_is_shared_by_the_spec_in_force_and_by_an_edit() -> None:
    """What is deleted does not come back, so a topic stays that one of both needs."""
    ours = declares(IN)
    assert shared_topics(ours, [edited(older(IN), topics=[])]) == {"in"}
    assert shared_topics(ours, [edited(older(), topics=[IN])]) == {"in"}
    assert shared_topics(edited(ours, topics=[]), [older(IN)]) == {"in"}
    assert shared_topics(ours, [edited(older(), transform={})]) == set()
    assert shared_topics(ours, [edited(older(IN, kafka={"bootstrapServers": "other:9092"}))]) == set()


_TOPICS = st.lists(
    st.sampled_from([*OTHERWISE, *ALIKE, {"name": "more", "partitions": 1}, {"name": "in"}, {"partitions": 1}, 7]),
    max_size=2,
)
_SPECS = st.fixed_dictionaries(
    {"guarantee": st.sampled_from(["at-most-once", "exactly-once"])},
    optional={"tolerate": st.sampled_from([{}, {"brokerFailures": 0}, {"brokerFailures": 1}])},
)


@settings(max_examples=150)
@given(_TOPICS, _SPECS, st.lists(st.tuples(_TOPICS, _SPECS), min_size=1, max_size=3), st.booleans())
def test_comparing_text_first_gives_the_same_conflicts_as_parsing_each(
    ours: list[Any], spec: dict[str, Any], theirs: list[tuple[list[Any], dict[str, Any]]], as_ours: bool
) -> None:
    resource = declares(*ours, **spec)
    pipeline, _ = parse_resource(resource)
    if pipeline is None:
        return
    rivals = [older(*topics, name=f"r{n}", **(spec if as_ours else other)) for n, (topics, other) in enumerate(theirs)]
    conflicts = conflicting_declarations(resource, pipeline, rivals, Policy())
    with patch.object(declared, "_same_text", lambda *_: False):
        assert conflicting_declarations(resource, pipeline, rivals, Policy()) == conflicts


def test_specs_with_the_same_text_are_not_parsed() -> None:
    resource = declares(IN)
    pipeline, _ = parse_resource(resource)
    assert pipeline is not None
    rivals = [older(IN, name=f"r{n}") for n in range(50)]
    with patch.object(declared, "parse_resource", wraps=parse_resource) as parse:
        assert conflicting_declarations(resource, pipeline, rivals, Policy()) == {}
    assert parse.call_count == 1


def test_topic_names_are_read_from_any_spec_even_an_invalid_one() -> None:
    assert topics_of(declares(IN, {"name": "more"})) == {"in", "more"}
    assert topics_of(declares(IN, 7, {"partitions": 1}, {"name": 7}, None)) == {"in", "7"}
    assert (
        topics_of({"metadata": {}})
        == topics_of({"spec": {"topics": None}})
        == topics_of({"spec": {"topics": "in"}})
        == frozenset()
    )


def test_suspending_changes_nothing_else() -> None:
    pipeline, _ = parse_resource(declares(IN))
    assert pipeline is not None
    paused = suspended(pipeline)
    assert (paused.spec.suspend, pipeline.spec.suspend) == (True, False)
    assert paused == parse_resource(declares(IN, suspend=True))[0]
    assert suspended(paused) == paused


# ------------------------------------------------ transforms and schemas that cannot run


def pipeline(**changes: Any) -> dict[str, Any]:
    meta = {"namespace": "ops", "name": "p"}
    spec = {**MINIMAL, **changes}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def accepted(of: dict[str, Any]) -> Status:
    return Status(accepted=Accepted(generation=1, hash="h", spec=of["spec"]))


WRONG_SQL = {"sql": "SELECT key,\n  valeu AS value FROM source"}
PLACE = "line 2, column 3 of spec.transform.sql: there is no column valeu; did you mean value?"


def test_a_new_pipeline_with_sql_that_cannot_run_is_never_valid() -> None:
    assert declaration(pipeline(transform=WRONG_SQL), Status(), Policy()) == NeverValid(PLACE)
    assert isinstance(declaration(pipeline(), Status(), Policy()), Declaration)


def test_an_edit_to_sql_that_cannot_run_leaves_the_last_valid_spec() -> None:
    declared_ = declaration(pipeline(transform=WRONG_SQL), accepted(pipeline()), Policy())
    assert isinstance(declared_, Declaration)
    assert declared_.invalid == PLACE
    assert declared_.pipeline == parse_resource(pipeline())[0]


def test_sql_that_was_accepted_once_is_not_judged_again() -> None:
    """Neither after an upgrade of the operator nor after another edit. Control: after an edit of the source's format,
    on which the columns depend, it is.
    """
    running = pipeline(transform=WRONG_SQL)
    edited = pipeline(transform=WRONG_SQL, trigger={"interval": "3s"})
    for resource_ in (running, edited):
        declared_ = declaration(resource_, accepted(running), Policy())
        assert isinstance(declared_, Declaration)
        assert declared_.invalid is None
    source = {**MINIMAL["source"], "format": "string"}
    declared_ = declaration(pipeline(transform=WRONG_SQL, source=source), accepted(running), Policy())
    assert isinstance(declared_, Declaration)
    assert declared_.invalid == PLACE


def test_a_schema_that_spark_refuses_is_refused() -> None:
    source = {**MINIMAL["source"], "format": "json", "schema": "id INTT"}
    assert declaration(pipeline(source=source), Status(), Policy()) == NeverValid(
        "line 1, column 4 of spec.source.schema = 'id INTT': Spark has no type INTT; did you mean INT?"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": {"sql": "FROM source |> SELECT nothing"}},  # not read
        {"transform": {"sql": "SELECT key FROM source"}},  # the sink's columns are for the job
        {"topics": [{"name": "flihgts", "partitions": 1}]},  # probably misspelt, and not certainly
    ],
)
def test_what_is_not_certain_is_left_to_the_job(changes: dict[str, Any]) -> None:
    declared_ = declaration(pipeline(**changes), Status(), Policy())
    assert isinstance(declared_, Declaration)
    assert declared_.invalid is None
