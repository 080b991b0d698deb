"""How long to wait before the query is restarted. Pure: time and chance are arguments."""

from __future__ import annotations

from dataclasses import dataclass

from ackwright_stream.jobspec import Restart


@dataclass(frozen=True)
class Backoff:
    """Failures in a row, and the delay and the end that follow from them."""

    settings: Restart
    failures: int = 0

    def failed(self, healthy_ms: float) -> Backoff:
        """The back-off after one more failure.

        healthy_ms: milliseconds without a failure before it; enough of them reset the count.
        """
        return Backoff(self.settings, 1 if healthy_ms >= self.settings.forgive_after_ms else self.failures + 1)

    @property
    def exhausted(self) -> bool:
        """Whether there were as many failures in a row as the job may have."""
        return self.failures >= self.settings.max_attempts

    def delay_s(self, chance: float) -> float:
        """Seconds to wait: between half of and all of initial · 2^(n-1), capped. chance: uniform in [0, 1)."""
        longest: float = min(self.settings.max_ms, self.settings.initial_ms * 2.0 ** min(self.failures - 1, 30))
        return longest * (0.5 + 0.5 * chance) / 1000
