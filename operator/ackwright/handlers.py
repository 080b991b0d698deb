"""kopf's handlers: they start and stop the controller, and pass it the events of the Lease.

kopf stores nothing in resources here (no annotations, no finalizers). Pipelines and their children are watched by
watches.py, because kopf ends the process for one namespace without permissions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import kopf

from ackwright.clients.fence import Fence
from ackwright.clients.kubernetes import Kubernetes
from ackwright.controller import Controller
from ackwright.election import Election
from ackwright.lease import ENDED_S, WRITABLE_S
from ackwright.settings import OperatorSettings


def registry(kubernetes: Kubernetes, operator_settings: OperatorSettings, identity: str) -> kopf.OperatorRegistry:
    """The handlers of one replica of the operator. identity: as the holder of the Lease."""
    fence = Fence(WRITABLE_S, ENDED_S)
    controller = Controller(kubernetes, operator_settings, fence)
    elections: list[Election] = []
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
        await controller.start()  # before the election, since a leader without its caches would do nothing for long
        loop = asyncio.get_running_loop()
        election = Election(
            kubernetes,
            operator_settings.own_namespace,
            fence,
            identity=identity,
            shard=operator_settings.shard,
            on_change=lambda leads: _call(loop, controller.lead, leads),
            is_idle=controller.worklist.is_idle,
            on_lease=controller.sentinel.expect,
        )
        elections.append(election)
        election.start()

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        controller.lead(False)
        for election in elections:  # before reconciles have ended, which may wait for brokers for long
            await asyncio.to_thread(election.stop)
        await controller.stop()

    name = operator_settings.shard.lease

    @kopf.on.event("coordination.k8s.io", "v1", "leases", field="metadata.name", value=name, registry=handlers)
    async def lease(body: kopf.Body, **_: Any) -> None:
        controller.sentinel.update(body)

    return handlers


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[bool], None], leads: bool) -> None:
    """Calls the function in the event loop."""
    with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
        loop.call_soon_threadsafe(function, leads)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing: only handlers of changes need kopf's comparison with the last handled object, and it is slow."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None
