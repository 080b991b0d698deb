"""The outcome of a write that did not fail."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    DONE = "done"
    EXISTS = "exists"  # something created it before; it may differ
    UNKNOWN = "unknown"  # no answer came, or one that does not tell
