"""How long to wait before the query is started again. Pure: time and chance are passed in."""

from __future__ import annotations

from dataclasses import dataclass

from ackwright_stream.jobspec import Restart


@dataclass(frozen=True)
class Backoff:
    """Failures in a row. Forgiven after a while of health."""

    rule: Restart
    failures: int = 0

    def failed(self, healthy_ms: float) -> Backoff:
        """After one more failure, which came after healthy_ms in which nothing was wrong."""
        return Backoff(self.rule, 1 if healthy_ms >= self.rule.forgive_after_ms else self.failures + 1)

    @property
    def exhausted(self) -> bool:
        return self.failures >= self.rule.max_attempts

    def delay_s(self, chance: float) -> float:
        """Between half of and the whole of initial · 2^(n-1), capped; chance is uniform in [0, 1)."""
        whole: float = min(self.rule.max_ms, self.rule.initial_ms * 2.0 ** min(self.failures - 1, 30))
        return whole * (0.5 + 0.5 * chance) / 1000
