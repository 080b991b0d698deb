"""The cluster and the namespace that a command works on: kubectl's options, with kubectl's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli.waiting import waiting
from ackwright.errors import AckwrightError
from ackwright.render.names import selector
from ackwright_stream.jobspec import Reason

if TYPE_CHECKING:  # commands that need no cluster start faster without it
    from ackwright.clients.kubernetes import Kubernetes

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    """A namespace of a cluster."""

    kubernetes: Kubernetes
    namespace: str
    is_named: bool = False  # by -n; else it is the context's namespace

    def pipeline(self, name: str) -> Mapping[str, Any]:
        """The resource. Raises AckwrightError if it does not exist."""
        with waiting(f"Reading pipeline {name} in namespace {self.namespace}"):
            resource = self.kubernetes.get(API_VERSION, KIND, self.namespace, name)
        if resource is None:
            names = [o["metadata"]["name"] for o in self.kubernetes.objects(API_VERSION, KIND, self.namespace)]
            existing = f"existing: {', '.join(sorted(names))}" if names else "there are none"
            raise AckwrightError(
                Reason.INVALID_SPEC,
                f"no DeliveryPipeline {name} in namespace {self.namespace} ({existing}); check the name and -n",
            )
        return {"apiVersion": API_VERSION, "kind": KIND, **resource}

    def driver_pod(self, name: str) -> Mapping[str, Any] | None:
        """The driver's pod; of several, one that is not being deleted. None if there is none."""
        pods = self.kubernetes.objects("v1", "Pod", self.namespace, selector(name, "driver"))
        return min(pods, key=lambda p: "deletionTimestamp" in p["metadata"], default=None)


def target_options(command: F, namespace_help: str = "The pipeline's namespace; default: the context's.") -> F:
    """Adds -n NAMESPACE, --kubeconfig and --context.

    The command gets `target`, a function that connects when it is called.
    """

    def wrapped(*, namespace: str | None, kubeconfig: str | None, context: str | None, **rest: Any) -> Any:
        return command(target=lambda: _connect(namespace, kubeconfig, context), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--context", help="A context of the kubeconfig."),
        click.option("--kubeconfig", help="A kubeconfig file; default: KUBECONFIG, else ~/.kube/config."),
        click.option("-n", "--namespace", help=namespace_help),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _connect(namespace: str | None, kubeconfig: str | None, context: str | None) -> Target:
    from ackwright.clients.kubernetes import connect, default_namespace

    with waiting("Connecting to the cluster"):
        chosen = namespace or default_namespace(kubeconfig, context)
        return Target(connect(kubeconfig, context), chosen, is_named=namespace is not None)
