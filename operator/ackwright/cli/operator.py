"""ackwright operator: the operator itself, in a pod or on a laptop."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


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
    from ackwright.settings import from_environment

    own = _NAMESPACE.read_text().strip() if _NAMESPACE.exists() else "default"
    environment = {"ACKWRIGHT_OWN_NAMESPACE": own, "ACKWRIGHT_NAMESPACES": own, **os.environ}
    if namespaces or all_namespaces:
        environment["ACKWRIGHT_NAMESPACES"] = "" if all_namespaces else ",".join(namespaces)
    settings = from_environment(environment)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    kopf.run(
        registry=registry(Controller(connect(), settings)),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )
    return 0
