"""ackwright operator: the operator itself, in a pod or on a laptop."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ackwright.settings import OperatorSettings, from_environment

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def chosen(namespaces: Sequence[str], all_namespaces: bool, own: str, environment: Mapping[str, str]) -> OperatorSettings:
    """The settings: from the options, else from the environment, else the defaults, which are to watch the operator's own namespace."""
    found = {"ACKWRIGHT_OWN_NAMESPACE": own, "ACKWRIGHT_NAMESPACES": own, **environment}
    if namespaces or all_namespaces:
        found["ACKWRIGHT_NAMESPACES"] = "" if all_namespaces else ",".join(namespaces)
    return from_environment(found)


@click.command()
@click.option("--namespace", "namespaces", multiple=True, help="Watch this namespace; may be repeated. Default: the operator's own.")
@click.option("--all-namespaces", is_flag=True, help="Watch every namespace.")
def operator(*, namespaces: tuple[str, ...], all_namespaces: bool) -> int:
    """Run the operator until it is told to end.

    Its settings come from ACKWRIGHT_* variables (docs/operator.md); what is given here counts more.
    """
    import kopf

    from ackwright.clients.kubernetes import connect
    from ackwright.controller import Controller
    from ackwright.handlers import registry

    own = _NAMESPACE.read_text().strip() if _NAMESPACE.exists() else "default"
    settings = chosen(namespaces, all_namespaces, own, os.environ)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    kopf.run(
        registry=registry(Controller(connect(), settings)),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )
    return 0
