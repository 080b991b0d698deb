"""A problem appears as a condition with its cause and remedy, and the condition recovers when the cause is removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from e2e.pipelines import NAMESPACE, Installation, pipeline
from lab.brokers import SECURITY
from lab.processes import LabError
from waiting import wait_until


def test_invalid_specs_are_refused_or_leave_the_last_valid_one_running(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        driver = p.driver()
        valid = dict(p.document["spec"])
        with pytest.raises(LabError, match="transform"):
            p.apply(transform={"sql": "SELECT 1", "python": {"module": "a", "function": "b"}})
        p.document["spec"] = dict(valid)
        assert p.driver() is not None
        assert driver is not None
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]


def test_an_edit_that_only_the_operator_can_refuse_leaves_the_last_valid_spec_running(installed: Installation) -> None:
    """The API server accepts the edit: it knows neither Spark's SQL nor the columns of the source."""
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        driver, valid = p.driver(), dict(p.document["spec"])
        assert driver is not None
        p.apply(transform={"sql": "SELECT tailnum AS key, dep_delai FROM source"})
        condition = p.wait_for("Stalled", "True", "InvalidSpec")
        assert "dep_delai" in condition["message"]
        p.produce_flights(1000)
        p.wait_until_delivered()
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]
        assert p.status()["accepted"]["spec"]["transform"] == valid["transform"]
        p.apply(transform=valid["transform"])
        p.wait_for("Ready", "True")
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]


def test_an_edit_that_the_job_refuses_never_drains_the_driver(installed: Installation) -> None:
    """Nothing but the job can load a Python transform. A correct edit afterwards replaces the driver."""
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        p.produce_flights(1000)
        driver, valid = p.driver(), dict(p.document["spec"])
        assert driver is not None
        p.apply(transform={"python": {"module": "no_such_module", "function": "transform"}})
        p.wait_for("Reconciling", "True", "CheckingEdit")
        condition = p.wait_for("Stalled", "True", "InvalidTransform")
        assert "no_such_module" in condition["message"]
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]
        p.produce_flights(1000, skip=1000)
        p.wait_until_delivered()
        p.apply(transform={"sql": valid["transform"]["sql"].replace("> 15", ">= 15")})
        p.wait_for("Ready", "True")
        assert p.driver()["metadata"]["uid"] != driver["metadata"]["uid"]  # type: ignore[index]
        assert not installed.get("pods", labels=f"ackwright.io/pipeline={p.name},ackwright.io/role=check")


def test_an_edit_that_does_not_deliver_in_time_is_rolled_back(installed: Installation, tmp_path: Path) -> None:
    """Spark can build the query, and the first record makes it fail."""
    with pipeline(installed, "exactly-once", rollback={"after": "3m"}) as p:
        p.wait_for("Ready", "True")
        p.produce_flights(1000)
        p.wait_until_delivered()
        refused = {"sql": "SELECT tailnum AS key, raise_error('no') AS origin FROM source"}
        p.apply(transform=refused)
        # The driver of the valid spec would deliver what comes before.
        wait_until(lambda: p.status()["accepted"]["spec"]["transform"] == refused, "the edit is in force", 400)
        p.produce_flights(1000, skip=1000)
        p.wait_for("RolledBack", "True")
        valid = p.status()["accepted"]["spec"]["transform"]
        assert valid != p.document["spec"]["transform"]
        p.wait_until_delivered()
        p.document["spec"]["transform"] = valid  # what the records were transformed with
        p.wait_until_delivered_and_audit(tmp_path)


def test_wrong_credentials_are_reported_until_they_are_corrected(installed: Installation) -> None:
    user, password = next(iter(SECURITY.users.items()))
    secure = {
        "bootstrapServers": "kafka-1:9094,kafka-2:9094,kafka-3:9094",
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}},
        "tls": {"caSecret": {"name": "kafka-ca"}},
    }
    ca = installed.cluster.brokers.ca_file.read_text()

    def apply_secret(name: str, **data: str) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        installed.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})

    with pipeline(installed, "exactly-once", kafka=secure) as p:
        condition = p.wait_for("TopicsReady", "Unknown", "AuthenticationFailed")
        assert "kafka-user" in condition["message"] or "kafka-ca" in condition["message"]
        apply_secret("kafka-ca", **{"ca.crt": ca})
        apply_secret("kafka-user", username=user, password="wrong")
        p.wait_for("Ready", "False", "AuthenticationFailed")
        assert "wrong" not in str(p.status())
        apply_secret("kafka-user", username=user, password=password)
        p.wait_for("Ready", "True")
        assert password not in str(p.status())


def test_unreachable_brokers_are_reported_until_they_are_back(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        for host in ("kafka-1", "kafka-2", "kafka-3"):
            installed.cluster.cut(host)
        try:
            p.wait_for("TopicsReady", "Unknown", "BrokersUnreachable")
            assert p.condition("GuaranteeMet")["status"] == "Unknown"
        finally:
            for host in ("kafka-1", "kafka-2", "kafka-3"):
                installed.cluster.reconnect(host)
        installed.cluster.brokers.wait_until_in_sync(120)
        p.produce_flights(1000)
        p.wait_until_delivered()
        p.wait_for("Ready", "True", "Delivering")


def test_a_record_that_halts_the_driver_again_and_again_keeps_the_pipeline_not_ready(installed: Installation) -> None:
    """Between two attempts the driver runs, and its pod is ready."""
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        producer = Producer({"bootstrap.servers": installed.kafka, "enable.idempotence": True})
        producer.produce(p.source, b"not JSON")
        assert producer.flush(60) == 0
        first = p.wait_for("Ready", "False", "MalformedRecord")
        wait_until(lambda: p.status()["driver"]["restarts"] >= 3, "the driver has halted three times", 400)
        last = p.wait_for("Ready", "False", "MalformedRecord")
        assert last["lastTransitionTime"] == first["lastTransitionTime"]
        p.apply(source=p.document["spec"]["source"] | {"onMalformed": "skip"})
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered()
