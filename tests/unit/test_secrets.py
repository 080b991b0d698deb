"""The content of Secrets appears neither in rendered objects nor in errors nor in stack traces.

In a cluster: tests/e2e.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.spec import parse
from ackwright.cli import main
from ackwright.clients.kafka import Kafka, client_settings
from ackwright.errors import AckwrightError, InvalidSpec
from ackwright.render.jobspec import cluster
from ackwright_stream import connection, credentials
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Cluster, Reason
from e2e.leaks import leaks
from unit.render.pipelines import MINIMAL, declared, rendered

PLANTED = "pl4nted/unit+test~x"
SECURE = {
    "bootstrapServers": "127.0.0.1:1",
    "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}},
    "tls": {"caSecret": {"name": "kafka-ca"}},
}


def written(directory: Path, **files: str | bytes) -> Path:
    """Secrets as files: a login that is planted, an authority's certificate that is none."""
    content = {"username": "ann", "password": PLANTED, "ca": f"no certificate, but {PLANTED}", **files}
    for name, text in content.items():
        file = directory / ("kafka-ca/ca.crt" if name == "ca" else f"kafka-user/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    return directory


def reached(directory: Path, **files: str | bytes) -> Cluster:
    return cluster(declared(MINIMAL | {"kafka": SECURE}).spec.kafka, str(written(directory, **files)))


def raised(call: Callable[[], object]) -> str:
    """Returns the error that the call raises as text: reason, message, stack trace and causes."""
    with pytest.raises((AckwrightError, JobError)) as caught:
        call()
    error = caught.value
    assert isinstance(error, AckwrightError | JobError)
    return f"{error.reason} {error} {error!r} {''.join(traceback.format_exception(error))}"


# -- rendered objects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}], ids=["endless", "bounded"])
def test_objects_and_settings_hold_paths_and_never_values(tmp_path: Path, guarantee: str, trigger: Any) -> None:
    """Nothing that renders reads a Secret: there is nothing to read in these tests, and paths are all that is there."""
    objects = rendered(declared(MINIMAL | {"kafka": SECURE, "guarantee": guarantee, "trigger": trigger}))
    text = json.dumps(objects)
    assert "/etc/ackwright/secrets/kafka-user" in text
    assert "kafka-ca/ca.crt" in text
    assert not any(word in text for word in ("secretKeyRef", "envFrom", '"sasl.password"', '"stringData"'))
    assert leaks({"the connection": repr(reached(tmp_path))}, {"the password": PLANTED}) == []


# -- errors ----------------------------------------------------------------------------------------------------


def test_a_connection_that_cannot_be_set_up_does_not_tell_its_settings(tmp_path: Path) -> None:
    connection_settings = reached(tmp_path)
    assert client_settings(connection_settings)["sasl.password"] == PLANTED, "the control: it has them"
    shown = raised(lambda: Kafka(connection_settings))
    assert "ssl.ca.location" in shown
    assert leaks({"the error": shown}, {"the password": PLANTED}) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [("sasl.mechanism", "NONE"), ("security.protocol", "nonsense"), ("no.such.setting", "x"), ("log_level", "x")],
)
def test_librdkafka_does_not_repeat_the_password_beside_a_setting_that_it_refuses(
    tmp_path: Path, setting: str, value: str
) -> None:
    connection_settings = reached(tmp_path)
    wrong = Cluster(
        connection_settings.bootstrap_servers,
        {**connection_settings.librdkafka, setting: value},
        connection_settings.java,
        connection_settings.credentials,
    )
    shown = raised(lambda: Kafka(wrong))
    assert "cannot be set up" in shown
    assert leaks({"the error": shown}, {"the password": PLANTED}) == []


@pytest.mark.parametrize(
    "password",
    [f"{PLANTED}\n", f'{PLANTED}"tail', f"{PLANTED}\\n", f"{PLANTED}\r\nmore", PLANTED.encode() + b"\xff\xfe"],
    ids=["newline", "quote", "backslash", "lines", "binary"],
)
def test_a_password_that_jaas_cannot_hold_is_refused_and_not_repeated(tmp_path: Path, password: str | bytes) -> None:
    """Java's clients would fail with a part of it in their message
    (test_control_a_refused_password_would_break_the_jaas_configuration).
    """
    connection_settings = reached(tmp_path, password=password)
    for ask in (lambda: client_settings(connection_settings), lambda: connection.settings(connection_settings)):
        shown = raised(ask)
        assert shown.startswith(Reason.AUTHENTICATION_FAILED)
        assert "the password" in shown
        assert leaks({"the error": shown}, {"the password": PLANTED}) == []


def test_a_login_is_taken_as_it_is_written(tmp_path: Path) -> None:
    """Spaces too: Java's clients would not leave them out."""
    connection_settings = reached(tmp_path, password=" p ä $ ; ${x} ", username="ann")
    assert credentials.login(connection_settings.credentials or "") == {
        "sasl.username": "ann",
        "sasl.password": " p ä $ ; ${x} ",
    }


PLACES = [
    {"auth": PLANTED},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": PLANTED}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "s", "password": PLANTED}}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "s"}, "password": PLANTED}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "s"}, "username": {"password": PLANTED}}},
    {"auth": [{"password": PLANTED}]},
    {"sasl": {"password": PLANTED}},
    {"password": PLANTED},
    {"jaasConfig": f'PlainLoginModule required password="{PLANTED}";'},
    {"tls": {"caSecret": PLANTED}},
    {"tls": {"privateKey": PLANTED}},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_password_in_a_spec_is_refused_and_not_repeated(place: dict[str, Any]) -> None:
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p", "namespace": "ops"},
    }
    with pytest.raises(InvalidSpec) as caught:
        parse({**document, "spec": MINIMAL | {"kafka": {"bootstrapServers": "k:9092", **place}}})
    assert leaks({"the error": str(caught.value)}, {"the password": PLANTED}) == []


# -- the command line ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["check"], ["run", "--dry-run"]], ids=lambda c: c[0])
def test_the_command_line_tells_no_password_not_even_in_a_stack_trace(
    tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "p.yaml"
    meta = {"name": "p", "namespace": "ops"}
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": meta,
        "spec": MINIMAL | {"kafka": SECURE, "transform": {"sql": "SELECT key, value FROM source"}},
    }
    file.write_text(yaml.safe_dump(document))
    with caplog.at_level(logging.DEBUG):
        assert (
            main.invoke(
                [command[0], "-v", *command[1:], "-f", str(file), "--secrets", str(written(tmp_path / "secrets"))]
            )
            != 0
        )
    printed = capfd.readouterr()
    output = printed.out + printed.err + caplog.text
    assert "Traceback" in output
    assert "ssl.ca.location" in output, "the command reached the connection"
    assert leaks({"what is printed": output}, {"the password": PLANTED}) == []


# -- whose Secrets ---------------------------------------------------------------------------------------------

REFERENCES = [
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "s", "namespace": "other"}}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "other/s"}}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "../s"}}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": ".."}}},
    {"auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "s?x=1"}}},
    {"tls": {"caSecret": {"name": "s", "namespace": "other"}}},
    {"tls": {"caSecret": {"name": "s", "key": "../../x"}}},
    {"tls": {"caSecret": {"name": "s", "key": ".."}}},
    {"tls": {"caSecret": {"name": "other/s"}}},
]


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_nothing_of_another_namespace_can_be_named(reference: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.kafka"):
        declared(MINIMAL | {"kafka": {"bootstrapServers": "k:9092", **reference}})
