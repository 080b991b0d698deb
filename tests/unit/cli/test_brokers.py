"""--bootstrap-servers: the file's brokers by the address at which this machine reaches them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from ackwright.cli import main
from ackwright.cli.brokers import reached
from ackwright.planning.plan import load, plan
from ackwright_stream.jobspec import ExitCode

SECURED = Path(__file__).parents[3] / "examples" / "secured.yaml"


def test_the_address_alone_is_replaced() -> None:
    declared = load(SECURED)[0]
    found = reached(declared, "broker.example:9094")
    assert found.spec.kafka.bootstrap_servers == "broker.example:9094"
    assert (found.spec.kafka.auth, found.spec.kafka.tls) == (declared.spec.kafka.auth, declared.spec.kafka.tls)
    assert reached(declared, None) == declared


def test_the_address_of_the_sink_goes_with_the_brokers_that_it_named() -> None:
    found = load(SECURED)[0]
    sink = found.spec.sink
    assert sink.kafka is not None
    named = sink.model_copy(
        update={"kafka": sink.kafka.model_copy(update={"bootstrap_servers": found.spec.kafka.bootstrap_servers})}
    )
    found = found.model_copy(update={"spec": found.spec.model_copy(update={"sink": named})})
    assert plan(reached(found, "broker.example:9094")) == plan(reached(load(SECURED)[0], "broker.example:9094"))
    assert reached(found, None) == found


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(click.BadParameter):
        reached(load(SECURED)[0], "")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["run", "-f", str(SECURED), "--embedded", "--bootstrap-servers", "a:1"], "give only one of them"),
        (["audit", "secured", "--bootstrap-servers", "a:1"], "is for -f"),
    ],
)
def test_it_is_refused_where_it_means_nothing(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(argv) == ExitCode.INVALID
    assert complaint in capsys.readouterr().err
