"""`ackwright` whose own process makes the calls to Kafka: the control of the test of client processes."""

from __future__ import annotations

from typing import Any

from ackwright.cli.main import main
from ackwright.clients.connections import Connections

_set_up = Connections.__init__


def _without_processes(self: Connections, *arguments: Any, **options: Any) -> None:
    _set_up(self, *arguments, **{**options, "processes": None})


Connections.__init__ = _without_processes  # type: ignore[method-assign]
main()
