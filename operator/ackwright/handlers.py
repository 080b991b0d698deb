"""kopf's decorators, and nothing else: what kopf sees goes to the controller.

kopf keeps nothing in the resources here (no annotations, no finalizers): it only watches. Its indices are complete before any handler
runs, so that a look never takes what has not been listed yet for missing.
"""

from __future__ import annotations

from typing import Any

import kopf

from ackwright.clients.kubernetes import GROUP, PLURAL, VERSION
from ackwright.controller import CHILDREN, OURS, Controller
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
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        settings.watching.connect_timeout = 10
        await controller.start()

    @kopf.on.cleanup(registry=found)
    async def stop(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=found)
    async def pipeline(event: Any, body: kopf.Body, **_: Any) -> None:
        controller.saw_pipeline(event["type"], body)

    @kopf.on.event("coordination.k8s.io", "v1", "leases", field="metadata.name", value=NAME, registry=found)
    async def lease(body: kopf.Body, **_: Any) -> None:
        controller.sentinel.seen(body)

    for api_version, plural, kind in CHILDREN:
        _register_child(found, controller, api_version, plural, kind)
    return found


def _register_child(found: kopf.OperatorRegistry, controller: Controller, api_version: str, plural: str, kind: str) -> None:
    # An index, and not an event handler: kopf fills its indices before it calls any handler.
    @kopf.index(api_version, plural, labels=OURS, id=f"see-{plural}", registry=found)
    async def see(body: kopf.Body, **_: Any) -> None:
        controller.saw_child(None, kind, api_version, body)

    # An index function is not told of deletions.
    @kopf.on.event(api_version, plural, labels=OURS, id=f"gone-{plural}", registry=found)
    async def gone(event: Any, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            controller.saw_child("DELETED", kind, api_version, body)
