"""kopf's handlers: they start and stop the controller, and pass it the events of the Lease.

kopf stores nothing in resources here (no annotations, no finalizers). Pipelines and their children are watched by
watches.py, because kopf ends the process for one namespace without permissions.
"""

from __future__ import annotations

from typing import Any

import kopf

from ackwright.controller import Controller
from ackwright.sentinel import NAME


def registry(controller: Controller) -> kopf.OperatorRegistry:
    """The handlers for one controller."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    @kopf.on.startup(registry=handlers)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.peering.standalone = True
        settings.scanning.disabled = True
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        settings.watching.connect_timeout = 10
        await controller.start()

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event("coordination.k8s.io", "v1", "leases", field="metadata.name", value=NAME, registry=handlers)
    async def lease(body: kopf.Body, **_: Any) -> None:
        controller.sentinel.update(body)

    return handlers


class _NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing: only handlers of changes need kopf's comparison with the last handled object, and it is slow."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None
