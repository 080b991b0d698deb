"""Which pipeline of which cluster a command means: the options that kubectl has, and what it would take by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.errors import AckwrightError
from ackwright.render.names import selector
from ackwright_stream.jobspec import Reason

if TYPE_CHECKING:  # the commands that need no cluster start without it
    from ackwright.clients.kubernetes import Kubernetes

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    """A namespace of a cluster."""

    kubernetes: Kubernetes
    namespace: str

    def pipeline(self, name: str) -> Mapping[str, Any]:
        """The resource. Raises AckwrightError if there is none."""
        found = self.kubernetes.get(API_VERSION, KIND, self.namespace, name)
        if found is None:
            known = [o["metadata"]["name"] for o in self.kubernetes.objects(API_VERSION, KIND, self.namespace)]
            there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
            raise AckwrightError(
                Reason.INVALID_SPEC,
                f"no DeliveryPipeline {name} in namespace {self.namespace} ({there}); check the name and -n",
            )
        return {"apiVersion": API_VERSION, "kind": KIND, **found}

    def driver_pod(self, name: str) -> Mapping[str, Any] | None:
        """The driver's pod; of several the one that is not on its way out."""
        pods = self.kubernetes.objects("v1", "Pod", self.namespace, selector(name, "driver"))
        return min(pods, key=lambda p: "deletionTimestamp" in p["metadata"], default=None)


def target_options(command: F) -> F:
    """-n NAMESPACE, --kubeconfig and --context, passed on as `target`, a function that connects when it is called."""

    def passed(*, namespace: str | None, kubeconfig: str | None, context: str | None, **rest: Any) -> Any:
        return command(target=lambda: _connect(namespace, kubeconfig, context), **rest)

    passed.__name__, passed.__doc__ = command.__name__, command.__doc__
    passed.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--context", help="A context of the kubeconfig."),
        click.option("--kubeconfig", help="A kubeconfig file; default: KUBECONFIG, else ~/.kube/config."),
        click.option("-n", "--namespace", help="The pipeline's namespace; default: the context's."),
    ):
        passed = option(passed)
    return passed  # type: ignore[return-value]


def _connect(namespace: str | None, kubeconfig: str | None, context: str | None) -> Target:
    from ackwright.clients.kubernetes import connect, default_namespace

    return Target(connect(kubeconfig, context), namespace or default_namespace(kubeconfig, context))
