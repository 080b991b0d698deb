"""ackwright operator: runs the operator, in a pod or on a laptop."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.settings import OperatorSettings, from_environment

if TYPE_CHECKING:
    from ackwright.clients.kubernetes import Kubernetes

log = logging.getLogger("ackwright")

_PAUSE_S = 2.0
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def operator_settings(
    namespaces: Sequence[str], all_namespaces: bool, own: str | None, environment: Mapping[str, str]
) -> OperatorSettings:
    """The settings: from the options, else from the environment, else the defaults (the own namespace).

    own: the namespace of the operator's pod; None: it runs outside of the cluster.
    """
    # Outside of a pod the Lease is in the first namespace that is watched, where no account of the operator is.
    place = own or (*namespaces, "default")[0]
    variables = {"ACKWRIGHT_OWN_NAMESPACE": place, "ACKWRIGHT_NAMESPACES": place}
    variables |= {} if own or "ACKWRIGHT_OWN_NAMESPACE" in environment else {"ACKWRIGHT_ALLOW_OWN_NAMESPACE": "true"}
    variables |= environment
    if namespaces or all_namespaces:
        variables["ACKWRIGHT_NAMESPACES"] = "" if all_namespaces else ",".join(namespaces)
    return from_environment(variables)


def await_crd(kubernetes: Kubernetes, sleep: Callable[[float], None] = time.sleep) -> None:
    """Waits until the API server serves pipelines.

    kopf checks that once, at its start, and would otherwise never watch any: it may not watch CRDs, which belong to no
    namespace.
    """
    logged = None
    while problem := _crd_problem(kubernetes):
        if problem != logged:
            log.warning("waiting: %s", problem)
            logged = problem
        sleep(_PAUSE_S)


def _crd_problem(kubernetes: Kubernetes) -> str | None:
    """Why pipelines are not served; None if they are."""
    from ackwright.clients.kubernetes import ApiError

    try:
        served = kubernetes.serves(API_VERSION, KIND)
    except ApiError as e:
        return e.message if e.transient else None  # without the permission, kopf's own requests find out
    return (
        None
        if served
        else f"the API server has no {KIND} in {API_VERSION}; install the CRD: kubectl apply --server-side -f crds/"
    )


@click.command()
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Watch this namespace; may be repeated. Default: the operator's own.",
)
@click.option("--all-namespaces", is_flag=True, help="Watch every namespace.")
def operator(*, namespaces: tuple[str, ...], all_namespaces: bool) -> int:
    """Run the operator until it is stopped.

    Its settings come from ACKWRIGHT_* variables (docs/operator.md); these options override them.
    """
    import kopf

    from ackwright.clients.kubernetes import connect
    from ackwright.election import new_identity
    from ackwright.handlers import registry

    own = _NAMESPACE.read_text().strip() if _NAMESPACE.exists() else None
    settings = operator_settings(namespaces, all_namespaces, own, os.environ)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    identity = new_identity()
    kubernetes = connect(agent=f"ackwright-operator/{identity}")
    await_crd(kubernetes)
    kopf.run(
        registry=registry(kubernetes, settings, identity),
        standalone=True,
        namespaces=[settings.own_namespace],  # of the Lease
    )
    return 0
