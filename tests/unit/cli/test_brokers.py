"""The option --bootstrap-servers replaces the broker addresses of the file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from ackwright.cli import main
from ackwright.cli.brokers import with_bootstrap_servers
from ackwright.planning.guarantees import values
from ackwright.planning.plan import load, plan
from ackwright_stream.jobspec import ExitCode

EXAMPLES = Path(__file__).parents[3] / "examples"
SECURED, TWO_CLUSTERS = EXAMPLES / "secured.yaml", EXAMPLES / "two-clusters.yaml"


def test_the_address_alone_is_replaced() -> None:
    declared = load(SECURED)[0]
    replaced = with_bootstrap_servers(declared, "broker.example:9094")
    assert replaced.spec.kafka.bootstrap_servers == "broker.example:9094"
    assert (replaced.spec.kafka.auth, replaced.spec.kafka.tls) == (declared.spec.kafka.auth, declared.spec.kafka.tls)
    assert with_bootstrap_servers(declared, None) == declared


def test_each_cluster_has_an_option_for_its_address() -> None:
    declared = load(TWO_CLUSTERS)[0]
    own = declared.spec.sink.kafka
    assert own is not None
    of_source = with_bootstrap_servers(declared, "broker.example:9094")
    assert of_source.spec.sink == declared.spec.sink
    both = plan(with_bootstrap_servers(declared, "broker.example:9094", "other.example:9095"))
    assert both.sink_connection is not None
    assert values(both.connection.settings)["bootstrap.servers"] == "broker.example:9094"
    assert values(both.sink_connection.settings)["bootstrap.servers"] == "other.example:9095"
    assert both.sink_connection.credentials_secret == (own.auth and own.auth.credentials_secret.name)
    assert with_bootstrap_servers(declared, None) == declared


def test_the_sinks_option_is_refused_without_a_cluster_of_its_own() -> None:
    with pytest.raises(click.BadParameter, match="has no bootstrapServers"):
        with_bootstrap_servers(load(SECURED)[0], None, "other.example:9095")


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="must be host:port"):
        with_bootstrap_servers(load(SECURED)[0], "kafka")


@pytest.mark.parametrize("option", ["--bootstrap-servers", "--sink-bootstrap-servers"])
@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (["", "-v"], "the value is empty"),  # "$KAFKA"
        (["-v"], "the value is missing: -v is the next option"),  # $KAFKA
        ([], "requires an argument"),  # $KAFKA at the end of the line
    ],
)
def test_a_value_that_an_unset_variable_leaves_empty_is_named(
    option: str, rest: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["check", "-f", str(TWO_CLUSTERS), option, *rest]) == ExitCode.INVALID
    error = capsys.readouterr().err
    assert option in error
    assert message in error
    assert "check that the variable is set" in error


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
