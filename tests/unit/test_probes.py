"""Drivers are read apart from the reconciles: those that do not answer delay no other pipeline."""

from __future__ import annotations

import asyncio

from ackwright.probes import Probes
from ackwright.worklist import Key, Postponed, Worklist
from ackwright_stream.reports import ProgressReport
from unit.simulated_loop import Loop
from unit.world import RUNNING

SILENT_S = 2.0  # after which a driver counts as silent
HEALTHY: Key = ("ops", "healthy")


class Operator:
    """A worklist whose pipelines have one driver each. Those in the namespace `silent` do not answer."""

    def __init__(self, *, apart: bool) -> None:
        """apart: False for the control, in which a worker waits for the driver's answer."""
        self.loop = Loop()
        self.worklist = Worklist(self.loop.time, workers=8)
        self.probes = Probes(self.read, self.worklist.resume)
        self.reconciled: list[tuple[Key, float, bool]] = []  # with the time, and whether there was a report
        self._apart = apart

    async def read(self, address: str) -> ProgressReport | None:
        if address.startswith("silent"):
            await asyncio.sleep(SILENT_S)
            return None
        return RUNNING

    async def handle(self, key: Key) -> None:
        address = f"{key[0]}-{key[1]}:8090"
        if self._apart:
            reports = self.probes.take(key, (address,))
            if reports is None:
                raise Postponed
            answered = address in reports
        else:
            answered = await self.read(address) is not None
        self.reconciled.append((key, self.loop.now, answered))
        self.worklist.add(key, 10.0)  # its pods change all the time

    def run(self, seconds: float, edit_at: float) -> None:
        async def main() -> None:
            workers = [asyncio.create_task(self.worklist.work(self.handle)) for _ in range(8)]
            await asyncio.sleep(edit_at)
            self.worklist.add(HEALTHY)
            await asyncio.sleep(seconds - edit_at)
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self.probes.stop()

        self.loop.run_until_complete(main())
        self.loop.close()

    def seconds_to_edit(self, edit_at: float) -> float:
        return next((at for key, at, _ in self.reconciled if key == HEALTHY), float("inf")) - edit_at


def overloaded(*, apart: bool) -> Operator:
    operator = Operator(apart=apart)
    for i in range(400):
        operator.worklist.add(("silent", str(i)))
    operator.run(100, edit_at=51)
    return operator


def test_silent_drivers_do_not_delay_the_edit_of_another_pipeline() -> None:
    operator = overloaded(apart=True)
    assert operator.seconds_to_edit(51) < 0.1
    silent = [at for (namespace, _), at, answered in operator.reconciled if namespace == "silent" and not answered]
    assert len(silent) > 400 * 7, "they are reconciled nevertheless, every 12 seconds"


def test_control_silent_drivers_delay_the_edit_if_workers_wait_for_them() -> None:
    """The control of the test above."""
    assert overloaded(apart=False).seconds_to_edit(51) > 10


def test_a_report_is_used_once() -> None:
    async def main() -> None:
        resumed: list[Key] = []

        async def read(address: str) -> ProgressReport | None:
            return RUNNING if address == "a:1" else None

        probes = Probes(read, resumed.append)
        assert probes.take(HEALTHY, ()) == {}, "without a driver there is nothing to read"
        assert probes.take(HEALTHY, ("a:1", "b:1")) is None
        assert probes.take(HEALTHY, ("a:1", "b:1")) is None, "it is being read"
        while not resumed:
            await asyncio.sleep(0)
        assert resumed == [HEALTHY]
        assert probes.take(HEALTHY, ("a:1", "b:1")) == {"a:1": RUNNING}
        assert probes.take(HEALTHY, ("a:1",)) is None
        while len(resumed) < 2:
            await asyncio.sleep(0)
        assert probes.take(HEALTHY, ("c:1",)) is None, "another driver has replaced the one that was read"
        await probes.stop()

    asyncio.run(main())


def test_a_report_of_an_earlier_driver_is_not_used() -> None:
    """It may have had the same address, and its report may have waited for the reconcile."""

    async def main() -> None:
        resumed: list[Key] = []

        async def read(address: str) -> ProgressReport | None:
            return RUNNING

        probes = Probes(read, resumed.append)
        for processes in ("first", "second"):
            assert probes.take(HEALTHY, ("a:1",), processes) is None
            while HEALTHY not in resumed:
                await asyncio.sleep(0)
            resumed.clear()
        assert probes.take(HEALTHY, ("a:1",), "second") == {"a:1": RUNNING}

    asyncio.run(main())
