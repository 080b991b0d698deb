"""What became of a call that writes and did not fail."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    DONE = "done"
    EXISTS = "exists"  # somebody made it before; it may differ
    UNKNOWN = "unknown"  # no answer came, or one that leaves it open
