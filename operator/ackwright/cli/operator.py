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

    Its settings come from ACKWRIGHT_* variables (docs/operator.md).
    """
    import kopf

    from ackwright.clients.kubernetes import connect
    from ackwright.controller import Controller
    from ackwright.handlers import registry
    from ackwright.settings import from_environment

    own = _NAMESPACE.read_text().strip() if _NAMESPACE.exists() else "default"
    watched = () if all_namespaces else namespaces
    given = {"ACKWRIGHT_OWN_NAMESPACE": own, **({"ACKWRIGHT_NAMESPACES": ",".join(watched)} if watched else {}), **os.environ}
    settings = from_environment(given)
    if not settings.namespaces and not all_namespaces:
        settings = from_environment({**given, "ACKWRIGHT_NAMESPACES": own})
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    controller = Controller(connect(), settings)
    # The sentinel's Lease is in the operator's own namespace, which is watched for it alone unless it is among the others.
    kopf.run(
        registry=registry(controller),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=sorted({*settings.namespaces, settings.own_namespace}) if settings.namespaces else (),
    )
    return 0
