"""kopf's handlers, which only pass events to the controller.

kopf stores nothing in the resources here (no annotations, no finalizers): it only watches pipelines and the Lease.
Children of pipelines are watched by their label (watches.py).
"""

from __future__ import annotations

from typing import Any

import kopf

from ackwright.clients.kubernetes import GROUP, PLURAL, VERSION
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

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def pipeline(event: Any, **_: Any) -> None:
        controller.update_pipeline(event["type"], event["object"])

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
