"""Reports of drivers between the moment at which they are read and the reconcile that uses them.

They are read apart from the reconciles, so that drivers that do not answer hold no worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping

from ackwright.worklist import Key
from ackwright_stream.reports import ProgressReport

Read = Callable[[str], Awaitable[ProgressReport | None]]


class Probes:
    """The reports of each pipeline's drivers. Used in one event loop."""

    def __init__(self, read: Read, resume: Callable[[Key], None]) -> None:
        """read: returns what the driver at an address reports, in limited time. resume: called when all of a pipeline's
        drivers have been read."""
        self._read, self._resume = read, resume
        self._reports: dict[Key, tuple[Hashable, Mapping[str, ProgressReport | None]]] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def take(
        self, key: Key, addresses: tuple[str, ...], processes: Hashable = ()
    ) -> Mapping[str, ProgressReport] | None:
        """The reports by address, each of them once; None: they are being read, and `resume` is called then.

        processes: of which drivers. A report of an earlier one, which may have had the same address, is not used.
        """
        if not addresses:
            return {}
        reporters, reports = self._reports.pop(key, (None, {}))
        if reporters == processes and set(addresses) <= reports.keys():
            return {address: report for address, report in reports.items() if report is not None}
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._read_all(key, addresses, processes))
        return None

    async def _read_all(self, key: Key, addresses: tuple[str, ...], processes: Hashable) -> None:
        try:
            reports = await asyncio.gather(*(self._read(address) for address in addresses))
            self._reports[key] = processes, dict(zip(addresses, reports, strict=True))
        finally:
            del self._tasks[key]
            self._resume(key)

    def forget(self, key: Key) -> None:
        """Forgets a pipeline that is gone."""
        self._reports.pop(key, None)

    async def stop(self) -> None:
        """Ends all reads."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
