"""kopf's decorators, and nothing else: what kopf sees goes to the controller.

kopf keeps nothing in the resources here (no annotations, no finalizers): it only watches pipelines, and the Lease. Their children are
watched by label (watches).
"""

from __future__ import annotations

from typing import Any

import kopf

from ackwright.clients.kubernetes import GROUP, PLURAL, VERSION
from ackwright.controller import Controller
from ackwright.sentinel import NAME


def registry(controller: Controller) -> kopf.OperatorRegistry:
    """The handlers of one controller."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    async def login(**known: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.startup(registry=found)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.peering.standalone = True
        settings.scanning.disabled = True
        settings.persistence.diffbase_storage = _Nothing()
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        settings.watching.connect_timeout = 10
        await controller.start()

    @kopf.on.cleanup(registry=found)
    async def stop(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=found)
    async def pipeline(event: Any, **_: Any) -> None:
        controller.saw_pipeline(event["type"], event["object"])

    @kopf.on.event("coordination.k8s.io", "v1", "leases", field="metadata.name", value=NAME, registry=found)
    async def lease(body: kopf.Body, **_: Any) -> None:
        controller.sentinel.seen(body)

    return found


class _Nothing(kopf.DiffBaseStorage):
    """kopf compares each object with what it has handled last, for handlers of changes. There are none here, and it costs a lot."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None
