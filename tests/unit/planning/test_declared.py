"""Which of two pipelines has the positions that both name."""

from __future__ import annotations

from typing import Any

from ackwright.planning.declared import group_of, owner_of_group


def resource(name: str, created: str = "2026-01-01T00:00:00Z", group: str | None = None, brokers: str = "a:9092,b:9092") -> dict[str, Any]:
    source = {"topics": ["t"], **({"groupId": group} if group else {})}
    meta = {"namespace": "ops", "name": name, "creationTimestamp": created}
    return {"metadata": meta, "spec": {"source": source, "kafka": {"bootstrapServers": brokers}}}


def test_a_group_is_named_or_made_of_namespace_and_name() -> None:
    assert group_of(resource("p")) == "ops.p"
    assert group_of(resource("p", group="g")) == "g"
    assert group_of({"metadata": {"namespace": "ops", "name": "p"}, "spec": {"source": "nonsense"}}) == "ops.p"


def test_the_older_of_two_has_the_positions() -> None:
    older, younger = resource("p"), resource("q", "2026-01-02T00:00:00Z", group="ops.p")
    assert owner_of_group(younger, [older, younger]) == "ops/p"
    assert owner_of_group(older, [older, younger]) is None


def test_of_two_made_at_once_one_has_them() -> None:
    twins = [resource("p", group="g"), resource("q", group="g")]
    assert [owner_of_group(t, twins) for t in twins] == [None, "ops/p"]


def test_another_cluster_has_other_positions() -> None:
    older, younger = resource("p", group="g"), resource("q", "2026-01-02T00:00:00Z", group="g", brokers="c:9092")
    assert owner_of_group(younger, [older, younger]) is None
    assert owner_of_group(resource("q", "2026-01-02T00:00:00Z", group="g", brokers="b:9092"), [older]) == "ops/p"
