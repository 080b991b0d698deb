"""The option --bootstrap-servers replaces the broker addresses of the file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from ackwright.cli import main
from ackwright.cli.brokers import with_bootstrap_servers
from ackwright.planning.plan import load, plan
from ackwright_stream.jobspec import ExitCode

SECURED = Path(__file__).parents[3] / "examples" / "secured.yaml"


def test_the_address_alone_is_replaced() -> None:
    declared = load(SECURED)[0]
    replaced = with_bootstrap_servers(declared, "broker.example:9094")
    assert replaced.spec.kafka.bootstrap_servers == "broker.example:9094"
    assert (replaced.spec.kafka.auth, replaced.spec.kafka.tls) == (declared.spec.kafka.auth, declared.spec.kafka.tls)
    assert with_bootstrap_servers(declared, None) == declared


def test_the_sinks_own_address_is_replaced_as_well() -> None:
    pipeline = load(SECURED)[0]
    sink = pipeline.spec.sink
    assert sink.kafka is not None
    named = sink.model_copy(
        update={"kafka": sink.kafka.model_copy(update={"bootstrap_servers": pipeline.spec.kafka.bootstrap_servers})}
    )
    pipeline = pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"sink": named})})
    without_own_address = load(SECURED)[0]
    assert plan(with_bootstrap_servers(pipeline, "broker.example:9094")) == plan(
        with_bootstrap_servers(without_own_address, "broker.example:9094")
    )
    assert with_bootstrap_servers(pipeline, None) == pipeline


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(click.BadParameter):
        with_bootstrap_servers(load(SECURED)[0], "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "-f", str(SECURED), "--embedded", "--bootstrap-servers", "a:1"], "give only one of them"),
        (["audit", "secured", "--bootstrap-servers", "a:1"], "is for -f"),
    ],
)
def test_the_option_is_refused_where_it_has_no_effect(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(argv) == ExitCode.INVALID
    assert message in capsys.readouterr().err
