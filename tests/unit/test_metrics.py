"""The operator's metrics of pipelines, out of their statuses."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from prometheus_client import generate_latest

from ackwright.metrics import Metrics
from ackwright.worklist import Worklist
from unit.world import World

NOW = World().now()


def exposed(status: Any, now: datetime = NOW) -> str:
    resource = {"metadata": {}, "status": status}
    metrics = Metrics(lambda: {("ops", "p"): resource}, Worklist(), now=lambda: now)
    return generate_latest(metrics.registry).decode()


def test_metrics_name_conditions_and_topics_as_the_status_does() -> None:
    world = World().settle()
    world.kafka.lagging = {1, 2}
    text = exposed(world.settle().resource["status"])
    bad = 'condition="GuaranteeMet",name="p",namespace="ops",reason="NotEnoughReplicas",status="False"'
    assert f"ackwright_pipeline_condition{{{bad}}} 1.0" in text
    assert 'ackwright_topic_in_sync_replicas{namespace="ops",pipeline="p",topic="in"} 1.0' in text
    assert 'ackwright_topic_min_insync_replicas{namespace="ops",pipeline="p",topic="in"} 2.0' in text
    assert 'ackwright_pipelines{condition="GuaranteeMet",status="False"} 1.0' in text


def test_a_pipeline_that_has_not_been_observed_for_long_is_unknown() -> None:
    world = World().settle()
    later = exposed(world.resource["status"], world.now() + timedelta(minutes=16))
    bad = 'condition="Ready",name="p",namespace="ops",reason="NotObserved",status="Unknown"'
    assert f"ackwright_pipeline_condition{{{bad}}} 1.0" in later
    assert 'ackwright_pipelines{condition="GuaranteeMet",status="True"} 0.0' in later
    assert "NotObserved" not in exposed(world.resource["status"], world.now()), "the control"


def test_a_pipeline_of_an_earlier_release_or_without_a_status_does_no_harm() -> None:
    assert "ackwright_topic_replicas{" not in exposed({"topics": "3/3"})
    assert "ackwright_worklist 0.0" in exposed(None)


def test_the_age_of_the_worklist_is_exported_for_changes_and_for_routine() -> None:
    seconds = 0.0
    worklist = Worklist(lambda: seconds)
    worklist.add(("ops", "p"))
    worklist.add(("ops", "q"), 3, changed=False)
    seconds = 10.0
    text = generate_latest(Metrics(dict, worklist).registry).decode()
    assert 'ackwright_worklist_age_seconds{due_for="change"} 10.0' in text
    assert 'ackwright_worklist_age_seconds{due_for="routine"} 7.0' in text
