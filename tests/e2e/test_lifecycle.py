"""The operations of users: suspend, resume, edit, change the guarantee, delete, recreate, and run once."""

from __future__ import annotations

from pathlib import Path

from ackwright_stream.admin_client import AdminClient
from e2e.pipelines import Installation, Pipeline, pipeline, wait_until

FLIGHTS = 8_000


def children(p: Pipeline) -> list[str]:
    kinds = "statefulsets,jobs,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,pods"
    return sorted(
        f"{o['kind']}/{o['metadata']['name']}"
        for o in p.installation.get(kinds, labels=f"ackwright.io/pipeline={p.name}")
    )


def test_suspend_resume_edit_and_converge(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True")
        first = p.driver()
        assert first is not None

        p.apply(suspend=True)
        p.wait_for("Ready", "False", "Suspended")
        assert p.driver() is None
        assert p.condition("Reconciling")["status"] == "False"
        p.produce_flights(FLIGHTS, skip=FLIGHTS)

        p.apply(suspend=False, trigger={"interval": "300ms"})
        p.wait_for("Ready", "True")
        p.wait_until_delivered_and_audit(tmp_path)

        # The objects of the first configuration are removed, and the operator writes nothing more.
        wait_until(lambda: sum(c.startswith("ConfigMap/") for c in children(p)) == 2, "one configuration is left", 60)
        before = p.status()
        p.apply(tolerate={"brokerFailures": 1})  # the default: nothing changes for the job
        p.wait_for("Ready", "True")
        assert p.status()["driver"]["uid"] == before["driver"]["uid"]


def test_the_image_is_upgraded(installed: Installation, tmp_path: Path) -> None:
    newer = f"{installed.spark.reference}-newer"
    installed.cluster.tag(installed.spark, newer)
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True")
        p.apply(spark={**p.document["spec"]["spark"], "image": newer})
        p.produce_flights(FLIGHTS, skip=FLIGHTS)
        p.wait_for("Ready", "True")
        p.wait_until_delivered_and_audit(tmp_path)
        for pod in (p.driver(), *p.executors()):
            assert pod is not None
            assert [c["image"] for c in pod["spec"]["containers"]] == [newer]


def test_the_guarantee_changes_in_both_directions_without_loss(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "at-least-once") as p:
        p.wait_for("TopicsReady", "True")
        for n, guarantee in enumerate(("at-least-once", "exactly-once", "at-least-once")):
            p.apply(guarantee=guarantee)
            p.produce_flights(FLIGHTS, skip=n * FLIGHTS)
            p.wait_for("Ready", "True")
            p.wait_until_delivered()
        p.wait_until_delivered_and_audit(tmp_path)


def test_a_deleted_and_recreated_pipeline_resumes_from_its_positions(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_until_delivered()
        p.delete()
        wait_until(lambda: children(p) == [], "its children are deleted", 120)
        assert p.source in AdminClient({"bootstrap.servers": installed.kafka}).list_topics(timeout=10).topics, (
            "topics are kept"
        )
        p.produce_flights(FLIGHTS, skip=FLIGHTS)
        p.apply()
        p.wait_for("Ready", "True")
        p.wait_until_delivered_and_audit(tmp_path)


def test_a_bounded_run_completes_and_its_topics_are_deleted_with_it(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once", trigger={"availableNow": True}) as p:
        for topic in p.document["spec"]["topics"]:
            topic["deletionPolicy"] = "Delete"
        p.apply()
        p.wait_for("Ready", "True", "Completed")  # of an empty source
        p.produce_flights(FLIGHTS)
        p.apply(trigger={"availableNow": True}, source={**p.document["spec"]["source"], "maxOffsetsPerTrigger": 3000})
        wait_until(lambda: p.lag() == 0, "the second run delivers")
        p.wait_for("Ready", "True", "Completed")
        p.wait_until_delivered_and_audit(tmp_path)
        p.delete()
        present = AdminClient({"bootstrap.servers": installed.kafka}).list_topics(timeout=10).topics
        assert not {p.source, p.sink} & set(present)


def test_a_run_starts_each_minute_and_leaves_after_its_time_to_live(installed: Installation, tmp_path: Path) -> None:
    trigger = {"availableNow": True, "schedule": "* * * * *", "ttlSecondsAfterFinished": 1}
    with pipeline(installed, "exactly-once", trigger=trigger) as p:
        last_run = "0"
        for n in range(2):
            p.wait_for("Ready", "True", "Scheduled")
            p.produce_flights(FLIGHTS, skip=n * FLIGHTS)
            p.wait_until_delivered()
            p.wait_for("Ready", "True", "Scheduled")
            started = p.status()["schedule"]["lastScheduleTime"]
            assert started > last_run, "another run has delivered"
            last_run = started
        p.wait_until_delivered_and_audit(tmp_path)
        left = ("Job/", "Pod/")
        wait_until(lambda: not any(c.startswith(left) for c in children(p)), "the Job and its pods are deleted", 300)
